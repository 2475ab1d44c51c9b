"""Sections of a study's report: set-points, the anchor dial, spread of seeds, committees, descent."""

from __future__ import annotations

from consilience.reports.markdown import markdown_table, number
from consilience.reports.study_view import StudyView, signed


def set_points(view: StudyView) -> str:
    """Tabulate where each condition's agreement settled."""
    points = view.results["set_points"]
    if not points:
        return ""
    rows = [
        [
            view.names[point["condition"]],
            point["own"] if isinstance(point["own"], str) else " / ".join(number(v, 4) for v in point["own"]),
            number(point["own_spread"], 4),
            signed(point["still_rising"]),
            " / ".join(number(value, 4) for value in point["served"]) or "–",
            number(point["served_spread"], 4),
        ]
        for point in points
    ]
    text = (
        "## Set-points\n\nAgreement at the end of the training: with the own target on held-out corpus rows, "
        "and with the serving model after the rotation. A set-point is a claim only where the curve is flat: "
        '"still rising" is by how much it grew over the last quarter of the readings. Different targets aren\'t '
        "comparable in the first column."
    )
    headers = ["condition", "own target", "spread", "still rising", "serving model", "spread"]
    return "\n\n".join([text, markdown_table(headers, rows), *view.image("set-points", "Agreement over the training")])


def anchor_dial(view: StudyView) -> str:
    """Tabulate agreement against retrieval by anchor strength."""
    dial = view.results["dial"]
    if not dial:
        return ""
    rows = [
        [
            view.names[entry["condition"]],
            "free" if entry["relational"] else number(entry["anchor_strength"], 4),
            number(entry["agreement"], 4),
            number(entry["recall_at_1_served"], 4),
            number(entry["recall_at_1"], 4),
            number(entry["mean"], 4),
        ]
        for entry in dial
    ]
    found = view.results["dial_correlations"]
    rho = ", ".join(
        f"{label} {signed(found[key], 2)}"
        for key, label in (
            ("agreement", "agreement"),
            ("recall_at_1_served", "R@1 against the serving model"),
            ("recall_at_1", "R@1 alone"),
            ("mean", "mean score"),
        )
    )
    text = (
        "## Anchor dial\n\nConditions by absolute-anchor strength: the share of the loss, on the first batch, that "
        "pulls each row onto its target with nothing to oppose. All agreements are read after the rotation; means "
        f"of the seeds. Rank correlation of anchor strength, over {found['conditions']} conditions, with: {rho}."
    )
    headers = ["condition", "anchor", "agreement", "R@1, serving", "R@1, alone", "mean"]
    return "\n\n".join([text, markdown_table(headers, rows), *view.image("dial", "The anchor dial")])


def spread(view: StudyView) -> str:
    """Tabulate how much seeds differ."""
    entries = view.results["across_seeds"]
    if not entries:
        return ""
    rows = [
        [
            view.names[entry["condition"]],
            *(number(entry[key], 4) for key in ("mean", "stsb-dev", "recall_at_1", "agreement")),
            number(entry["effective_rank"], 1),
            number(entry["rotated_cosine"], 4),
        ]
        for entry in entries
    ]
    count = max(len(entry["seeds"]) for entry in entries)
    headers = ["condition", "mean", "STS-B dev", "R@1", "agreement", "effective rank", "cosine of two seeds"]
    return (
        f"## Across seeds\n\nLargest minus smallest of {count} seeds, and the mean cosine of two seeds' rotated "
        f"rows. A spread of so few seeds is itself uncertain: ratios of spreads are hints.\n\n"
        f"{markdown_table(headers, rows)}"
    )


def committees(view: StudyView) -> str:
    """Tabulate the targets before training and what their students became."""
    table = view.results["committees"]
    if not table["rows"]:
        return ""
    rows = [
        [
            view.names[row["condition"]] if len(view.names) > 1 else row["target"],
            number(row["dimensions"]),
            number(row["effective_rank"], 1),
            number(row["self_cosine"]),
            number(row["agreement"]),
            number(row["mean"], 4),
            number(row["recall_at_1"], 4),
        ]
        for row in table["rows"]
    ]
    headers = ["condition", "width", "effective rank", "self-cosine", "members' agreement", "mean", "R@1"]
    parts = [
        "## Targets, before any training\n\nEffective rank, self-cosine and the mean cosine between a committee's "
        "aligned members, beside the mean score of the students.",
        markdown_table(headers, rows),
    ]
    if table["predictions"]:
        parts.append(
            "Did they predict the students? Rank correlation over targets with the students' mean score:\n\n"
            + markdown_table(
                ["objective, student", "property of the target", "Spearman", "targets (n)"],
                [
                    [
                        f"{entry['objective']}, {entry['student']}",
                        entry["of"].replace("_", " "),
                        signed(entry["rho"], 2),
                        number(entry["targets"]),
                    ]
                    for entry in table["predictions"]
                ],
            )
        )
    return "\n\n".join([*parts, *view.image("committees", "Effective rank and students")])


def descent(view: StudyView) -> str:
    """Tabulate and draw how the loss's terms fell."""
    entries = [entry for entry in view.results["descent"] if entry["terms"]]
    if not entries:
        return ""
    shown = [name for name in ("infonce", "mimicry", "affinity", "cosine") if name in entries[0]["terms"]]
    rows = []
    for entry in entries:
        line = [view.names[entry["condition"]]]
        for name in shown:
            term = entry["terms"].get(name)
            share = term and term["early_share"]
            line.append(
                "–"
                if term is None
                else f"{term['first']:.3f} → {term['last']:.3f}" + (f" ({share:.0%})" if share is not None else "")
            )
        rows.append(line)
    text = (
        "## Descent, term by term\n\nEvery term is logged on every run, in the loss or not. First value → last, "
        f"and which share of the fall the first {entries[0]['early_step']:.0%} of the steps did; single "
        "batches are noisy. In the plots the loss's own terms are thick."
    )
    pictures = [
        line
        for i, name in enumerate(view.names)
        if f"descent-{i}" in view.plots
        for line in (f"### {view.names[name]}", *view.image(f"descent-{i}", f"Descent of {view.names[name]}"))
    ]
    return "\n\n".join(
        [
            text,
            markdown_table(["condition", *shown], rows),
            *view.image("terms", "Terms across conditions"),
            *pictures,
        ]
    )
