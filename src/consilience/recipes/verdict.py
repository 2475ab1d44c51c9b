"""How a training ends: what the student keeps of its target, beside a table that needs no training, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SAME = 0.01  # assumed: about a standard error of the share on 200 texts
STEEP = 0.02  # assumed: of the neighbours, gained in the last third of a training whose rate falls to 0


def judge(
    *, static: float | None, held_out: int, readings: Sequence[Mapping[str, float]], random: bool
) -> dict[str, Any]:
    """Judge a training by the share of its target's nearest neighbours that the student keeps.

    Args:
        static: the share that the table keeps; None where there is none.
        held_out: rows that both were read on.
        readings: the gauges while it trained, in order.
        random: it started from random weights.

    Returns:
        The numbers, and ``verdict``: "below static", "rising" or "ok".
    """
    kept = readings[-1]["neighbours_kept"]
    gained = kept - readings[-1 - max(len(readings) // 3, 1)]["neighbours_kept"] if len(readings) > 2 else 0.0
    below = static is not None and kept < static - SAME
    return {
        "verdict": "below static" if below else "rising" if gained > STEEP else "ok",
        "neighbours_kept": round(kept, 4),
        "static_neighbours_kept": None if static is None else round(static, 4),
        "held_out_rows": held_out,
        "gained_last": round(gained, 4),
        "random_start": random,
    }


def describe(found: Mapping[str, Any], *, parameters: int, operations: float | None, length: str) -> str:
    """Say a verdict in one line, with what mends it.

    Args:
        found: of :func:`judge`.
        parameters: of the student.
        operations: its share of the reference teacher's operations a token, or None where that's unknown.
        length: the training's, as its option: "--minutes 2".

    Example:
        >>> numbers = {"neighbours_kept": 0.71, "static_neighbours_kept": 0.52, "held_out_rows": 200}
        >>> print(describe({**numbers, "verdict": "ok"}, parameters=17_000_000, operations=0.5, length="--minutes 2"))
        keeps 71% of its target's ten nearest neighbours on 200 held-out texts (a static table of the same target, which
        needs no training: 52%), with 17.0 million parameters and 0.50 of the reference teacher's operations a token
    """
    beside = ""
    if found["static_neighbours_kept"] is not None:
        share = found["static_neighbours_kept"]
        beside = f" (a static table of the same target, which needs no training: {share:.0%})"
    cost = "" if operations is None else f" and {operations:.2f} of the reference teacher's operations a token"
    text = (
        f"keeps {found['neighbours_kept']:.0%} of its target's ten nearest neighbours on {found['held_out_rows']} "
        f"held-out texts{beside}, with {parameters / 1e6:.1f} million parameters{cost}"
    )
    if found["verdict"] == "ok":
        return text
    option, _, amount = length.partition(" ")
    mend = f"run the same command with {option} {float(amount) * 3:g} --overwrite"
    if found["verdict"] == "rising":
        return f"{text}. It still rose by {found['gained_last']:.1%} in the last third: {mend}"
    if found["random_start"]:
        mend = "leave out --student, so that it starts from a teacher's layers, and add --overwrite"
    return f"{text}. NOT WORTH USING, since the table is better: {mend}"


def judge_run(
    evaluation: Mapping[str, Any], trained: Mapping[str, Any] | None, *, reference: str | None
) -> dict[str, Any] | None:
    """Judge a run by its tasks, beside the reference teacher and the static student of the same teachers.

    Args:
        evaluation: with ``models``: name, mean, parameters, speed.
        trained: the training's own verdict.
        reference: name of the reference teacher; None in a frame that is nobody's.

    Returns:
        The shares of the reference's mean score, and all of it in words as ``said``; None without anything to compare.
    """
    models = {model["model"]: model for model in evaluation["models"]}
    student, static = models["student"], models.get("static")
    teacher = models.get(str(reference))
    if teacher is None and static is None:
        return None
    found: dict[str, Any] = {"tasks": len(student["mean_of"])}
    said = []
    if teacher is not None:
        found["kept"] = round(student["mean"] / teacher["mean"], 4)
        said.append(f"keeps {found['kept']:.1%} of {reference}'s mean score over {found['tasks']} tasks")
        speeds = [model.get("sentences_per_second") for model in (student, teacher)]
        if all(speeds):
            found["speed"] = round(speeds[0]["median"] / speeds[1]["median"], 2)
            said.append(f"at {found['speed']:.1f} times its speed")
        if student["parameters"] and teacher["parameters"]:
            found["size"] = round(student["parameters"] / teacher["parameters"], 2)
            said.append(f"with {found['size']:.2f} of its parameters")
    if trained is not None:
        said.append(f"and {trained['neighbours_kept']:.0%} of its target's nearest neighbours on held-out texts")
    line = "the student " + ", ".join(said)
    if static is not None:
        found["static"] = round(static["mean"], 4)
        line += (
            f"; its mean is {student['mean']:.3f}, that of a static student of the same teachers, which needs no "
            f"training, {static['mean']:.3f}"
        )
        if student["mean"] < static["mean"]:
            line += ". NOT WORTH USING: take the static student, or give [train] three times the minutes"
    if trained is not None and trained["verdict"] == "rising":
        line += ". It was still rising: give [train] three times the minutes"
    return {**found, "said": line}
