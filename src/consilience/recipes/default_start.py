"""What a student starts from when nothing is said: layers of the teacher whose frame its target is in.

A few thousand texts and a few minutes don't teach random layers a language; a trained model's layers know it already
(measured: docs/results.md, "The default"). Which layers are kept is read off the corpus by one forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError, MissingExtraError, TeacherError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.banks.reader import Bank
    from consilience.corpora.text import Corpus

# Measured on 20,000 and 200,000 texts in 10 minutes: half of them end .7 to 1.4 points of held-out neighbours lower
# (docs/results.md, "The default").
KEPT_LAYERS = 2 / 3
PROBED_TEXTS = 128  # assumed: the order of the layers stands from some dozens on


@dataclass(frozen=True)
class DefaultStart:
    """Layers of a teacher.

    Attributes:
        source: the teacher's spec.
        layers: numbers of the blocks that are kept.
        depth: how many it has.
        in_frame: the target is in its frame, so that its vectors are the start; else a linear map has to come first.
    """

    source: str
    layers: tuple[int, ...]
    depth: int
    in_frame: bool


def target_teachers(bank: Bank, specs: Sequence[str] = ()) -> list[tuple[str, bool]]:
    """Return the specs of a target's teachers as far as they can be named, and whether the target is in their frame.

    Args:
        bank: a teacher's bank or a consensus.
        specs: what is known of them beside the bank, the one in whose frame it is first.
    """
    extra = bank.manifest.get("extra") or {}
    members = [member["teacher"] for member in extra.get("members", [])] or [bank.teacher]
    reference = extra.get("reference", members[0])
    shared = not extra.get("without_axes", False)
    found = {spec: shared and place == 0 for place, spec in enumerate(specs)}
    for teacher in sorted(members, key=lambda teacher: teacher != reference):
        spec = _spec(teacher)
        if spec is not None:
            found.setdefault(spec, shared and teacher == reference and not specs)
    return list(found.items())


def _spec(teacher: Mapping[str, Any]) -> str | None:
    """Name a teacher by its identity; a folder's is only found where it lies under that name with those weights."""
    from consilience.teachers.provenance import folder_weights_sha256

    backend, name = str(teacher.get("backend")), str(teacher.get("name"))
    if backend == "packaged":
        return f"packaged:{name}"
    if backend not in ("st", "hf") or not Path(name).is_dir():
        return None
    same = teacher.get("weights_sha256") == folder_weights_sha256(Path(name))
    return f"{backend}:{name}" if same else None


def find_default_start(
    teachers: Sequence[tuple[str, bool]], texts: Corpus, *, layers: Sequence[int] | None
) -> DefaultStart | str:
    """Return the first teacher's layers that a student can start from, or why there are none.

    Args:
        teachers: specs, the one to prefer first, and whether the target is in their frame.
        texts: the corpus, on which the layers' influence is measured.
        layers: numbers of the blocks to keep; the most influential ones when None.
    """
    reasons = []
    for source, in_frame in teachers:
        try:
            influence = layer_influence(source, texts)
        except (InputError, TeacherError, MissingExtraError) as error:
            reasons.append(str(error))
            continue
        kept = most_influential(influence) if layers is None else tuple(layers)
        return DefaultStart(source, kept, len(influence), in_frame)
    return "; ".join(reasons) or "the target's teachers aren't named by something that can be loaded here"


def layer_influence(source: str, texts: Corpus) -> NDArray[np.float64]:
    """Measure how much each block changes the mean of a text's token states: one minus the cosine of before and after.

    Args:
        source: a teacher's spec or a model's folder.
        texts: the corpus; its first rows are read.

    Returns:
        One number a block (layers,), 0 where the block changes nothing.

    Raises:
        InputError: a student can't start from this model.

    Source: Men et al. 2024, arXiv:2403.03853, "block influence", here of the pooled states.
    """
    import numpy as np
    import torch

    from consilience.recipes.warm_start import warm_start

    module, words, shape = warm_start(source, head="none")
    words.enable_truncation(shape.max_length)
    influence = np.zeros(shape.layers)
    sample = next(iter(texts.batches(PROBED_TEXTS)), [])
    with torch.inference_mode():
        for encoding in words.encode_batch_fast(sample):
            ids = torch.tensor([encoding.ids])
            states = module.backbone(input_ids=ids, output_hidden_states=True).hidden_states
            means = torch.stack([state[0].mean(dim=0) for state in states])
            influence += 1.0 - torch.cosine_similarity(means[:-1], means[1:], dim=-1).double().numpy()
    return influence / max(len(sample), 1)


def most_influential(influence: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the blocks to keep, ascending: two thirds of them.

    Args:
        influence: of every block.

    Example:
        >>> import numpy as np
        >>> most_influential(np.array([0.31, 0.12, 0.10, 0.12, 0.15, 0.55]))
        (0, 1, 4, 5)
    """
    import numpy as np

    count = math.ceil(len(influence) * KEPT_LAYERS)
    return tuple(sorted(np.argsort(-influence, kind="stable")[:count].tolist()))
