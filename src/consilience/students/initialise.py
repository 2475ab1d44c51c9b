"""Starts other than random weights: some layers of a trained model, and a token table of a static student.

Depth pruning keeps a model's token table, positions and some of its layers, so that the student begins near what the
model already knows; training repairs what the missing layers did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.core.manifests import MANIFEST, verify_artefact
from consilience.core.safetensors_files import weight_files
from consilience.core.seeds import torch_seed
from consilience.students.backbones import (
    POSITIONS,
    TOKENS,
    find_architecture,
    fold_token_types,
    keep_layers,
    make_backbone,
    plain_names,
)
from consilience.students.presets import HeadKind, StudentConfig
from consilience.students.text import TextStudent, encode_ids
from consilience.students.token_names import shared_tokens
from consilience.students.tokenizer import load_tokenizer, pad_id

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Of a source's config.json: where it lay and what made it, not what it computes.
_UNKEPT = {"_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "gradient_checkpointing"}


def warm_start_from_folder(
    folder: str | Path,
    *,
    layers: Sequence[int] | None = None,
    dimensions: int | None = None,
    head: HeadKind | None = None,
    seed: int = 0,
    max_length: int | None = None,
    max_positions: int | None = None,
    dropout: float = 0.0,
    batch_rows: int = 256,
) -> tuple[TextStudent, Tokenizer, StudentConfig]:
    """Build a student from a trained model's token table, positions and layers.

    With all layers and head "none" the student's embeddings are the model's own. A student of ours gives its head too,
    where kind and width agree; in all other cases the head is new.

    Args:
        folder: a student's folder, a sentence-transformers folder with mean pooling, or a ``transformers`` folder;
            weights in ``model.safetensors`` or its shards, of a BERT, MPNet, RoBERTa or DistilBERT.
        layers: numbers of the layers to keep, from 0, ascending; all when not given.
        dimensions: width of the embedding; a student's own, and a model's token states' width, when not given.
        head: kind of the head; a student's own, and "mlp" for other models, when not given.
        seed: of a new head's weights; the global random state is left as it was.
        max_length: tokens a text is cut to; the model's own when not given.
        max_positions: positions to keep; all when not given.
        dropout: probability in the backbone while training.
        batch_rows: rows a training step, unless the person says otherwise.

    Returns:
        The student in fp32, the model's tokenizer, and the student's shape.

    Raises:
        InputError: no such folder, a model that a student can't start from, or layers that it doesn't have.
        BankIntegrityError: a student's file is damaged.

    Source: design, section 4; depth pruning as Sajjad et al. 2020, arXiv:2004.03844.
    """
    place = Path(folder)
    where = str(folder)
    manifest = _own_manifest(place)
    kind: HeadKind = head or (manifest or {}).get("config", {}).get("head", "mlp")
    root = place if manifest is not None else _transformer_root(place)
    settings = {key: value for key, value in _read_settings(root).items() if key not in _UNKEPT}
    model_type = str(settings.get("model_type", "bert"))
    architecture = find_architecture(model_type, where=where)
    tokenizer = load_tokenizer(root if (root / "tokenizer.json").is_file() else place)
    _check_padding(tokenizer, architecture.first_position, where)
    tensors = plain_names(_read_tensors(root / "model.safetensors"), model_type)
    fold_token_types(tensors)
    _check_vocabulary(tokenizer, tensors, where)
    depth = int(_size(settings, "num_hidden_layers", "n_layers", where=where))
    kept = _check_layers(layers, depth, where)
    tensors = keep_layers(tensors, kept)

    first = architecture.first_position
    available = len(tensors[POSITIONS]) - first
    positions = min(max_positions or available, available)
    tensors[POSITIONS] = tensors[POSITIONS][: first + positions].clone()
    settings["max_position_embeddings"] = first + positions
    settings["n_layers" if "n_layers" in settings else "num_hidden_layers"] = len(kept)
    settings |= dict.fromkeys(architecture.dropouts, dropout)
    hidden = int(_size(settings, "hidden_size", "dim", where=where))
    length = min(max_length or _declared_length(place, root, manifest) or positions, positions)
    config = StudentConfig(
        layers=len(kept),
        hidden=hidden,
        heads=int(_size(settings, "num_attention_heads", "n_heads", where=where)),
        ffn=int(_size(settings, "intermediate_size", "hidden_dim", where=where)),
        max_positions=positions,
        dropout=dropout,
        batch_rows=batch_rows,
        max_length=length,
        head=kind,
        architecture=model_type,
    )
    width = dimensions or int((manifest or {}).get("dimensions", hidden))
    with torch_seed(seed):
        student = TextStudent(make_backbone(settings, where=where), width, kind)
    _load(student.backbone, tensors, where)
    if manifest is not None and kind != "none" and _has_this_head(manifest, kind, width):
        _load(student.head, _read_tensors(place / "head.safetensors"), where)
    return student.eval(), tokenizer, config


def _own_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a student's folder, verified, or None where the folder isn't an artefact."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Give a student, or a sentence-transformers or transformers folder")
    if not (folder / MANIFEST).is_file() or (folder / "modules.json").is_file():
        return None
    manifest = verify_artefact(folder, "student")
    if manifest.get("config", {}).get("architecture") == "static":
        raise InputError(
            f"{folder}: a static student has no layers to start from. Give it as the token table (--token-table)"
        )
    return manifest


def _transformer_root(folder: Path) -> Path:
    """Return where a foreign folder's transformer lies; a sentence-transformers folder's other modules are checked."""
    modules = folder / "modules.json"
    if not modules.is_file():
        return folder
    root = folder
    for module in read_json(modules):
        kind, place = str(module["type"]).rsplit(".", 1)[-1], folder / str(module["path"])
        if kind == "Transformer":
            root = place
        elif kind == "Pooling":
            pooling = read_json(place / "config.json")
            if not pooling.get("pooling_mode_mean_tokens", pooling.get("pooling_mode") == "mean"):
                raise InputError(
                    f"{folder}: it doesn't pool by the mean of its token states, as students do. Choose another model, "
                    "or give the folder of its transformer alone"
                )
        elif kind not in ("Normalize", "Dropout"):
            raise InputError(
                f"{folder}: its module {kind} behind the pooling can't be taken over. Give the student it was exported "
                "from, or a transformers folder without such modules"
            )
    return root


def _read_settings(root: Path) -> dict[str, Any]:
    if not (root / "config.json").is_file():
        raise InputError(
            f"{root}: it has no config.json, so no layers to start from. Give a student's, a sentence-transformers or "
            "a transformers folder"
        )
    settings = read_json(root / "config.json")
    if not isinstance(settings, dict):
        raise InputError(f"{root / 'config.json'}: an object expected. Fetch the model again")
    return settings


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = weight_files(path)
    if not files:
        raise InputError(
            f"{path}: no such file; weights in safetensors expected. Convert them once: "
            f"transformers.AutoModel.from_pretrained({str(path.parent)!r}).save_pretrained({str(path.parent)!r})"
        )
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except SafetensorError as error:
            raise InputError(f"{file}: isn't a safetensors file ({error}). Fetch it again") from error
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _size(settings: Mapping[str, Any], *keys: str, where: str) -> int:
    for key in keys:
        if isinstance(settings.get(key), int):
            return int(settings[key])
    raise InputError(f"{where}: config.json has no {' or '.join(keys)}. Fetch the model again")


def _check_layers(layers: Sequence[int] | None, depth: int, where: str) -> tuple[int, ...]:
    kept = tuple(range(depth)) if layers is None else tuple(layers)
    whole = all(type(layer) is int for layer in kept)
    if not kept or not whole or list(kept) != sorted(set(kept)) or kept[0] < 0 or kept[-1] >= depth:
        raise InputError(
            f"{where}: expected ascending numbers of its {depth} layers, 0 to {depth - 1}, got "
            f"{', '.join(map(str, kept)) or 'none'}. Change --layers"
        )
    return kept


def _check_padding(tokenizer: Tokenizer, first_position: int, where: str) -> None:
    """Refuse a tokenizer whose padding these position tables can't tell from text."""
    if first_position and pad_id(tokenizer) != first_position - 1:
        raise InputError(
            f"{where}: positions are counted from the padding token's id, {first_position - 1} expected, its tokenizer "
            f"has {pad_id(tokenizer)}. Fetch the model's own tokenizer"
        )


def _check_vocabulary(tokenizer: Tokenizer, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    """Refuse a tokenizer with more tokens than the model has rows; the first text with such a token would fail."""
    tokens, rows = tokenizer.get_vocab_size(with_added_tokens=True), len(tensors.get(TOKENS, ()))
    if TOKENS in tensors and tokens > rows:
        raise InputError(
            f"{where}: the tokenizer has {tokens} tokens, the model {rows} rows. Use the model's own tokenizer, or "
            "save the model after resize_token_embeddings"
        )


def _declared_length(folder: Path, root: Path, manifest: Mapping[str, Any] | None) -> int | None:
    """Return the length limit that a model states, or None."""
    if manifest is not None:
        return int(manifest["max_length"])
    for place, name, key in (
        (folder, "sentence_bert_config.json", "max_seq_length"),
        (root, "sentence_bert_config.json", "max_seq_length"),
        (root, "tokenizer_config.json", "model_max_length"),
    ):
        if (place / name).is_file():
            settings = read_json(place / name)
            declared = settings.get(key) if isinstance(settings, dict) else None
            if isinstance(declared, int) and declared > 0:
                return declared
    return None


def _has_this_head(manifest: Mapping[str, Any], head: str, dimensions: int) -> bool:
    return manifest.get("config", {}).get("head", "mlp") == head and manifest.get("dimensions") == dimensions


def _load(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise InputError(
            f"{where}: its weights don't fit its config.json ({str(error)[:300]}). Fetch the model again"
        ) from error


@torch.no_grad()
def set_token_table(student: TextStudent, table: torch.Tensor, table_tokenizer: Tokenizer, tokenizer: Tokenizer) -> int:
    """Replace a student's token embeddings by those of a static student, token by token.

    The table is centred, projected to the student's width by its principal axes (or padded with zeros where it is
    narrower), and scaled to the standard deviation of the rows that it replaces. Tokens that the table lacks, and the
    padding token, keep their rows.

    Args:
        student: changed in place.
        table: (V, d) token vectors, not normalised.
        table_tokenizer: its tokenizer, with V tokens at least.
        tokenizer: the student's.

    Returns:
        How many tokens got a vector.

    Raises:
        InputError: the two vocabularies share fewer tokens than the student's width, or the table isn't finite.

    Source: design, section 4.
    """
    ours, theirs = shared_tokens(tokenizer, table_tokenizer)
    fits = theirs < len(table)
    ours, theirs = ours[fits], theirs[fits]
    weights = student.backbone.get_parameter(TOKENS)
    hidden = weights.shape[1]
    if len(ours) < min(hidden, table.shape[1]):
        raise InputError(
            f"token table: it shares {len(ours)} tokens with the student's tokenizer, at least "
            f"{min(hidden, table.shape[1])} expected. Use a static student with the same tokenizer"
        )
    rows = table[torch.from_numpy(theirs)].double().cpu()
    if not torch.isfinite(rows).all():
        raise InputError("token table: it holds values that aren't finite. Build the static student again")
    rows = rows - rows.mean(dim=0)
    if rows.shape[1] > hidden:
        _, axes = torch.linalg.eigh(rows.T @ rows)
        rows = rows @ axes[:, -hidden:].flip(1)  # eigenvalues ascend
    rows = torch.nn.functional.pad(rows, (0, hidden - rows.shape[1]))
    places = torch.from_numpy(ours)
    spread = weights[places].double().std() / rows.std().clamp_min(torch.finfo(torch.float32).tiny)
    weights[places] = (rows * spread).to(weights.dtype)
    return len(ours)


def fit_linear_head(
    student: TextStudent, ids: Sequence[NDArray[np.integer]], targets: NDArray[np.floating], *, pad: int
) -> float:
    """Set a linear head to the ridge solution from pooled token states to targets.

    Minimises sum_i ||W x_i - t_i||^2 + r ||W||^2 over W, x_i the pooled states of text i at length 1, r a thousandth
    of their mean eigenvalue.

    Args:
        student: with head "linear"; its head is changed in place.
        ids: token ids of n texts.
        targets: (n, d) unit rows, in the order of the texts.
        pad: id of the padding token.

    Returns:
        Mean cosine of these texts' embeddings to their targets, in sample.

    Raises:
        InputError: another head, another width, or fewer texts than the token states are wide.
    """
    weights = getattr(student.head, "weight", None)
    if student.head_kind != "linear" or weights is None:
        raise InputError(f"fit_linear_head: a linear head expected, got {student.head_kind}. Build one")
    hidden = int(weights.shape[1])
    if targets.shape != (len(ids), student.dimensions) or len(ids) < hidden:
        raise InputError(
            f"fit_linear_head: expected targets of shape (n, {student.dimensions}) for n >= {hidden} texts, got "
            f"{targets.shape} for {len(ids)}. Give more texts of that target"
        )
    pooled = encode_ids(TextStudent(student.backbone, hidden, "none").eval(), ids, pad=pad).astype(np.float64)
    gram = pooled.T @ pooled
    gram += 1e-3 * np.trace(gram) / hidden * np.eye(hidden)  # assumed: as the alignment maps' shrinkage
    solution = np.linalg.solve(gram, pooled.T @ targets.astype(np.float64))
    with torch.no_grad():
        weights.copy_(torch.from_numpy(solution.T))
    embedded = pooled @ solution
    lengths = np.linalg.norm(embedded, axis=1) * np.linalg.norm(targets, axis=1)
    return float(((embedded * targets).sum(axis=1) / np.maximum(lengths, 1e-12)).mean())
