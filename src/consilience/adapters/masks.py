"""Which anchors answer: a mask belongs to the call and its context (thread, task), never to the model.

A new thread starts without masks, so a request that masks doesn't change its neighbours' answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from consilience.adapters.reads import AmplitudeRecorder

T = TypeVar("T")
_numbers = itertools.count()


@dataclass(frozen=True)
class Mask:
    """Which anchors of a library answer, and how.

    Attributes:
        kind: "all": every anchor under the dispatch; "some": the named ones under the dispatch, whose denominator still
            counts all of them; "solo": one anchor alone, without dispatch; "off": none, the bare trunk.
        names: the anchors, for "some" and "solo".
        members: number of anchors in the library when the mask was made.
    """

    kind: Literal["all", "some", "solo", "off"]
    names: tuple[str, ...] = ()
    members: int = 0

    @property
    def damped(self) -> bool:
        """Whether some anchors' share of the budget goes to nobody, so the others read lower than they would alone."""
        return self.kind == "some" and len(self.names) < self.members

    @property
    def label(self) -> str:
        """What a table calls the row.

        Source: design, section 11 ("masking damps").

        Example:
            >>> Mask("some", ("equiv",), 3).label, Mask("solo", ("equiv",), 3).label, Mask("off").label
            ('equiv only (damped)', 'equiv solo', 'off')
        """
        if self.kind == "some":
            named = f"{self.names[0]} only" if len(self.names) == 1 else " + ".join(self.names)
            return f"{named} (damped)" if self.damped else named
        return f"{self.names[0]} solo" if self.kind == "solo" else self.kind

    def to_json(self) -> dict[str, Any]:
        """Return kind, names, label and whether it's damped."""
        return {"kind": self.kind, "names": list(self.names), "label": self.label, "damped": self.damped}


ALL = Mask("all")
OFF = Mask("off")


class _Scoped(Generic[T]):
    """A value by owner and context."""

    def __init__(self, name: str) -> None:
        self._values: ContextVar[Mapping[int, T]] = ContextVar(name)

    def get(self, owner: int) -> T | None:
        return self._values.get(MappingProxyType({})).get(owner)

    def put(self, owner: int, value: T | None) -> None:
        rest = {key: other for key, other in self._values.get(MappingProxyType({})).items() if key != owner}
        self._values.set(MappingProxyType(rest if value is None else {**rest, owner: value}))


# Two variables for the whole process: a context keeps variables alive, so handles don't make their own.
current_mask: _Scoped[Mask] = _Scoped("consilience_adapter_mask")
current_recorder: _Scoped[AmplitudeRecorder] = _Scoped("consilience_adapter_recorder")


def new_owner() -> int:
    """Return a number that no other attachment of this process has."""
    return next(_numbers)


class Switch:
    """A mask that holds from now on in this context, and as a ``with`` statement only inside.

    Args:
        owner: number of the attachment.
        mask: what holds.
    """

    def __init__(self, owner: int, mask: Mask) -> None:
        self._owner = owner
        self.mask = mask
        self._before = current_mask.get(owner)
        current_mask.put(owner, mask)

    def __enter__(self) -> Mask:
        current_mask.put(self._owner, self.mask)
        return self.mask

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_mask.put(self._owner, self._before)
