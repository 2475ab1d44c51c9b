"""Check a bank down to its last byte."""

from __future__ import annotations

from pathlib import Path

from consilience.banks.reader import Bank, open_bank


def verify_bank(bank: Bank | str | Path) -> Bank:
    """Check a bank's manifest, the size, header and checksum of every shard, and their row ranges.

    Args:
        bank: an open bank or its folder.

    Returns:
        The bank, open.

    Raises:
        InputError: no bank is there.
        BankIntegrityError: something was changed; the message names the first such file.
    """
    opened = open_bank(bank.path if isinstance(bank, Bank) else bank)
    for _ in opened.iter_shards(verify=True):
        pass
    return opened
