"""Roster: which anchors a library should have, by greedy forward selection against a random arm; and the sweep.

Selection reads STS-B dev and nothing else. Every trial aligns its own keys on the same pairs, so trials differ in their
anchors alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.locks import one_job
from consilience.recipes.adapt import ALIGN_STEPS, BATCH_ROWS, join_libraries, load_held_out, read_pairs_checked
from consilience.recipes.adapt_trials import (
    Bench,
    Trials,
    finished_study,
    interval,
    load_selection,
    paired,
    shown,
    store_study,
    tokenize_all,
)

if TYPE_CHECKING:
    from consilience.adapters.library import AnchorLibrary
    from consilience.evaluation.sts import StsTask

CONTROL = "random-arm"
TRIAL_READINGS = 1  # of the held-out pairs' gauges, besides the first: a trial is judged on the selection task
Pairs = Mapping[str, str | Path | Sequence[tuple[str, str]]]


@one_job
def adapt_roster(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    candidates: Sequence[str | Path],
    *,
    pairs: Pairs,
    out: str | Path,
    steps: int = ALIGN_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = 1e-3,
    seed: int = 0,
    data: str | Path | None = None,
    resamples: int = 1_000,
    most: int | None = None,
    limit: int | None = None,
    held_out: Sequence[str | Path] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Select a library's anchors greedily; each must beat a random, untrained arm of its size.

    First the amplitude decomposition of all candidates on the bare trunk. Then, round by round, every candidate left
    and a random arm join the members on trial. A candidate clears when its collective is better than the random arm's
    (the whole 95% interval of the paired difference is above 0) and than the members alone. The best that clears joins;
    the selection halts when none does.

    Args:
        student: as for :func:`consilience.recipes.adapt.adapt_fit`.
        candidates: folders made by adapt fit.
        pairs: pairs by candidate's name, one for each.
        out: folder of results and report.
        steps: of each trial's key alignment.
        batch_rows: pairs a batch.
        lr: peak learning rate of the keys.
        seed: of random arms, batches and draws.
        data: folder with ``sts/stsb-dev.tsv``; by default the variable CONSILIENCE_DATA.
        resamples: of the intervals.
        most: members at most.
        limit: use only the first rows of each pair file.
        held_out: as for adapt fit.
        overwrite: replace what is at ``out``.

    Returns:
        ``preflight``, ``rounds``, ``members``, ``halted`` (why), ``bare`` and ``selection``.

    Raises:
        InputError: no STS-B dev, a candidate without pairs, or one called like the control.
        TrunkMismatchError: a candidate belongs to another trunk.

    Source: design, sections 7 and 11 (capacity control).
    """
    from consilience.adapters.library import load_library
    from consilience.core.artefacts import begin_artefact, output_path
    from consilience.core.placing import require_apart
    from consilience.reports.adapt_markdown import roster_markdown
    from consilience.training.pair_loop import PairSettings
    from consilience.training.pair_model import open_pair_model

    folder = output_path(out, overwrite=overwrite)
    task = load_selection(data)
    library = join_libraries([load_library(path) for path in candidates])
    _require_pairs(library, pairs)
    if CONTROL in library.names:
        raise InputError(f"adapt roster: {CONTROL} is the control's name. Train the candidate under another")
    settings = PairSettings(steps=steps, batch_rows=batch_rows, lr=lr, seed=seed, gauge_readings=TRIAL_READINGS)
    tested = load_held_out(held_out)
    corpora = {name: read_pairs_checked(pairs[name], held_out=tested, limit=limit) for name in library.names}
    model = open_pair_model(student)
    job = {
        "recipe": "adapt roster",
        "model": model.identity(),
        "candidates": {name: library.subset([name]).fingerprint() for name in library.names},
        "pairs": {name: corpus.to_json() for name, corpus in corpora.items()},
        "training": settings.identity(),
        "selection": {"task": task.name, "sha256": task.sha256, "resamples": resamples},
        "most": most,
    }
    require_apart(folder, student, *candidates, *pairs.values())
    done = finished_study(folder, job, overwrite=overwrite)
    if done is not None:
        return done
    bench = Bench(model, tokenize_all(model, corpora, seed=seed), settings, [task])
    preflight = bench.attached(library, lambda handle: _preflight(handle, bench))  # refuses another trunk, too
    work, _ = begin_artefact(folder, job, overwrite=overwrite)
    results = _select(bench, library, Trials(work), task, seed=seed, resamples=resamples, most=most)
    results = {**results, "preflight": preflight, "selection": job["selection"], "training": job["training"]}
    return store_study(folder, job, results, roster_markdown(results))


def _preflight(handle: Any, bench: Bench) -> dict[str, Any]:  # noqa: ANN401 - a Handle
    """Return how the bare trunk's states would share their amplitude among all candidates, at their start keys."""
    from consilience.adapters.masks import OFF
    from consilience.training.key_alignment import read_keys, start_keys

    start_keys(handle, bench.model, bench.domains)
    return read_keys(handle, bench.model, bench.domains, OFF).to_json()


def _select(
    bench: Bench,
    library: AnchorLibrary,
    trials: Trials,
    task: StsTask,
    *,
    seed: int,
    resamples: int,
    most: int | None,
) -> dict[str, Any]:
    members: list[str] = []
    bare = current = trials.run("bare", lambda folder: bench.score_bare())
    rounds: list[dict[str, Any]] = []
    halted = "every candidate joined"
    limit = len(library.names) if most is None else min(most, len(library.names))
    draws = {"seed": seed, "resamples": resamples}
    while len(members) < limit:
        number = len(rounds) + 1
        control = trials.run(f"{number}-{CONTROL}", partial(bench.aligned, _with_control(library, members, seed)))
        entries = []
        best: tuple[float, str, dict[str, Any]] | None = None
        for name in (name for name in library.names if name not in members):
            trial = trials.run(f"{number}-{name}", partial(bench.aligned, library.subset([*members, name])))
            over_control = paired(trial, control, [task], **draws)
            over_current = paired(trial, current, [task], **draws)
            clears = over_control["low"] > 0 and over_current["difference"] > 0
            low, high = interval(trial, [task], **draws)
            entries.append(
                {
                    "name": name,
                    **shown(trial),
                    "low": low,
                    "high": high,
                    "over_control": over_control,
                    "over_current": over_current,
                    "clears": clears,
                }
            )
            if clears and (best is None or trial["score"] > best[0]):
                best = (trial["score"], name, trial)
        chosen = best[1] if best is not None else None
        rounds.append(
            {
                "members": list(members),
                "current": current["score"],
                "control": {**shown(control), "over_current": paired(control, current, [task], **draws)},
                "trials": entries,
                "chosen": chosen,
            }
        )
        if best is None:
            halted = f"no candidate cleared the random arm in round {number}"
            break
        members.append(best[1])
        current = best[2]
    else:
        if most is not None and len(members) < len(library.names):
            halted = f"--most {most} reached"
    return {"members": members, "halted": halted, "rounds": rounds, "bare": shown(bare)}


def _with_control(library: AnchorLibrary, members: Sequence[str], seed: int) -> AnchorLibrary:
    """Return the members and a random, untrained arm of a candidate's size."""
    from consilience.adapters.anchor import Anchor
    from consilience.core.seeds import seed_from_name

    part = library.subset(list(members))
    config = library.anchor(library.names[0]).config
    arm = Anchor(
        library.width,
        library.block_count,
        config,
        seed=seed_from_name(f"{CONTROL}/{len(members)}", seed),
        random_output=True,
    )
    part.add(CONTROL, arm, seed=seed)
    return part


@one_job
def adapt_sweep(
    student: Any,  # noqa: ANN401 - a path, a name or a loaded model
    library: str | Path,
    *,
    pairs: Pairs,
    out: str | Path,
    temperatures: Sequence[float] = (0.10, 0.05, 0.02),
    seeds: int = 1,
    steps: int = ALIGN_STEPS,
    batch_rows: int = BATCH_ROWS,
    lr: float = 1e-3,
    data: str | Path | None = None,
    resamples: int = 1_000,
    limit: int | None = None,
    held_out: Sequence[str | Path] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Align a library's keys at several routing temperatures and score each on STS-B dev.

    Args:
        student: as for :func:`consilience.recipes.adapt.adapt_fit`.
        library: whose anchors are used; its keys are trained anew.
        pairs: pairs by anchor's name, one for each.
        out: folder of results and report.
        temperatures: T of the dispatch.
        seeds: how many alignments a temperature.
        steps: of each alignment.
        batch_rows: pairs a batch.
        lr: peak learning rate of the keys.
        data: folder with ``sts/stsb-dev.tsv``; by default the variable CONSILIENCE_DATA.
        resamples: of the intervals.
        limit: use only the first rows of each pair file.
        held_out: as for adapt fit.
        overwrite: replace what is at ``out``.

    Returns:
        ``rows``: by temperature the seeds' scores, their mean, the mean share sum and separation (own domain's share
        over the others').

    Raises:
        InputError: a temperature that isn't above 0, one given twice, no STS-B dev, an anchor without pairs.
        TrunkMismatchError: the library belongs to another trunk.

    Source: design, sections 7 and 11 ("sharper routing is worse").
    """
    import numpy as np

    from consilience.adapters.dispatch import SMALLEST_TEMPERATURE
    from consilience.adapters.library import load_library
    from consilience.core.artefacts import begin_artefact, output_path
    from consilience.core.placing import require_apart
    from consilience.reports.adapt_markdown import sweep_markdown
    from consilience.training.pair_loop import PairSettings
    from consilience.training.pair_model import open_pair_model

    folder = output_path(out, overwrite=overwrite)
    above = all(SMALLEST_TEMPERATURE <= temperature < math.inf for temperature in temperatures)
    if not temperatures or len(set(temperatures)) != len(temperatures) or not above or seeds < 1:
        raise InputError(
            f"adapt sweep: expected different temperatures above 0 and at least one seed, got {list(temperatures)} and "
            f"{seeds}. Change --temperature or --seeds"
        )
    task = load_selection(data)
    anchors = load_library(library)
    _require_pairs(anchors, pairs)
    settings = PairSettings(steps=steps, batch_rows=batch_rows, lr=lr, gauge_readings=TRIAL_READINGS)
    tested = load_held_out(held_out)
    corpora = {name: read_pairs_checked(pairs[name], held_out=tested, limit=limit) for name in anchors.names}
    model = open_pair_model(student)
    job = {
        "recipe": "adapt sweep",
        "model": model.identity(),
        "anchors": {name: anchors.subset([name]).fingerprint() for name in anchors.names},
        "pairs": {name: corpus.to_json() for name, corpus in corpora.items()},
        "training": settings.identity(),
        "temperatures": list(temperatures),
        "seeds": seeds,
        "selection": {"task": task.name, "sha256": task.sha256, "resamples": resamples},
    }
    require_apart(folder, student, library, *pairs.values())
    done = finished_study(folder, job, overwrite=overwrite)
    if done is not None:
        return done
    bench = Bench(model, tokenize_all(model, corpora, seed=0), settings, [task])
    bench.attached(anchors, lambda handle: {})  # refuses another trunk before anything is written
    work, _ = begin_artefact(folder, job, overwrite=overwrite)
    trials, rows = Trials(work), []
    for temperature in temperatures:
        found = []
        for seed in range(seeds):

            def align(place: Path, t: float = temperature, seed: int = seed) -> dict[str, Any]:
                trial = join_libraries([load_library(library)], temperature=t)
                return bench.aligned(trial, place, settings=replace(settings, seed=seed))

            found.append(trials.run(f"t{temperature!r}-s{seed}", align))
        ratios = [r["ratio"] for trial in found for r in trial["reads"]["ratios"].values()]
        sums = [read["share_sum"] for trial in found for read in trial["reads"]["own"].values()]
        rows.append(
            {
                "temperature": temperature,
                "scores": [trial["score"] for trial in found],
                "mean": float(np.mean([trial["score"] for trial in found])),
                "intervals": [list(interval(trial, [task], seed=0, resamples=resamples)) for trial in found],
                "separation": float(np.mean(ratios)) if ratios else None,
                "share_sum": float(np.mean(sums)),
                "starved": sorted({name for trial in found for name in trial["reads"]["starved"]}),
            }
        )
    results = {"rows": rows, "selection": job["selection"], "seeds": seeds}
    return store_study(folder, job, results, sweep_markdown(results))


def _require_pairs(library: AnchorLibrary, pairs: Pairs) -> None:
    if sorted(pairs) != sorted(library.names):
        raise InputError(
            f"adapt: expected pairs for {', '.join(library.names)}, got {', '.join(pairs) or 'none'}. Give --pairs "
            "NAME=FILE once for each anchor"
        )
