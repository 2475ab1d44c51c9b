"""The torch fast path that hf: and st: teachers share: tokenise once, sort by length, no padding, packed weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.core.errors import InputError, TeacherError
from consilience.teachers.batching import plan_batches
from consilience.teachers.boundary import PROBES, agree
from consilience.teachers.packed_linear import can_pack, pack_linears
from consilience.teachers.spec import TeacherSpec

if TYPE_CHECKING:
    import torch

# A budget that one batch of any texts fits.
ONE_BATCH = 1 << 40


class TokenRunner:
    """Run a transformers backbone over texts.

    Args:
        model: backbone in evaluation mode, on its device.
        tokenizer: its transformers tokenizer.
        max_length: tokens, special tokens counted, at which a text is cut.
        batch_tokens: token budget of a batch.
        finish: maps (token states (b, s, d), lengths (b,)) to vectors (b, e); rows are right-padded.
        states: maps the model's inputs (``input_ids``, ``attention_mask`` where rows are padded) to token states, or to
            vectors (b, e), which aren't finished; the model's ``last_hidden_state`` when not given.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: Any,  # noqa: ANN401 - a transformers tokenizer
        *,
        max_length: int | None,
        batch_tokens: int,
        finish: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        states: Callable[..., torch.Tensor] | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.batch_tokens = batch_tokens
        self.finish = finish
        # A tokenizer of transformers is switched between padding and cutting by each call, and what a model of unknown
        # make keeps between calls is nobody's promise: threads take turns, a batch at a time.
        self._turns = threading.Lock()
        self.states = states or self._hidden_states
        # Masked, so any id that the model has will do where the tokenizer has none.
        self.pad: int = tokenizer.pad_token_id or 0

    def encode(self, texts: Sequence[str], batch_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed texts, in their order; batches are formed by length inside, of ``batch_tokens`` if given."""
        import torch

        if not texts:
            raise TeacherError("teacher: encode was given no texts. Pass at least one")
        ids = self.tokenize(texts)
        device = next(iter(self.model.parameters())).device
        result: NDArray[np.float32] | None = None
        with torch.inference_mode():
            for rows in plan_batches([len(row) for row in ids], batch_tokens or self.batch_tokens):
                longest = len(ids[rows[-1]])
                block = np.full((len(rows), longest), self.pad, dtype=np.int64)
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
        return [row if row else [self.pad] for row in encoded]

    def _run(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        import torch

        given = {"input_ids": ids}
        if int(lengths.min()) < ids.shape[1]:  # without padding no mask: attention then takes its faster kernel
            given["attention_mask"] = (torch.arange(ids.shape[1], device=ids.device)[None, :] < lengths[:, None]).long()
        with self._turns:
            states = self.states(**given)
            return states if states.ndim == 2 else self.finish(states, lengths)

    def _hidden_states(self, **given: torch.Tensor) -> torch.Tensor:
        output = self.model(**given, return_dict=True)
        states = output[0] if isinstance(output, tuple) else getattr(output, "last_hidden_state", None)
        if states is None or states.ndim != 3:
            raise TypeError(f"its {type(output).__name__} has no states of tokens (last_hidden_state)")
        return states  # type: ignore[no-any-return]

    def accelerate(self) -> bool:
        """Pack the weights where that is possible and reproduces the probes; return whether they are packed."""
        if not can_pack(self.model):
            return False
        expected = self.encode(PROBES)
        undo = pack_linears(self.model)
        if agree(self.encode(PROBES), expected):
            return True
        undo()
        return False


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


def drop_pooler(model: torch.nn.Module) -> None:
    """Remove the pooler of a BERT-like backbone: nothing here reads it."""
    if type(getattr(model, "pooler", None)).__name__.endswith("Pooler"):
        model.pooler = None  # type: ignore[assignment]


def count_parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def check_local(spec: TeacherSpec) -> Path | None:
    """Return the folder that the spec names, or None when it has to be a hub id.

    Raises:
        TeacherError: it looks like a path and isn't there.
        InputError: a revision of a folder, which has none.
    """
    path, where = Path(spec.name).expanduser(), f"teacher {spec.canonical()}"
    if path.is_dir():
        if "revision" in spec.options:
            raise InputError(f"{where}: {path} is a folder here, which has no revisions. Leave revision= out")
        return path
    if path.is_file():
        raise TeacherError(f"{where}: expected a model folder, got a file")
    if path.is_absolute() or spec.name.startswith((".", "~")) or spec.name.count("/") > 1:
        raise TeacherError(f"{where}: no such folder. Check the path")
    return None
