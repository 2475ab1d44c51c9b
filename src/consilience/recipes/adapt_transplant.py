"""Transplant: a library of trunk A on trunk B, as it is, with its keys re-aligned, and with its anchors retrained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError, ResumeError
from consilience.core.locks import one_job
from consilience.recipes.adapt import (
    ALIGN_STEPS,
    BATCH_ROWS,
    FIT_LR,
    FIT_STEPS,
    adapt_align,
    adapt_fit,
    load_held_out,
    read_pairs_checked,
)
from consilience.recipes.adapt_trials import (
    Bench,
    Trials,
    finished_study,
    interval,
    paired,
    shown,
    store_study,
    tokenize_all,
)

if TYPE_CHECKING:
    from consilience.adapters.library import AnchorLibrary

_SMALLEST_GAIN = 1e-6  # a share of less says nothing


@one_job
def adapt_transplant(
    source: Any,  # noqa: ANN401 - a path, a name or a loaded model
    target: Any,  # noqa: ANN401
    *,
    library: str | Path,
    pairs: Mapping[str, str | Path | Sequence[tuple[str, str]]],
    out: str | Path,
    native: str | Path | None = None,
    tasks: Sequence[str] = ("sts",),
    data: str | Path | None = None,
    fit_steps: int = FIT_STEPS,
    align_steps: int = ALIGN_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = 1e-3,
    fit_lr: float = FIT_LR,
    seed: int = 0,
    resamples: int = 1_000,
    limit: int | None = None,
    held_out: Sequence[str | Path] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Measure how much of a library's gain another trunk keeps, and what recovers the rest.

    Args:
        source: trunk A, as for :func:`consilience.recipes.adapt.adapt_fit`.
        target: trunk B, of A's shape.
        library: trained on A.
        pairs: pairs by anchor's name, one for each.
        out: folder of results and report.
        native: a library of the same anchors trained on B; trained here, into ``OUT.native``, when not given.
        tasks: what is scored; as for :func:`consilience.recipes.evaluate.evaluate`.
        data: folder with ``sts/*.tsv``; by default the variable CONSILIENCE_DATA.
        fit_steps: of anchors trained here.
        align_steps: of re-aligned keys.
        batch_rows: pairs a batch.
        lr: peak learning rate of the keys.
        fit_lr: peak learning rate of the retrained anchors.
        seed: of what is trained here.
        resamples: of the intervals.
        limit: use only the first rows of each pair file.
        held_out: as for adapt fit.
        overwrite: replace what is at ``out``.

    Returns:
        ``rows`` (bare A, native A, bare B, transplanted, keys re-aligned, retrained), ``shares`` and ``losses``.

    Raises:
        TrunkMismatchError: the library isn't A's, the native one isn't B's, or the trunks have different shapes.
        InputError: both trunks are one, an anchor has no pairs, or the native library has other anchors.

    Source: design, section 7; technical companion, section 5.
    """
    from consilience.adapters.library import load_library
    from consilience.core.artefacts import begin_artefact, output_path
    from consilience.core.placing import require_apart
    from consilience.recipes.evaluate import load_tasks
    from consilience.reports.adapt_markdown import transplant_markdown
    from consilience.training.pair_loop import PairSettings
    from consilience.training.pair_model import open_pair_model

    folder = output_path(out, overwrite=overwrite)
    loaded, _ = load_tasks(tasks, data)
    own = load_library(library)
    if sorted(pairs) != sorted(own.names):
        raise InputError(
            f"adapt transplant: expected pairs for {', '.join(own.names)}, got {', '.join(pairs) or 'none'}. Give "
            "--pairs NAME=FILE once for each anchor"
        )
    theirs = load_library(native) if native is not None else None
    if theirs is not None and sorted(theirs.names) != sorted(own.names):
        raise InputError(
            f"adapt transplant: expected a native library of {', '.join(own.names)}, got one of "
            f"{', '.join(theirs.names)}. Name B's library of these anchors with --native"
        )
    one, other = open_pair_model(source), open_pair_model(target)
    if one.trunk.matches(other.trunk):
        raise InputError("adapt transplant: both trunks are one, so nothing is transplanted. Name another target")
    settings = PairSettings(steps=align_steps, batch_rows=batch_rows, lr=lr, seed=seed)
    tested = load_held_out(held_out)
    corpora = {name: read_pairs_checked(pairs[name], held_out=tested, limit=limit) for name in own.names}
    job = {
        "recipe": "adapt transplant",
        "source": one.identity(),
        "target": other.identity(),
        "library": own.fingerprint(),
        "native": theirs.fingerprint() if theirs is not None else {"steps": fit_steps, "lr": fit_lr, "seed": seed},
        "pairs": {name: corpus.to_json() for name, corpus in corpora.items()},
        "training": settings.identity(),
        "tasks": {task.name: task.sha256 for task in loaded},
        "resamples": resamples,
    }
    require_apart(folder, source, target, library, native, *pairs.values())
    done = finished_study(folder, job, overwrite=overwrite)
    if done is not None:
        return done
    home = Bench(one, [], settings, loaded)
    away = Bench(other, tokenize_all(other, corpora, seed=seed), settings, loaded)
    # Attaching first refuses libraries of other trunks and a target of another shape before anything is written.
    home.attached(load_library(library), lambda handle: {})
    away.attached(load_library(library), lambda handle: {}, force=True)
    if theirs is not None:
        away.attached(theirs, lambda handle: {})
    chosen = native if native is not None else folder.with_name(folder.name + ".native")
    if native is None:  # first: what is in the way of it shows before any trial
        options = {"batch_rows": batch_rows, "seed": seed, "limit": limit, "held_out": held_out}
        fit, align = {"steps": fit_steps, "lr": fit_lr}, {"steps": align_steps, "lr": lr}
        _train_native(other, own, pairs, Path(chosen), {**fit, **options}, {**align, **options}, overwrite=overwrite)
    work, _ = begin_artefact(folder, job, overwrite=overwrite)
    trials = Trials(work)
    found = {
        "bare source": trials.run("bare-source", lambda f: home.score_bare()),
        "native on source": trials.run(
            "native-source", lambda f: home.attached(load_library(library), lambda handle: home.score())
        ),
        "bare target": trials.run("bare-target", lambda f: away.score_bare()),
        "transplanted (forced)": trials.run(
            "transplanted", lambda f: away.attached(load_library(library), lambda handle: away.score(), force=True)
        ),
        "keys re-aligned (forced)": trials.run("keys", lambda f: away.aligned(load_library(library), f, force=True)),
    }
    found["anchors retrained"] = trials.run(
        "retrained", lambda f: away.attached(load_library(chosen), lambda handle: away.score())
    )
    draws = {"seed": seed, "resamples": resamples}
    rows = []
    for label, trial in found.items():
        low, high = interval(trial, loaded, **draws)
        trunk = one.name if label.endswith("source") else other.name
        rows.append({"label": label, "trunk": trunk, **shown(trial), "low": low, "high": high})
    scores = [found[label]["score"] for label in found]
    results = {
        "rows": rows,
        "shares": transplant_shares(*scores),
        "differences": {
            "retrained over transplanted": paired(
                found["anchors retrained"], found["transplanted (forced)"], loaded, **draws
            ),
            "keys over transplanted": paired(
                found["keys re-aligned (forced)"], found["transplanted (forced)"], loaded, **draws
            ),
            "retrained over keys": paired(
                found["anchors retrained"], found["keys re-aligned (forced)"], loaded, **draws
            ),
        },
    }
    return store_study(folder, job, results, transplant_markdown(results))


def transplant_shares(
    bare_source: float, native_source: float, bare_target: float, transplanted: float, keys: float, retrained: float
) -> dict[str, float | None]:
    """Return what is kept of the gain, and what the keys' and the anchors' parts of the loss are.

    Args:
        bare_source: score of trunk A.
        native_source: of A with its library.
        bare_target: of trunk B.
        transplanted: of B with A's library as it is.
        keys: of B with A's anchors and keys aligned on B.
        retrained: of B with anchors of its own.

    Returns:
        ``kept`` (of the gain), ``keys_recover`` and ``anchors_recover`` (of the loss against retrained; they sum to 1);
        None where there is no gain or no loss to share.

    Source: technical companion, section 5.

    Example:
        >>> shares = transplant_shares(.6077, .7287, .6031, .6863, .6987, .7294)
        >>> {name: round(share, 3) for name, share in shares.items()}
        {'kept': 0.688, 'keys_recover': 0.288, 'anchors_recover': 0.712}
    """
    gain, loss = native_source - bare_source, retrained - transplanted
    return {
        "kept": (transplanted - bare_target) / gain if gain > _SMALLEST_GAIN else None,
        "keys_recover": (keys - transplanted) / loss if loss > _SMALLEST_GAIN else None,
        "anchors_recover": (retrained - keys) / loss if loss > _SMALLEST_GAIN else None,
    }


def _train_native(
    model: Any,  # noqa: ANN401 - a PairModel
    own: AnchorLibrary,
    pairs: Mapping[str, str | Path | Sequence[tuple[str, str]]],
    out: Path,
    fit: Mapping[str, Any],
    align: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Train the same anchors and their keys on the target, each resumable on its own.

    With ``overwrite`` another job's result gives way; this job's own, of a killed call, is kept.
    """

    def made(train: Callable[..., object], *args: Any, **options: Any) -> None:  # noqa: ANN401
        try:
            train(*args, **options)
        except ResumeError:
            if not overwrite:
                raise
            train(*args, overwrite=True, **options)

    anchors = []
    for name in own.names:
        place = out.with_name(f"{out.name}-{name}")
        hidden = own.anchor(name).config.hidden
        made(adapt_fit, model, pairs=pairs[name], name=name, out=place, hidden=hidden, **fit)
        anchors.append(place)
    made(adapt_align, model, anchors, pairs=pairs, out=out, routing_temperature=own.temperature, **align)
