"""The tables of terms and compositions, as ``docs/objectives.md`` has them."""

from __future__ import annotations

from consilience.objectives.names import COMPOSITIONS, TERM_ENTRIES, OptimizerSettings


def catalogue_tables() -> tuple[str, str]:
    """Return the terms and the compositions as two Markdown tables.

    Example:
        >>> catalogue_tables()[1].splitlines()[2]
        "| `mimicry` | mimicry | in the target's | CLIP-KD, arXiv:2307.12732 |"
    """
    terms = ["| term | value on b rows | frame family | from |", "|---|---|---|---|"]
    terms += [f"| `{name}` | {e.formula} | {e.frame} | {e.source} |" for name, e in TERM_ENTRIES.items()]
    compositions = ["| `--objective` | sum of | student's frame | from |", "|---|---|---|---|"]
    for name, entry in COMPOSITIONS.items():
        parts = [term if weight == 1.0 else f"{weight:g} {term}" for term, weight in entry.weights.items()]
        total = " + ".join(parts) + (", gradient shaped" if entry.shaping else "") + _optimizer(entry.optimizer)
        frame = "free" if entry.relational else "in the target's"
        compositions.append(f"| `{name}` | {total} | {frame} | {entry.source} |")
    return "\n".join(terms), "\n".join(compositions)


def _optimizer(settings: OptimizerSettings) -> str:
    """Return how an optimiser differs from Adam without weight decay, as a clause."""
    if settings == OptimizerSettings():
        return ""
    words = [f"{'AdamW' if settings.kind == 'adamw' else 'Adam'}, weight decay {settings.weight_decay:g}"]
    if settings.warmup_steps is not None:
        words.append(f"{settings.warmup_steps:,} warm-up steps")
    if settings.clip_norm is not None:
        words.append(f"gradient clipped at {settings.clip_norm:g}")
    return "; " + ", ".join(words)
