"""Reports of roster, sweep and transplant studies as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def roster_markdown(results: Mapping[str, Any]) -> str:
    """Return the report of a roster selection.

    Args:
        results: of ``adapt_roster``.
    """
    lines = [
        "# Roster",
        "",
        f"Members: {', '.join(results['members']) or 'none'}. Halted: {results['halted']}. Selection read "
        f"{results['selection']['task']} only. The bare trunk scores {results['bare']['score']:.4f}.",
        "",
        "## Amplitude decomposition before the selection",
        "",
    ]
    own = results["preflight"]["own"]
    names = next(iter(own.values()))["names"]
    rows = [[domain, *(f"{s:.4f}" for s in read["shares"]), f"{read['share_sum']:.4f}"] for domain, read in own.items()]
    lines += _table(["texts of", *names, "sum"], rows)
    for number, entry in enumerate(results["rounds"], 1):
        joined = ", ".join(entry["members"]) or "none"
        lines += ["", f"## Round {number} (members: {joined}; score {entry['current']:.4f})", ""]
        control = entry["control"]
        rows = [["random arm", f"{control['score']:.4f}", "", _margin(control["over_current"]), "control"]]
        for trial in entry["trials"]:
            verdict = "joins" if trial["name"] == entry["chosen"] else "clears" if trial["clears"] else "rejected"
            margins = [_margin(trial["over_control"]), _margin(trial["over_current"])]
            rows.append([trial["name"], f"{trial['score']:.4f}", *margins, verdict])
        lines += _table(["arm", "score", "over the random arm", "over the members", ""], rows)
    return "\n".join(lines) + "\n"


def sweep_markdown(results: Mapping[str, Any]) -> str:
    """Return the report of a temperature sweep.

    Args:
        results: of ``adapt_sweep``.
    """
    rows = []
    for row in results["rows"]:
        scores = ", ".join(
            f"{score:.4f} ({low:.4f}..{high:.4f})"
            for score, (low, high) in zip(row["scores"], row["intervals"], strict=True)
        )
        separation = "" if row["separation"] is None else f"{row['separation']:.2f}"
        starved = ", ".join(row["starved"])
        cells = [
            f"{row['temperature']:g}",
            f"{row['mean']:.4f}",
            scores,
            separation,
            f"{row['share_sum']:.4f}",
            starved,
        ]
        rows.append(cells)
    header = ["temperature", "mean", "by seed (95% interval)", "own / others", "share sum", "starved"]
    title = f"Scores: Spearman on {results['selection']['task']}, {results['seeds']} seed(s)."
    return "\n".join(["# Routing temperature", "", title, "", *_table(header, rows)]) + "\n"


def transplant_markdown(results: Mapping[str, Any]) -> str:
    """Return the report of a transplant study.

    Args:
        results: of ``adapt_transplant``.
    """
    rows = [
        [row["label"], row["trunk"], f"{row['score']:.4f}", f"{row['low']:.4f}..{row['high']:.4f}"]
        for row in results["rows"]
    ]
    lines = ["# Transplant", "", *_table(["library", "on trunk", "mean", "95% interval"], rows), ""]
    shares = results["shares"]
    for name, text in (
        ("kept", "Share of the gain that the transplanted library keeps"),
        ("keys_recover", "Share of the loss that re-aligned keys recover (the keys' part)"),
        ("anchors_recover", "Share of the loss that retrained anchors recover beyond that (the anchors' part)"),
    ):
        value = shares[name]
        lines.append(f"- {text}: {'not defined (no gain or no loss)' if value is None else f'{value:.1%}'}")
    return "\n".join(lines) + "\n"


def _margin(found: Mapping[str, float]) -> str:
    return f"{found['difference']:+.4f} ({found['low']:+.4f}..{found['high']:+.4f})"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
