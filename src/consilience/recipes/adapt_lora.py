"""LoRA through PEFT: the baseline of an anchor, with its parameter count, on the same pairs for the same steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.locks import one_job
from consilience.recipes.adapt import (
    BATCH_ROWS,
    FIT_STEPS,
    load_held_out,
    read_pairs_checked,
    training_report,
    write_report,
)
from consilience.training.settings import LOSS_TEMPERATURE

if TYPE_CHECKING:
    from torch import nn

    from consilience.corpora.pairs import OnFault
    from consilience.training.pair_model import PairModel, PlainEncoder
    from consilience.training.settings import Precision

KIND = "lora"
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_ALPHA_PER_RANK = 2  # assumed: PEFT's and the paper's common choice


@one_job
def adapt_lora(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    *,
    pairs: str | Path | Sequence[tuple[str, str]],
    name: str,
    out: str | Path,
    steps: int = FIT_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = 1e-3,
    temperature: float = LOSS_TEMPERATURE,
    seed: int = 0,
    precision: Precision = "auto",
    left: str = "sentence1",
    right: str = "sentence2",
    limit: int | None = None,
    on_fault: OnFault = "refuse",
    held_out: Sequence[str | Path] | None = None,
    hidden: int | None = None,
    checkpoint_seconds: float = 60.0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train LoRA on every linear layer of the trunk's blocks, with an anchor's number of parameters.

    Options as for :func:`consilience.recipes.adapt.adapt_fit`: batches, held-out pairs, loss, optimiser and schedule
    are the same for the same seed.

    Args:
        student: as for adapt fit.
        pairs: as for adapt fit.
        name: of the task.
        out: folder of the result, which PEFT loads (``PeftModel.from_pretrained(backbone, OUT)``).
        steps: optimiser steps.
        batch_rows: pairs a batch.
        lr: peak learning rate.
        temperature: of the InfoNCE.
        seed: of weights, batches and held-out pairs.
        precision: of the trained passes: "fp32", "bf16", or "auto": the faster one, measured once a machine and kept.
        left: column of the first texts.
        right: column of the second texts.
        limit: use only the first rows.
        on_fault: refuse the file, or drop the row, when a pair is unusable.
        held_out: test files whose sentences no pair may hold.
        hidden: hidden width of the anchor whose parameter count is met; the design's when not given.
        checkpoint_seconds: wall-clock time between checkpoints.
        overwrite: replace what is at ``out``.

    Returns:
        The manifest.

    Raises:
        MissingExtraError: PEFT isn't installed.
        CorpusError: the pairs can't be trained on.
        InputError: an option is wrong, or the name isn't one.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """
    from consilience.adapters.anchor import AnchorConfig, count_block_parameters
    from consilience.adapters.library import require_name
    from consilience.core.artefacts import begin_artefact, finish_artefact, is_finished, output_path
    from consilience.core.files import atomic_write, write_json
    from consilience.core.manifests import verify_artefact
    from consilience.core.placing import require_apart
    from consilience.core.progress import log
    from consilience.core.seeds import seed_from_name
    from consilience.training.journal import FILE as LOG
    from consilience.training.pair_loop import PairSettings, train_on_pairs
    from consilience.training.pair_model import open_pair_model
    from consilience.training.pair_queries import report_queries
    from consilience.training.pair_tokens import tokenize_pairs

    folder = output_path(out, overwrite=overwrite)
    require_name(name)
    settings = PairSettings(
        steps=steps,
        batch_rows=batch_rows,
        lr=lr,
        temperature=temperature,
        seed=seed,
        precision=precision,
        checkpoint_seconds=checkpoint_seconds,
    )
    corpus = read_pairs_checked(
        pairs, left=left, right=right, limit=limit, on_fault=on_fault, held_out=load_held_out(held_out)
    )
    model = open_pair_model(student)
    trunk = model.trunk
    config = AnchorConfig() if hidden is None else AnchorConfig(hidden=hidden)
    wanted = trunk.blocks * count_block_parameters(trunk.width, config)
    ranks = choose_ranks(_linear_sizes(model), wanted)
    job = {
        "recipe": "adapt lora",
        "model": model.identity(),
        "trunk": trunk.fingerprint,
        "name": name,
        "ranks": ranks,
        "pairs": corpus.to_json(),
        "training": settings.identity(),
    }
    require_apart(folder, student, pairs)
    if is_finished(folder, kind=KIND, job=job, overwrite=overwrite):
        log(f"{folder}: already done")
        return verify_artefact(folder, KIND)
    settings_json = _peft_settings(ranks)
    with _LoraOn(model, settings_json, seed=seed_from_name(f"lora/{name}", seed)) as parameters:
        work, _ = begin_artefact(folder, {"kind": KIND, "job": job}, overwrite=overwrite)
        domain = tokenize_pairs(model, corpus, name=name, seed=seed)
        queries = {name: report_queries(model, corpus, domain)}  # a new LoRA adds zero
        summary = train_on_pairs(model, [domain], parameters, settings, work, label=f"lora {name}")
        tensors = {key: value.detach().clone().contiguous() for key, value in parameters.items()}
    from safetensors.torch import save

    with atomic_write(work / _WEIGHTS) as stream:
        stored = {f"base_model.model.{key.replace('.default', '')}": value for key, value in tensors.items()}
        stream.write(save(stored, metadata={"format": "pt"}))
    write_json(work / _CONFIG, settings_json)
    write_report(work, training_report(summary, settings, {name: corpus}, queries, {}), summary)
    count = sum(value.numel() for value in tensors.values())
    return finish_artefact(
        folder,
        kind=KIND,
        manifest={
            "job": job,
            "name": name,
            "trunk": trunk.to_json(),
            "parameters": count,
            "anchor_parameters": wanted,
        },
        files=[_WEIGHTS, _CONFIG, "report.json", LOG],
    )


def open_lora(student: Any, folder: str | Path) -> PlainEncoder:  # noqa: ANN401 - a path
    """Open a fresh copy of a student with a LoRA on it, as an encoder.

    Args:
        student: a path or packaged:NAME; a loaded model would be changed.
        folder: made by :func:`adapt_lora`.

    Raises:
        InputError: the student isn't a path, or the folder no LoRA.
        TrunkMismatchError: it was trained on another trunk.
        BankIntegrityError: a file is damaged.
    """
    import torch
    from safetensors.torch import load_file

    from consilience.adapters.trunk import TrunkIdentity, require_trunk
    from consilience.core.files import read_json
    from consilience.core.manifests import verify_artefact
    from consilience.training.pair_model import PlainEncoder, open_pair_model

    if not isinstance(student, str | Path):
        raise InputError("adapt: a LoRA is opened on a fresh copy of the student. Give the student's path")
    place = Path(folder)
    manifest = verify_artefact(place, KIND)
    model = open_pair_model(student)
    require_trunk(TrunkIdentity.from_json(manifest["trunk"]), model.trunk, what=f"LoRA {manifest['name']}")
    tensors = load_file(place / _WEIGHTS)
    parameters = _LoraOn(model, read_json(place / _CONFIG), seed=0).put_on()
    with torch.no_grad():
        for key, parameter in parameters.items():
            parameter.copy_(tensors[f"base_model.model.{key.replace('.default', '')}"])
    return PlainEncoder(model, name=f"lora {manifest['name']}", extra={"lora": manifest["id"]})


def choose_ranks(sizes: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Spread a number of parameters over layers as evenly as ranks allow, without exceeding it.

    Args:
        sizes: by layer, inputs plus outputs: the parameters of one rank.
        wanted: parameters in all.

    Returns:
        The rank by layer; some have one more than others.

    Raises:
        InputError: not even rank 1 fits.

    Example:
        >>> choose_ranks({"a": 10, "b": 20}, 75)
        {'a': 3, 'b': 2}
    """
    base = wanted // sum(sizes.values())
    if base < 1:
        raise InputError(
            f"adapt lora: expected at least {sum(sizes.values()):,} parameters for rank 1, the anchor has {wanted:,}. "
            "Raise the anchor's hidden width"
        )
    ranks = dict.fromkeys(sizes, base)
    left = wanted - base * sum(sizes.values())
    for name, size in sizes.items():
        if size <= left:
            ranks[name] += 1
            left -= size
    return ranks


def _linear_sizes(model: PairModel) -> dict[str, int]:
    """Return the linear layers of the blocks by name within the backbone, each with inputs plus outputs."""
    from torch import nn

    blocks = {id(module) for block in model.blocks for module in block.modules()}
    return {
        name: module.in_features + module.out_features
        for name, module in model.backbone.named_modules()
        if isinstance(module, nn.Linear) and id(module) in blocks
    }


def _peft_settings(ranks: Mapping[str, int]) -> dict[str, Any]:
    """Return the adapter_config.json that PEFT reads; without paths."""
    base = min(ranks.values())
    more = {name: rank for name, rank in ranks.items() if rank != base}
    return {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "r": base,
        "lora_alpha": _ALPHA_PER_RANK * base,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(ranks),
        "rank_pattern": more,
        "alpha_pattern": {name: _ALPHA_PER_RANK * rank for name, rank in more.items()},
        "inference_mode": True,
    }


class _LoraOn:
    """A LoRA on a model's backbone while the block runs; the trunk is frozen, and put back afterwards."""

    def __init__(self, model: PairModel, settings: Mapping[str, Any], *, seed: int) -> None:
        self._model, self._settings, self._seed = model, dict(settings), seed
        self._wrapped: Any = None
        self._trained: list[nn.Parameter] = []

    def put_on(self) -> dict[str, nn.Parameter]:
        """Put it on and return its parameters by name, as PEFT calls them."""
        import warnings

        from consilience.core.extras import require
        from consilience.core.seeds import torch_seed

        peft = require("peft", extra="peft", purpose="to train the LoRA baseline")
        kept = {key: value for key, value in self._settings.items() if key not in ("peft_type", "inference_mode")}
        self._trained = [p for p in self._model.module.parameters() if p.requires_grad]
        for parameter in self._trained:
            parameter.requires_grad_(False)
        with torch_seed(self._seed), warnings.catch_warnings():
            # PEFT asks transformers for a property by its old name.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
            self._wrapped = peft.get_peft_model(self._model.backbone, peft.LoraConfig(**kept))
        self._model.module.eval()
        return {name: p for name, p in self._model.backbone.named_parameters() if "lora_" in name}

    def __enter__(self) -> dict[str, nn.Parameter]:
        return self.put_on()

    def __exit__(self, *details: object) -> None:
        self._wrapped.unload()
        for parameter in self._trained:
            parameter.requires_grad_(True)
