"""The mask table of a library, and the random arms that control its margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.locks import one_job
from consilience.recipes.adapt import adapt_align

if TYPE_CHECKING:
    from consilience.adapters.handle import Handle
    from consilience.adapters.library import AnchorLibrary
    from consilience.core.encoder import Encoder
    from consilience.corpora.pairs import OnFault
    from consilience.evaluation.result import EvaluationResult

CONTROL = "random arms: "  # before the labels of the control's rows


def adapt_table(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    library: str | Path | AnchorLibrary,
    *,
    tasks: Sequence[str] = ("sts",),
    data: str | Path | None = None,
    seed: int = 0,
    resamples: int = 1_000,
    force: bool = False,
    lora: Sequence[str | Path] = (),
    control: str | Path | None = None,
) -> EvaluationResult:
    """Score the mask table: off, each anchor under the dispatch (damped), each alone, all.

    Args:
        student: as for :func:`consilience.recipes.adapt.adapt_fit`.
        library: what is attached while it is measured.
        tasks: as for :func:`consilience.recipes.evaluate.evaluate`.
        data: folder with ``sts/*.tsv``; by default the variable CONSILIENCE_DATA.
        seed: of the bootstrap draws.
        resamples: bootstrap resamples.
        force: attach a library of another trunk; every row's name says so.
        lora: folders made by adapt lora, each a row more; the student has to be a path then.
        control: folder made by :func:`adapt_control`: its rows (each arm alone, all) are what the library's margins
            have to beat; the student has to be a path then.

    Returns:
        A model a mask, named by its label, with geometry (effective rank, self-cosine), and all comparisons.

    Raises:
        TrunkMismatchError: the library belongs to another trunk.
        InputError: an unknown task, or a control of other anchors.

    Source: design, sections 7 and 11 (capacity control, "masking damps").
    """
    from consilience.adapters.attach import attach_amoe
    from consilience.evaluation.suite import evaluate_encoders
    from consilience.recipes.adapt_lora import open_lora
    from consilience.recipes.evaluate import load_tasks
    from consilience.training.pair_model import open_pair_model

    loaded, selection = load_tasks(tasks, data)
    model = open_pair_model(student)
    handle = attach_amoe(model.model, library, force=force)
    other: Handle | None = None
    try:
        encoders = _rows(model.model, handle)
        if control is not None:
            if not isinstance(student, str | Path):
                raise InputError("adapt: a control is opened on a fresh copy of the student. Give the student's path")
            copy = open_pair_model(student)
            other = attach_amoe(copy.model, control, force=force)
            _require_control(handle, other, control)
            encoders += _rows(copy.model, other, prefix=CONTROL)
        encoders += [open_lora(student, folder) for folder in lora]
        names = [encoder.name for encoder in encoders]
        return evaluate_encoders(encoders, loaded, selection=selection, seed=seed, resamples=resamples, names=names)
    finally:
        for attached in (handle, other):
            if attached is not None:
                attached.detach()


def _rows(model: Any, handle: Handle, prefix: str = "") -> list[Encoder]:  # noqa: ANN401 - a live model
    """Return a table's rows as encoders; a control's without those that are the library's own or compare nothing."""
    from consilience.adapters.adapted_encoder import AdaptedEncoder

    mark = " (forced)" if handle.forced else ""
    masks = handle.table_masks()
    if prefix or len(handle.library.names) == 1:  # a single member isn't damped: the row is that of all
        masks = [mask for mask in masks if mask.kind != "some"]
    if prefix:
        masks = [mask for mask in masks if mask.kind != "off"]
    return [
        AdaptedEncoder(model, mask, name=prefix + mask.label + (mark if mask.kind != "off" else "")) for mask in masks
    ]


def _require_control(handle: Handle, control: Handle, where: str | Path) -> None:
    """Refuse a control that isn't of random arms of the library's names and sizes, aligned as the library was."""
    own, other = handle.library, control.library
    shapes = [[(name, lib.anchor(name).config) for name in lib.names] for lib in (own, other)]
    untrained = all((other.provenance.get(name) or {}).get("recipe") == "adapt control" for name in other.names)
    if shapes[0] != shapes[1] or not untrained:
        raise InputError(
            f"{where}: expected random arms named and shaped like {', '.join(own.names)}, got "
            f"{', '.join(other.names)}{'' if untrained else ', trained'}. Make them with adapt control"
        )
    theirs, mine = _alignment(other), _alignment(own)
    if theirs is None:
        raise InputError(
            f"{where}: the keys of these random arms were never aligned. Name adapt control's OUT itself, not OUT.arms"
        )
    if mine is None:  # one anchor as trained: there is only a temperature to share
        mine = {**theirs, "routing temperature": own.temperature}
    differing = [what for what in mine if mine[what] != theirs[what]]
    if differing:
        raise InputError(
            f"{where}: these random arms were aligned with other {' and '.join(differing)} than the library. Make a "
            "control of this library with adapt control, on the pairs of its adapt align"
        )


def _alignment(library: AnchorLibrary) -> dict[str, Any] | None:
    """Return what decided the alignment of a library's keys, but for seeds and anchors; None where there was none."""
    kept = library.provenance.get("keys")
    if kept is None:
        return None
    return {
        "routing temperature": library.temperature,
        "pairs": kept["pairs"],
        "steps, rate or loss temperature": _training(library),
    }


def _training(library: AnchorLibrary) -> dict[str, Any]:
    """Return the options of adapt align that decided a library's keys; {} where there was no alignment."""
    training = library.provenance.get("keys", {}).get("training", {})
    return {name: training[name] for name in ("steps", "batch_rows", "lr", "temperature") if name in training}


@one_job
def adapt_control(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    library: str | Path,
    *,
    pairs: Mapping[str, str | Path | Sequence[tuple[str, str]]],
    out: str | Path,
    seed: int = 0,
    left: str = "sentence1",
    right: str = "sentence2",
    limit: int | None = None,
    on_fault: OnFault = "refuse",
    held_out: Sequence[str | Path] | None = None,
    overwrite: bool = False,
) -> AnchorLibrary:
    """Make the capacity control of a library: random, untrained arms of its shape, their keys aligned like its own.

    Steps, batches, rate and both temperatures are those of the library's own alignment. The arms go into ``OUT.arms``,
    the library with aligned keys into ``out``; a killed call continues.

    Args:
        student: as for :func:`consilience.recipes.adapt.adapt_fit`.
        library: whose names, shapes and temperature the arms have.
        pairs: what its keys were aligned on, by anchor's name.
        out: the control's folder.
        seed: of the arms, the batches and the held-out pairs.
        left: column of the first texts.
        right: column of the second texts.
        limit: use only the first rows of each pair file.
        on_fault: refuse a file, or drop the row, when a pair is unusable.
        held_out: as for adapt fit.
        overwrite: replace what is at ``out`` and ``OUT.arms``.

    Returns:
        The control, as stored.

    Raises:
        TrunkMismatchError: the library belongs to another trunk.
        InputError: an anchor has no pairs.

    Source: design, sections 7 and 11 (capacity control).
    """
    from consilience.adapters.anchor import Anchor
    from consilience.adapters.library import KIND, AnchorLibrary, load_library, save_library
    from consilience.adapters.trunk import require_trunk
    from consilience.core.artefacts import is_finished, output_path
    from consilience.core.placing import require_apart
    from consilience.core.seeds import seed_from_name
    from consilience.training.pair_model import open_pair_model

    folder = output_path(out, overwrite=overwrite)
    arms_folder = output_path(folder.with_name(folder.name + ".arms"), overwrite=overwrite)
    own = load_library(library)
    model = open_pair_model(student)
    if own.trunk is not None:
        require_trunk(own.trunk, model.trunk, what=f"adapt control: the library ({', '.join(own.names)})")
    for place in (folder, arms_folder):
        require_apart(place, student, library, *pairs.values())
    arms = AnchorLibrary(own.width, own.block_count)
    for name in own.names:
        number = seed_from_name(f"random-arm/{name}", seed)
        arm = Anchor(own.width, own.block_count, own.anchor(name).config, seed=number, random_output=True)
        arms.add(name, arm, seed=number, provenance={"recipe": "adapt control", "seed": seed})
    arms.bind(model.trunk)
    job = {"recipe": "adapt control", "arms": arms.fingerprint(), "trunk": model.trunk.fingerprint}
    if not is_finished(arms_folder, kind=KIND, job=job, overwrite=overwrite):
        save_library(arms, arms_folder, job=job, overwrite=overwrite)
    return adapt_align(
        model,
        [arms_folder],
        pairs=pairs,
        out=folder,
        routing_temperature=own.temperature,
        seed=seed,
        left=left,
        right=right,
        limit=limit,
        on_fault=on_fault,
        held_out=held_out,
        overwrite=overwrite,
        **_training(own),
    )
