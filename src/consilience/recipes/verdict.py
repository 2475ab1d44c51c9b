"""How a training ends: what the student keeps of its target, beside a table that needs no training, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from consilience.banks.reader import Bank
    from consilience.training.token_store import TokenStore

TABLE_ROWS = 16_384  # assumed: the fit takes a few seconds, and its held-out cosine grows slowly beyond
TABLE_ITERATIONS = 10
_RIDGE = 0.1  # measured on held-out neighbours of 2,000 and 20,000 texts: 1 and .03 are no better
SAME = 0.01  # assumed: about a standard error of the share on 200 texts
STEEP = 0.02  # assumed: of the neighbours, gained in the last third of a training whose rate falls to 0


def fit_table(
    table: NDArray[np.float32] | None,
    store: TokenStore,
    bank: Bank,
    rows: NDArray[np.int64],
    *,
    axes: NDArray[Any] | None,
    vocabulary: int,
) -> NDArray[np.float32]:
    """Fit a table of token vectors to a target in closed form: the static student of the same teachers.

    Args:
        table: (V, d) trained token vectors to begin with; None: a token begins at the mean target of its texts.
        store: the corpus's tokens.
        bank: the target, (n, d_y).
        rows: that it may be fitted to; a sample of them is.
        axes: (d_y, d_y) applied to the target, or None.
        vocabulary: V.

    Returns:
        The table in the target's frame, (V, d_y); texts are means of its rows.
    """
    from consilience.students.table_fit import count_matrix, fit_into_frame, refine_table

    rows = rows[:: max(len(rows) // TABLE_ROWS, 1)][:TABLE_ROWS]
    counts = count_matrix([store[int(row)] for row in rows], vocabulary)

    def targets(start: int, stop: int) -> NDArray[np.float32]:
        return unit_targets(bank, rows[start:stop], axes)

    whole = targets(0, len(rows))
    seen = np.asarray(counts.sum(axis=0), dtype=np.float32).ravel()
    weights = 1e-3 / (1e-3 + seen / seen.sum())  # Arora et al. 2017
    if table is None:
        middle = whole.mean(axis=0)
        # Shrunk towards the mean of all by as much as one text says; a token that no text has stays there, and short.
        means = (counts.T @ (whole - middle)) / (1.0 + seen[:, None]) + 0.1 * middle
        moved = (means * weights[:, None]).astype(np.float32)
    else:
        weighted = (table * weights[:, None]).astype(np.float32)
        moved = (weighted @ fit_into_frame(_means(counts, weighted), whole)).astype(np.float32)
    return refine_table(moved, counts, targets, ridge=_RIDGE, iterations=TABLE_ITERATIONS).table


def unit_targets(bank: Bank, rows: NDArray[np.int64], axes: NDArray[Any] | None) -> NDArray[np.float32]:
    """Return target rows at length 1, turned by ``axes`` where there are any."""
    from consilience.frames.rows import normalise_rows

    unit = normalise_rows(np.asarray(bank[rows]), where=str(bank.path)).astype(np.float32)
    return unit if axes is None else (unit @ axes).astype(np.float32)


def embed_by_table(table: NDArray[np.float32], store: TokenStore, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the unit means (n, d) of the rows' token vectors."""
    from consilience.students.table_fit import count_matrix

    return _means(count_matrix([store[int(row)] for row in rows], len(table)), table)


def _means(counts: Any, table: NDArray[np.float32]) -> NDArray[np.float32]:  # noqa: ANN401 - scipy has no types
    sums = np.asarray(counts @ table, dtype=np.float32)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), dtype=np.float32)


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
