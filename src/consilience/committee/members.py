"""Banks as members of a committee: their labels, how a person refers to them, and who may sit together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from consilience.banks.reader import Bank, require_same_corpus
from consilience.core.errors import FrameMismatchError, InputError
from consilience.core.manifests import check_file
from consilience.core.progress import progress_bar


def teacher_label(bank: Bank) -> str:
    """Return what a person calls the bank's teacher: ``backend:name``, or the teacher's id when it has no name."""
    backend = bank.teacher.get("backend")
    name = bank.teacher.get("name")
    if not name:
        return bank.teacher_id
    return f"{backend}:{name}" if backend else str(name)


def member_labels(banks: Sequence[Bank]) -> list[str]:
    """Return one distinct label a bank; teachers of one name (other prompt, other dtype) get their id appended."""
    plain = [teacher_label(bank) for bank in banks]
    return [
        label if plain.count(label) == 1 else f"{label}#{bank.teacher_id[:6]}"
        for label, bank in zip(plain, banks, strict=True)
    ]


def check_members(banks: Sequence[Bank]) -> None:
    """Make sure that banks can be combined: same corpus, distinct teachers.

    Raises:
        FrameMismatchError: two banks are of different corpora.
        InputError: no bank, or a teacher sits twice.
    """
    if not banks:
        raise InputError("banks: expected at least one bank, got none. Name the banks' folders")
    require_same_corpus(banks)
    seats: dict[str, Bank] = {}
    for bank in banks:
        other = seats.setdefault(bank.teacher_id, bank)
        if other is not bank:
            raise InputError(
                f"{other.path} and {bank.path} are banks of the same teacher ({teacher_label(bank)}). "
                "Name each teacher once; use weights to count one more"
            )


def find_member(banks: Sequence[Bank], selector: str | Path, *, what: str) -> int:
    """Return the position of the bank that a person means.

    Args:
        banks: the committee.
        selector: a bank's path or folder name, or its teacher's label, name or id.
        what: name of the option, for the error.

    Raises:
        InputError: none or several match.
    """
    labels = member_labels(banks)
    text = str(selector)
    # Paths first: they are exact. Names may be shared by several banks.
    by_path = [i for i, bank in enumerate(banks) if Path(selector).resolve() == bank.path.resolve()]
    by_name = [
        i
        for i, (bank, label) in enumerate(zip(banks, labels, strict=True))
        if text in {label, teacher_label(bank), str(bank.teacher.get("name")), bank.teacher_id, bank.path.name, bank.id}
    ]
    found = by_path or by_name
    if len(found) == 1:
        return found[0]
    count = "none" if not found else f"{len(found)}"
    raise InputError(
        f"{what}: expected one of the banks, {count} matches {text!r}. "
        f"Name a bank's path or one of: {', '.join(labels)}"
    )


def member_weights(
    banks: Sequence[Bank], weights: Mapping[str, float] | None, leave_out: Iterable[str | Path]
) -> list[float]:
    """Return one weight a bank, summing to one; 0 for those left out.

    Args:
        banks: the committee.
        weights: by selector (see :func:`find_member`); those not named have weight 1.
        leave_out: selectors of banks that don't count.

    Raises:
        InputError: an unknown selector, a weight that is negative or not finite, or nobody is left.
    """
    values = [1.0] * len(banks)
    for name, weight in (weights or {}).items():
        if not 0 <= weight < float("inf"):
            raise InputError(f"weights: expected a number >= 0 for {name}, got {weight}")
        values[find_member(banks, name, what="weights")] = float(weight)
    for selector in leave_out:
        values[find_member(banks, selector, what="leave-out")] = 0.0
    total = sum(values)
    if total <= 0:
        raise InputError("weights: expected at least one teacher with a weight above 0, all are 0 or left out")
    return [value / total for value in values]


def verify_members(banks: Sequence[Bank]) -> None:
    """Check every shard's checksum before anything is computed from it.

    Raises:
        BankIntegrityError: a shard is damaged; the message names it.
    """
    files = [(bank, name, sha256) for bank in banks for name, sha256 in bank.manifest["files"].items()]
    with progress_bar("verify", len(files)) as bar:
        for bank, name, sha256 in files:
            check_file(bank.path, name, sha256)
            bar.advance()


def require_known_teachers(banks: Sequence[Bank], known: Mapping[str, object], *, frames: Path, frame: str) -> None:
    """Make sure that a frame set has a map for every bank.

    Raises:
        FrameMismatchError: a bank's teacher wasn't aligned; names both frames and the command to run.
    """
    for bank in banks:
        if bank.teacher_id not in known:
            raise FrameMismatchError(
                f"{bank.path} is in frame {bank.frame} ({teacher_label(bank)}), and {frames} has no map from it into "
                f"{frame}. Run `consilience align` with this bank, or use the bank that was aligned"
            )
