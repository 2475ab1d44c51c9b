"""What the teachers' licences mean for a student: stated plainly, never decided silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# From the most permissive to the strictest. Lower-case SPDX prefixes; assumed as a reading aid, not legal advice.
_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("public domain", ("cc0", "pddl", "unlicense", "0bsd")),
    ("permissive", ("mit", "apache-2", "bsd", "isc", "zlib", "cc-by-1", "cc-by-2", "cc-by-3", "cc-by-4", "odc-by")),
    ("share-alike", ("cc-by-sa", "gpl", "lgpl", "agpl", "mpl", "odbl")),
    ("restricted use", ("gemma", "llama", "openrail", "creativeml", "bigscience")),
    ("non-commercial", ("cc-by-nc",)),
    ("no derivatives", ("cc-by-nd", "cc-by-nc-nd")),
)
_ORDER = {name: rank for rank, (name, _) in enumerate(_CLASSES)}
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class LicenceVerdict:
    """What follows for the student.

    Attributes:
        metadata: value of ``license`` in the card's metadata: "apache-2.0" or "other".
        strictest: class of the strictest teacher, or "unknown".
        statement: one paragraph for the card.
    """

    metadata: str
    strictest: str
    statement: str


def licence_class(licence: str | None) -> str:
    """Return the class of a licence's name, "unknown" for names that aren't listed.

    Example:
        >>> licence_class("Apache-2.0"), licence_class("CC-BY-NC-ND-4.0"), licence_class(None)
        ('permissive', 'no derivatives', 'unknown')
    """
    name = (licence or "").strip().lower().replace(" ", "-")
    matches = [(len(prefix), kind) for kind, prefixes in _CLASSES for prefix in prefixes if name.startswith(prefix)]
    return max(matches)[1] if matches else _UNKNOWN


def judge_licences(licences: Mapping[str, str | None]) -> LicenceVerdict:
    """Say what follows from the teachers' licences for the student's.

    Args:
        licences: licence (or None when unknown) by teacher.
    """
    classes = {teacher: licence_class(licence) for teacher, licence in licences.items()}
    unknown = sorted(teacher for teacher, kind in classes.items() if kind == _UNKNOWN)
    if not licences or unknown:
        who = ", ".join(unknown) if unknown else "the teachers (none is recorded)"
        return LicenceVerdict(
            "other",
            _UNKNOWN,
            f"The licence of {who} is unknown to Consilience, so no licence is claimed for this model. "
            "Find out and respect those terms before you distribute or deploy it.",
        )
    strictest = max(classes.values(), key=lambda kind: _ORDER[kind])
    holders = ", ".join(sorted(teacher for teacher, kind in classes.items() if kind == strictest))
    if _ORDER[strictest] <= _ORDER["permissive"]:
        return LicenceVerdict(
            "apache-2.0",
            strictest,
            "All teachers' licences are permissive; this model can be distributed under Apache-2.0 if their notices "
            "are kept. The licences of the training texts are a separate question.",
        )
    return LicenceVerdict(
        "other",
        strictest,
        f"The strictest teacher licence is {strictest} ({holders}). Treat this model as bound by it, unless you have "
        "advice to the contrary. The licences of the training texts are a separate question.",
    )
