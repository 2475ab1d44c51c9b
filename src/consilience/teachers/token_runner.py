"""The torch fast path that hf: and st: teachers share: tokenise once, sort by length, no padding, packed weights."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.batching import plan_batches
from consilience.teachers.packed_linear import can_pack, pack_linears

if TYPE_CHECKING:
    import torch

PROBES = (
    "A cat.",
    "Two dogs are running across a snowy field.",
    "Nobody expected the third violinist, who had never played in public before, to finish the piece alone!",
)
# Assumed: fp32 rounding through a few layers stays two orders of magnitude below; a wrong graph is far above.
_PROBE_TOLERANCE = 1e-5
_loading = threading.RLock()


class TokenRunner:
    """Run a transformers backbone over texts.

    Args:
        model: backbone in evaluation mode, on its device.
        tokenizer: its transformers tokenizer.
        max_length: tokens, special tokens counted, at which a text is cut.
        batch_tokens: token budget of a batch.
        finish: maps (token states (b, s, d), lengths (b,)) to vectors (b, e); rows are right-padded.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: Any,  # noqa: ANN401 - a transformers tokenizer
        *,
        max_length: int | None,
        batch_tokens: int,
        finish: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.batch_tokens = batch_tokens
        self.finish = finish
        # A tokenizer of transformers is switched between padding and cutting by each call, and what a model of unknown
        # make keeps between calls is nobody's promise: threads take turns, a batch at a time.
        self._turns = threading.Lock()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts, in their order; batches are formed by length inside."""
        import torch

        if not texts:
            raise TeacherError("teacher: encode was given no texts. Pass at least one")
        ids = self.tokenize(texts)
        pad = self.tokenizer.pad_token_id or 0
        device = next(iter(self.model.parameters())).device
        result: NDArray[np.float32] | None = None
        with torch.inference_mode():
            for rows in plan_batches([len(row) for row in ids], self.batch_tokens):
                longest = len(ids[rows[-1]])
                block = np.full((len(rows), longest), pad, dtype=np.int64)
                for position, row in enumerate(rows):
                    block[position, : len(ids[row])] = ids[row]
                lengths = torch.tensor([len(ids[row]) for row in rows], device=device)
                vectors = self._run(torch.from_numpy(block).to(device), lengths).float().cpu().numpy()
                if result is None:
                    result = np.empty((len(ids), vectors.shape[1]), dtype=np.float32)
                result[rows] = vectors
        if result is None:
            raise TeacherError("teacher: no batch was run. Report this")
        return result

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids of each text, cut at ``max_length``, unpadded."""
        # The fast tokenizer keeps the padding of its file unless told; verbose off: long texts are cut on purpose.
        with self._turns:
            encoded = self.tokenizer(
                list(texts),
                add_special_tokens=True,
                padding=False,
                truncation=self.max_length is not None,
                max_length=self.max_length,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
        # A tokenizer without special tokens makes nothing of an empty text; one padding token keeps the row.
        return [row if row else [self.tokenizer.pad_token_id or 0] for row in encoded]

    def _run(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        import torch

        mask = None
        if int(lengths.min()) < ids.shape[1]:  # without padding no mask: attention then takes its faster kernel
            mask = (torch.arange(ids.shape[1], device=ids.device)[None, :] < lengths[:, None]).long()
        with self._turns:
            states = self.model(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            return self.finish(states, lengths)

    def accelerate(self) -> bool:
        """Pack the weights where that is possible and reproduces the probes; return whether they are packed."""
        if not can_pack(self.model):
            return False
        expected = self.encode(PROBES)
        undo = pack_linears(self.model)
        if _agree(self.encode(PROBES), expected):
            return True
        undo()
        return False


def agrees_on_probes(
    fast: Callable[[Sequence[str]], NDArray[np.float32]], slow: Callable[[Sequence[str]], NDArray[np.float32]]
) -> bool:
    """Tell whether two ways to embed give the same vectors of a few texts of different lengths (1e-5 of their norm)."""
    return _agree(fast(PROBES), slow(PROBES))


def _agree(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    if one.shape != other.shape:
        return False
    scale = max(float(np.linalg.norm(other, axis=1).max()), 1e-12)
    return bool(np.abs(one - other).max() <= _PROBE_TOLERANCE * scale)


def torch_dtype(name: str | None) -> torch.dtype:
    """Return the torch dtype of a spec's dtype (default fp32)."""
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name or "fp32"]


def choose_device(name: str | None) -> str:
    """Return the named device, or the first GPU, or the CPU.

    Raises:
        TeacherError: torch doesn't know or have the named device.
    """
    import torch

    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise TeacherError(
            f"device {name!r}: torch can't use it ({str(error).splitlines()[0]}). Try device=cpu"
        ) from error
    return name


def first_position(config: Any) -> int:  # noqa: ANN401 - a transformers configuration
    """Return the number of a text's first position: RoBERTa's family counts from the padding token's id + 1 on."""
    late = getattr(config, "model_type", "") in {"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl"}
    return (getattr(config, "pad_token_id", None) or 0) + 1 if late else 0


def check_max_length(model: torch.nn.Module, max_length: int | None, *, teacher: str) -> None:
    """Refuse a length that a table of learned positions doesn't have; the model would fail at the first long text.

    Raises:
        InputError: ``max_length`` is above what the table allows.
    """
    import torch

    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            longest = module.num_embeddings - first_position(model.config)
            if max_length is not None and max_length > longest:
                raise InputError(
                    f"teacher {teacher}: expected max_length of at most {longest}, the positions that the model has "
                    f"learned, got {max_length}. Lower it"
                )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence the loading bars and reports of transformers: the load either succeeds or raises.

    Bars, levels and the type that transformers loads in are the process's: threads load one after another.
    """
    from transformers.utils import logging as transformers_logging

    with _loading:
        bars, level = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
        st_logger = logging.getLogger("sentence_transformers")
        st_level = st_logger.level
        transformers_logging.disable_progress_bar()
        transformers_logging.set_verbosity_error()
        st_logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            st_logger.setLevel(st_level)
            transformers_logging.set_verbosity(level)
            if bars:
                transformers_logging.enable_progress_bar()


def drop_pooler(model: torch.nn.Module) -> None:
    """Remove the pooler of a BERT-like backbone: nothing here reads it."""
    if type(getattr(model, "pooler", None)).__name__.endswith("Pooler"):
        model.pooler = None  # type: ignore[assignment]


def count_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def check_local(name: str, backend: str) -> Path | None:
    """Return the folder that ``name`` is, or None when it has to be a hub id.

    Raises:
        TeacherError: it looks like a path and isn't there.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise TeacherError(f"teacher {backend}:{name}: expected a model folder, got a file")
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise TeacherError(f"teacher {backend}:{name}: no such folder. Check the path")
    return None


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, shortened."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
