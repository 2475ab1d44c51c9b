"""The processes of a training that a launcher (accelerate, torchrun) started; one when there is none."""

from __future__ import annotations

from typing import Any


def join_processes() -> Any:  # noqa: ANN401 - accelerate is untyped
    """Return accelerate's view of the processes: their number, which one is the main one, barriers."""
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    # Accelerator reads this variable itself; PartialState, made first, must be told.
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))
