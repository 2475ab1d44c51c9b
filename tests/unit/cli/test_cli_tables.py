"""Tables on a pipe: 80 columns by default, and still every number and name."""

from __future__ import annotations

from pathlib import Path

from consilience.cli.align import _show
from consilience.committee.frame_set import FrameSet

REPORT = {
    "rows_per_dimension": 62.5,
    "in_sample_cosine": 0.794,
    "out_of_sample_cosine": 0.795,
    "null_cosine": 0.111,
    "in_sample_recall": 0.998,
    "out_of_sample_recall": 0.997,
    "chance_multiple": 4990.0,
    "retention": 1.0,
    "source_rank": 86.7,
    "verdict": "refused",
    "reasons": ["why"],
}


def test_no_number_is_cut_and_brackets_are_no_markup(capsys):
    entry = {"label": "static:/models/[/x]/word-llama-l2-supercat", "report": REPORT}
    manifest = {
        "rows": {"fit": 24000, "held_out": 5000},
        "reference": {"label": "packaged:all-MiniLM-L6-v2"},
        "method": "whitened",
        "frame": "frame-1",
        "teachers": {"t": entry},
    }
    _show(FrameSet(Path("frames"), manifest, {}))
    shown = capsys.readouterr().out
    assert "…" not in shown
    for text in (entry["label"], "0.794", "0.795", "0.111", "0.998", "0.997", "4990", "100%", "86.7", "refused"):
        assert text in shown
