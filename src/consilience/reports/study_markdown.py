"""A study's report in Markdown: every cell, the frame law, and how sure the comparisons are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consilience.reports.markdown import markdown_table, number, task_order
from consilience.reports.study_findings import anchor_dial, committees, descent, set_points, spread
from consilience.reports.study_view import StudyView, lookup

Json = Mapping[str, Any]
_MATRIX_LIMIT = 14  # conditions; a larger matrix of differences is in results.json alone
_GEOMETRY = (("effective_rank", 1), ("self_cosine", 3), ("spread_cv", 3))


def render_study(results: Json, *, plots: Mapping[str, str]) -> str:
    """Write the report of a study.

    Args:
        results: what ``results.json`` holds (recipes/study_report.py).
        plots: addresses of the plots that there are.

    Returns:
        CommonMark with tables.
    """
    view = StudyView(results, plots)
    sections = [
        _summary(view),
        _gauges(view),
        _tasks(view),
        _law(view),
        set_points(view),
        anchor_dial(view),
        spread(view),
        _paired(view),
        _single(view),
        committees(view),
        descent(view),
        _failures(view),
        _stages(view),
        _reproduce(view),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(view: StudyView) -> str:
    """Say what was run."""
    results = view.results
    seeds = sorted({cell["seed"] for cell in results["cells"]})
    failed = len(results["cells"]) - len(view.measured)
    steps = sorted({cell["training"]["steps"] for cell in view.measured})
    shared = [part for part in ("objective", "target", "student") if len(view.values(part)) == 1]
    lines = [
        f"# {results['name']}",
        "",
        f"{len(results['cells'])} trainings: {len(view.values('objective'))} objectives, "
        f"{len(view.values('target'))} targets, {len(view.values('student'))} students, seeds "
        f"{', '.join(map(str, seeds))}; {', '.join(number(step) for step in steps) or 'no'} steps each, on "
        f"{number(results['corpus']['rows'])} texts." + (f" **{failed} failed.**" if failed else ""),
    ]
    if shared and view.measured:
        lines += ["", "All share " + ", ".join(f"the {part} `{view.values(part)[0]}`" for part in shared) + "."]
    if results["leader"] is not None:
        best = next(entry for entry in results["conditions"] if entry["name"] == results["leader"])
        lines += [
            "",
            f"Best on STS-B dev, the only task that selects: **{view.names[results['leader']]}** "
            f"({best['stsb-dev']:.4f}; mean of the reported tasks {best['mean']:.4f}).",
        ]
    if results["skipped_tasks"]:
        lines += ["", f"Not measured, because their data isn't here: {', '.join(results['skipped_tasks'])}."]
    return "\n".join(lines)


def _gauges(view: StudyView) -> str:
    """Tabulate every condition's gauges, one number a seed."""
    if not view.measured:
        return ""
    over = len(view.measured[0]["measures"]["mean_of"])
    columns, headers = [("mean", 4)], ["condition", f"mean of {over}"]
    if view.measured[0]["measures"]["selection"]:
        columns, headers = [*columns, ("selection.stsb-dev.score", 4)], [*headers, "STS-B dev"]
    if view.results["retrieval"] is not None:
        columns += [("retrieval.recall_at_1.score", 4), ("retrieval.recall_at_10.score", 4)]
        headers += ["R@1", "R@10"]
    columns += [(f"geometry.{key}", digits) for key, digits in _GEOMETRY]
    headers += ["effective rank", "self-cosine", "spread CV"]
    rows = view.rows(*columns)
    for name, found in view.results["teachers"].items():
        values = [lookup(found, path) for path, _ in columns]
        digits = [places for _, places in columns]
        rows.append([f"*{name}* (teacher)", *(number(v, d) for v, d in zip(values, digits, strict=True))])
    text = (
        "## Gauges\n\nOne number a seed. Spearman of cosine; STS-B dev selects and is never part of the mean. "
        "Effective rank is the participation ratio, spread CV is read beside it."
    )
    if view.results["retrieval"] is not None:
        facts = view.results["retrieval"]
        text += (
            f" R@1 and R@10: {number(facts['queries'])} texts, each to find another text of its group among "
            f"{number(facts['queries'])}; none of them was trained on."
        )
    return "\n\n".join([text, markdown_table(headers, rows), *view.image("scores", "Mean scores by seed")])


def _tasks(view: StudyView) -> str:
    """Tabulate every cell's task scores with intervals."""
    if not view.measured:
        return ""
    tasks = task_order(view.measured[0]["measures"])
    rows = []
    for name in view.names:
        for cell in view.cells_of(name):
            found = cell["measures"]["tasks"]
            cells = [f"{found[t]['score']:.4f} [{found[t]['low']:.3f}, {found[t]['high']:.3f}]" for t in tasks]
            measures = cell["measures"]
            mean = f"{measures['mean']:.4f} [{measures['mean_low']:.3f}, {measures['mean_high']:.3f}]"
            rows.append([f"{view.names[name]}, seed {cell['seed']}", mean, *cells])
    return (
        f"### Tasks\n\n95% bootstrap intervals over the pairs, {number(view.results['resamples'])} resamples, the "
        f"same draws for every cell.\n\n{markdown_table(['cell', 'mean', *tasks], rows)}"
    )


def _law(view: StudyView) -> str:
    """Tabulate the absolute gauges before and after the rotation into the serving model's frame."""
    facts = view.results["law"]
    if facts is None or not view.measured:
        return ""
    rows = []
    for name in view.names:
        cells = view.cells_of(name)
        laws = [cell["measures"].get("law", {}) for cell in cells]
        rows.append(
            [
                view.names[name],
                str(laws[0].get("family", "–")),
                *(
                    " / ".join(_before(law, key) for law in laws) + " → " + view.by_seed(name, f"law.after.{key}", 3)
                    for key in ("cosine", "recall_at_1", "recall_at_10")
                ),
                view.by_seed(name, "law.null.cosine", 3),
                " / ".join(str(law.get("verdict", "refused")) for law in laws),
            ]
        )
    text = (
        f"## Frame law\n\nAgreement with {facts['into']} and retrieval from its gallery of "
        f"{number(facts['rows']['held_out'])} held-out texts, before → after one orthogonal rotation fitted to "
        f'{number(facts["rows"]["fit"])} other texts; no student was trained on either. "Refused": the student\'s '
        "frame is nobody's, and the gauge would read a false floor. The null: a rotation fitted to shuffled pairs."
    )
    headers = ["condition", "family", "agreement", "R@1", "R@10", "null", "verdict"]
    return f"{text}\n\n{markdown_table(headers, rows)}"


def _before(law: Json, key: str) -> str:
    before = law.get("before")
    return "refused" if isinstance(before, str) else number(lookup(before, key), 3)


def _paired(view: StudyView) -> str:
    """Tabulate the paired tests: the leader against the others, and everybody against everybody."""
    parts = []
    against = view.results["against_leader"]
    note = (
        "The same pairs are resampled for both sides; a condition's score is the mean of its seeds: the interval "
        "covers the choice of pairs, not of seeds, and the differences seed by seed stand beside it."
    )
    if against:
        parts.append(
            f"## Paired comparisons\n\n{note} Holm's p is adjusted for the {against[0]['family']} comparisons of "
            f"the leader.\n\n{_comparisons(view, against)}"
        )
    pairs = view.results["comparisons"]
    if pairs and len(view.names) <= _MATRIX_LIMIT:
        parts.append(
            ("" if against else f"## Paired comparisons\n\n{note}\n\n")
            + f"### Everybody against everybody\n\nMean score of the row minus that of the column; bold: Holm's p "
            f"below .05 over all {pairs[0]['family']} comparisons; an asterisk: the seeds disagree about the sign."
            f"\n\n{_matrix(view, pairs)}"
        )
    return "\n\n".join(parts)


def _comparisons(view: StudyView, pairs: Sequence[Json]) -> str:
    rows = [
        [
            f"{view.names[pair['first']]} − {view.names[pair['second']]}",
            f"{pair['difference']:+.4f} [{pair['low']:+.4f}, {pair['high']:+.4f}]",
            " / ".join(f"{value:+.4f}" for value in pair["by_seed"].values()) or "–",
            f"{pair['p_value']:.4f}",
            f"{pair['p_holm']:.4f}",
            "yes" if pair["equal_cost"] else "no",
        ]
        for pair in pairs
    ]
    return markdown_table(["conditions", "difference", "by seed", "p", "Holm's p", "equal cost"], rows)


def _matrix(view: StudyView, pairs: Sequence[Json]) -> str:
    found = {}
    for pair in pairs:
        text = f"{pair['difference']:+.4f}" + ("" if pair["seeds_agree"] else "*")
        other = f"{-pair['difference']:+.4f}" + ("" if pair["seeds_agree"] else "*")
        strong = pair["p_holm"] < 0.05
        found[pair["first"], pair["second"]] = f"**{text}**" if strong else text
        found[pair["second"], pair["first"]] = f"**{other}**" if strong else other
    rows = [[view.names[a], *(found.get((a, b), "") for b in view.names)] for a in view.names]
    return markdown_table(["", *view.names.values()], rows)


def _single(view: StudyView) -> str:
    """Tabulate consensus against single teachers."""
    pairs = view.results["single_against_consensus"]
    if not pairs:
        return ""
    rows = [
        [
            pair["kind"],
            f"{view.names[pair['first']]} − {view.names[pair['second']]}",
            {"mean": "mean", "recall_at_1": "R@1"}[pair["metric"]],
            f"{pair['difference']:+.4f} [{pair['low']:+.4f}, {pair['high']:+.4f}]",
            " / ".join(f"{value:+.4f}" for value in pair["by_seed"].values()) or "–",
            f"{pair['p_holm']:.4f}",
            "yes" if pair["equal_cost"] else "no",
        ]
        for pair in pairs
    ]
    headers = ["kind", "consensus − single teacher", "metric", "difference", "by seed", "Holm's p", "equal cost"]
    return (
        "## Consensus against a single teacher\n\nEqual cost: the same steps, the same texts and parameters to "
        "2%; embedding the other teachers isn't counted. The best of each kind is chosen on STS-B dev.\n\n"
        f"{markdown_table(headers, rows)}"
    )


def _failures(view: StudyView) -> str:
    """List the cells without numbers, and why."""
    rows = [
        [f"{cell['objective']}, {cell['target']}, {cell['student']}, seed {cell['seed']}", cell["error"]]
        for cell in view.results["cells"]
        if cell["error"] is not None
    ]
    return f"## Failed cells\n\n{markdown_table(['cell', 'why'], rows)}" if rows else ""


def _stages(view: StudyView) -> str:
    """List the stages with their times."""
    rows = [
        [stage["stage"], stage["status"], number(stage["seconds"], 1), f"`{stage['id']}`"]
        for stage in view.results["stages"]
    ]
    seconds = sum(stage["seconds"] or 0.0 for stage in view.results["stages"])
    return (
        f"## Stages\n\n{seconds / 60:.1f} minutes over all attempts, found banks not counted.\n\n"
        f"{markdown_table(['stage', 'status', 'seconds', 'artefact'], rows)}"
    )


def _reproduce(view: StudyView) -> str:
    """Name the command and the environment."""
    environment = ", ".join(f"{name} {value}" for name, value in view.results["environment"].items())
    return (
        f"## Reproduce\n\n```\n{view.results['command']}\n```\n\n{environment}. Everything above is in "
        "`results.json`; the study as it was run, with its settings, is there too."
    )
