"""The closed-form refinement of a static table on a bank of targets, and its gauges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from consilience.banks.reader import Bank
    from consilience.corpora.text import Corpus

_READ_ROWS = 4096
_FRAME_ROWS = 20_000  # assumed: pairs that the map into the targets' frame is fitted to
_HELD_OUT = 2_000


def check_refinement(rows: int, width: int, dimensions: int | None, target: int) -> None:
    """Refuse what :func:`refine_on_bank` can't do, before anything is embedded.

    Args:
        rows: texts of the bank.
        width: of the unrefined table.
        dimensions: asked for; None for the targets'.
        target: dimensions of the targets.

    Raises:
        InputError: too few texts to map the table into the targets' frame, or a width above the targets'.
    """
    if dimensions is not None and not 1 <= dimensions <= target:
        raise InputError(
            f"static: expected --dimensions from 1 to the targets' {target} with --refine, got {dimensions}. Change or "
            "leave out --dimensions"
        )
    sample = min(rows - _held_out(rows), _FRAME_ROWS)
    if sample < width:
        raise InputError(
            f"static: --refine fits a map of {width} dimensions, which needs as many texts; {sample} of the bank's "
            f"{rows} are for it, the rest is held out. Give a bank of more texts, or leave --refine out"
        )


def _held_out(rows: int) -> int:
    return min(_HELD_OUT, rows // 5)


def refine_on_bank(
    table: NDArray[np.float32],
    words: Tokenizer,
    corpus: Corpus,
    target: Bank,
    dimensions: int | None,
    ridge: float,
    max_length: int,
    seed: int,
) -> tuple[NDArray[np.float32], Literal["principal", "reference"], dict[str, Any]]:
    """Bring a table into the targets' frame and fit it to them; judge it on rows that it wasn't fitted to.

    Args:
        table: (V, d) rows with their weights, in any frame.
        words: its tokenizer, which adds no special tokens.
        corpus: the target's texts.
        target: a bank of unit rows.
        dimensions: width of the result; the target's when None, else principal axes of the embeddings.
        ridge: see :func:`consilience.students.table_fit.refine_table`.
        max_length: tokens that a text is cut to.
        seed: of the row samples.

    Returns:
        The table; whose axes its coordinates are; and the gauges: cosine to the targets before and after, on held-out
        rows, and what the solver says.

    Raises:
        InputError: as of :func:`check_refinement`.
    """
    import numpy as np

    from consilience.core.seeds import rng_from_name
    from consilience.students.table_fit import count_matrix, fit_into_frame, refine_table

    check_refinement(target.rows, table.shape[1], dimensions, target.dimensions)
    cutter = type(words).from_str(words.to_str())
    cutter.enable_truncation(max_length)
    ids = [
        np.array(encoding.ids, dtype=np.int32)
        for texts in corpus.batches(_READ_ROWS)
        for encoding in cutter.encode_batch_fast(texts, add_special_tokens=False)
    ]
    counts = count_matrix(ids, len(table))
    del ids
    order = rng_from_name("static-refine", seed).permutation(target.rows)
    held_out = np.sort(order[: _held_out(target.rows)])
    fitted = np.sort(order[len(held_out) :])
    sample = np.sort(order[len(held_out) : len(held_out) + _FRAME_ROWS])
    table = (table @ fit_into_frame(_embed(counts[sample], table), target[sample])).astype(np.float32)
    before = _cosine(counts[held_out], table, target[held_out])
    fit = refine_table(table, counts[fitted], lambda start, stop: target[fitted[start:stop]], ridge=ridge)
    facts: dict[str, Any] = {
        "target_cosine_before": round(before, 6),
        "target_cosine": round(_cosine(counts[held_out], fit.table, target[held_out]), 6),
        "held_out_rows": len(held_out),
        "iterations": fit.iterations,
        "residual": float(f"{fit.residual:.3g}"),
    }
    if dimensions is None or dimensions == target.dimensions:
        return fit.table, "reference", facts
    embedded = _embed(counts[sample], fit.table).astype(np.float64)
    _, directions = np.linalg.eigh(embedded.T @ embedded)
    turn = directions[:, ::-1][:, :dimensions]
    turn = turn * np.sign(turn[np.abs(turn).argmax(axis=0), np.arange(dimensions)])
    return (fit.table @ turn).astype(np.float32), "principal", facts


def _embed(counts: Any, table: NDArray[np.float32]) -> NDArray[np.float32]:  # noqa: ANN401 - scipy has no types
    import numpy as np

    sums = np.asarray(counts @ table, dtype=np.float32)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12), dtype=np.float32)


def _cosine(counts: Any, table: NDArray[np.float32], targets: NDArray[Any]) -> float:  # noqa: ANN401 - as above
    import numpy as np

    unit = targets.astype(np.float32)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    return float(np.einsum("nd,nd->n", _embed(counts, table), unit).mean())
