"""What is fitted to the targets in closed form before the first step: a new linear head, and the static student beside.

The static student is what a training has to beat; where no layers are to be had it's also the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError
from consilience.core.progress import log
from consilience.recipes.initial_student import STATIC

if TYPE_CHECKING:
    from consilience.banks.reader import Bank
    from consilience.recipes.initial_student import InitialStudent
    from consilience.students.text import TextStudent
    from consilience.training.settings import TrainingSettings
    from consilience.training.token_store import TokenStore

_HEAD_ROWS = 8192  # assumed: 20 rows and more a dimension of the token states
TABLE_ROWS = 16_384  # assumed: the fit takes a few seconds, and its held-out cosine grows slowly beyond
TABLE_ITERATIONS = 10
_RIDGE = 0.1  # measured: within .01 of the best of 1, .3, .1, .03 on held-out neighbours of 2,000 and 20,000 texts


def require_head_rows(start: InitialStudent, rows: int, settings: TrainingSettings) -> None:
    """Refuse, before anything is written, a corpus that a new linear head can't be fitted to."""
    training, hidden = len(_split(rows, settings)[0]), int(start.config["hidden"])
    if training < hidden:
        raise InputError(
            f"distill: a linear head on {hidden} dimensions is fitted to at least as many texts, the corpus has "
            f"{training} to train on. Give more texts, or --head mlp"
        )


def _split(rows: int, settings: TrainingSettings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the training rows and the held-out ones, as the training has them."""
    from consilience.training.gauges import split_held_out

    return split_held_out(rows, seed=settings.seed, most=settings.held_out_rows)


def fit_head(
    start: InitialStudent,
    store: TokenStore,
    bank: Bank,
    axes: NDArray[np.float32] | None,
    settings: TrainingSettings,
) -> None:
    """Set a new linear head on trained layers to the least-squares map onto the targets, from training rows only."""
    from consilience.students.initialise import fit_linear_head

    rows, _ = _split(len(store), settings)
    rows = rows[:: max(len(rows) // _HEAD_ROWS, 1)][:_HEAD_ROWS]
    cosine = fit_linear_head(
        cast("TextStudent", start.module),
        [np.asarray(store[int(row)], dtype=np.int64) for row in rows],
        unit_targets(bank, rows, axes),
        pad=store.pad,
    )
    log(f"distill: the head's least-squares start has target cosine {cosine:.4f} on {len(rows)} rows")


def fit_static(
    start: InitialStudent,
    store: TokenStore,
    bank: Bank,
    axes: NDArray[np.float32] | None,
    settings: TrainingSettings,
) -> float | None:
    """Fit the static student of the same target, which a start without layers begins with.

    Returns:
        Its share of the held-out rows' neighbours; None where the training rows are too few to fit one.
    """
    import torch

    from consilience.students.backbones import TOKENS
    from consilience.training.gauges import neighbours_kept

    module: Any = start.module
    tokens = module.embedding.weight if start.name == STATIC else module.backbone.get_parameter(TOKENS)
    trained = tokens.detach().float().numpy() if start.taught_by else None
    rows, held_out = _split(len(store), settings)
    if trained is not None and len(rows) < trained.shape[1]:
        return None
    table = fit_table(trained, store, bank, rows, axes=axes, vocabulary=len(tokens))
    if start.fits_table:
        with torch.no_grad():
            tokens.copy_(torch.from_numpy(table))
    return neighbours_kept(embed_by_table(table, store, held_out), unit_targets(bank, held_out, axes))


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
