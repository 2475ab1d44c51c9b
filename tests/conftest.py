"""Skips are for machines that lack something; where everything is at hand (continuous integration), a skip is a "
"failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# What a machine can't be given: the right to mount, instructions of another processor.
ALLOWED = ("mounting a tmpfs isn't permitted", "this torch has no packed kernels")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of the real corpora where the folder that CONSILIENCE_DATA names lacks what it reads."""
    for marker in item.iter_markers("data"):
        folder = os.environ.get("CONSILIENCE_DATA")
        if not folder:
            pytest.skip("CONSILIENCE_DATA isn't set: it names the folder with the real corpora")
        if missing := [name for name in marker.args if not Path(folder, name).is_dir()]:
            pytest.skip(f"no {', '.join(missing)} in CONSILIENCE_DATA")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CONSILIENCE_EVERY_TEST set, fail a session in which a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CONSILIENCE_EVERY_TEST") or reporter is None:
        return
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", [])]
    unexpected = sorted({reason for reason in reasons if not reason.startswith(ALLOWED)})
    if unexpected and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\nskipped, though CONSILIENCE_EVERY_TEST is set: {'; '.join(unexpected)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
