"""Temporary: replaced by the verb's own file."""

from __future__ import annotations


def command() -> None:
    """Run align."""
