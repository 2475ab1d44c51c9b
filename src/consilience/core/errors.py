"""The errors a person can meet, all under one base.

Every message says where it happened, what was expected, what was found and what to do about it, on one
line. The command line prints it and exits with code 2; the Python API raises it.
"""

from __future__ import annotations

from collections.abc import Sequence


class ConsilienceError(Exception):
    """Base of all errors that mean "the input or the request is wrong", not "the program is wrong"."""

    def __str__(self) -> str:
        """Return the message on one line, whatever was interpolated into it."""
        return " ".join(super().__str__().split())


class InputError(ConsilienceError):
    """A file, option or value given by the person is missing, malformed or contradictory."""


class CorpusError(ConsilienceError):
    """A corpus can't be read, is empty, or holds rows that no teacher should be given."""


class MissingColumnError(CorpusError):
    """A table of rows lacks a column that was asked for."""


class TeacherError(ConsilienceError):
    """A teacher can't be found or loaded, or returned vectors that are NaN, infinite, zero or misshapen."""


class ShapeError(ConsilienceError):
    """Arrays of incompatible shapes met."""


class BankIntegrityError(ConsilienceError):
    """A stored artefact doesn't match its manifest: a checksum, a size, a row range, a missing file."""


class FrameMismatchError(ConsilienceError):
    """Two things in different frames, or banks of different corpora, were to be combined."""


class AlignmentRefusedError(ConsilienceError):
    """An alignment map was fitted and found to be no better than chance, or can't be fitted soundly."""


class TrunkMismatchError(ConsilienceError):
    """Adapters met a trunk that they were not trained on."""


class ResumeError(ConsilienceError):
    """A partial or finished artefact belongs to another job and can't be continued by this one."""


class StorageError(ConsilienceError):
    """The file system refused a write: disk full, read-only, no permission."""


class MissingExtraError(ConsilienceError):
    """An optional dependency is needed.

    Args:
        extra: name of the extra of ``pip install 'consilience[extra]'``.
        package: the distribution that is missing.
        purpose: what it is needed for, as a clause ("to read hub data sets").
    """

    def __init__(self, extra: str, package: str, purpose: str) -> None:
        super().__init__(f"{package} is needed {purpose} and isn't installed. Run: pip install 'consilience[{extra}]'")
        self.extra = extra
        self.package = package


class RecipeError(ConsilienceError):
    """A recipe has faults; all of them are listed at once.

    Args:
        source: the recipe's path.
        faults: one clause a fault, each naming the key, the value and the fix.
    """

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        noun = "fault" if len(faults) == 1 else "faults"
        listed = "; ".join(f"({i}) {fault}" for i, fault in enumerate(faults, 1))
        super().__init__(f"{source}: {len(faults)} {noun}: {listed}")
        self.faults = tuple(faults)
