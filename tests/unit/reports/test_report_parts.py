"""Report parts: tables, pages, plots, training curves."""

import html
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from consilience.core.errors import MissingExtraError
from consilience.recipes.run_report import portable_text
from consilience.reports.html import render_html
from consilience.reports.markdown import markdown_table, number
from consilience.reports.plots import plot_agreement, plot_scores, plot_spectra, plot_training
from consilience.reports.study_plots import _plot_descent, _plot_set_points, _plot_terms
from consilience.reports.training_log import flatten_entry, training_panels

LOG = [
    {"step": 0, "rows": 0, "gauges": {"target_cosine": 0.1, "effective_rank": 9.0, "retrieval_at_1_of_50": 0.2}},
    {"step": 1, "rows": 8, "loss": 2.0, "terms": {"infonce": 1.5, "mimicry": 0.5}},
    {"step": 11, "rows": 88, "loss": 1.0, "terms": {"infonce": 0.8, "mimicry": 0.2}},
    {"step": 11, "rows": 88, "gauges": {"target_cosine": 0.7, "effective_rank": 8.0, "retrieval_at_1_of_50": 0.9}},
]

NAMES = ["student", "minilm", "paraphrase", "wordllama", "glove"]


class Tags(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    VOID = ("meta", "img", "br", "hr", "link")

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_cells_cannot_break_a_table():
    assert markdown_table(["a", "b"], [["x|y\nz", 1]]).splitlines()[-1] == "| x\\|y z | 1 |"


def test_numbers_read_well():
    assert [number(58_308_864), number(0.12345), number(1234.5, 1), number(None)] == [
        "58,308,864",
        "0.123",
        "1,234.5",
        "–",
    ]


def test_a_page_is_self_contained_and_shows_raw_html_as_text():
    markdown = "# <script>alert(1)</script>\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n![curve](plots/a.svg)"
    page = render_html(markdown, title="a & b <c>", images={"plots/a.svg": "<svg></svg>"})
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert tags.seen.count("table") == 1
    assert "<title>a &amp; b &lt;c&gt;</title>" in page
    assert re.findall(r'(?:src|href)="([^"]{0,25})', page) == ["data:image/svg+xml;base64,"[:25]]
    assert "prefers-color-scheme: dark" in page


def narrowest(page):
    """Return how wide the widest table has to be at least, in pixels: every column's longest piece, and the padding."""
    assert "nowrap" not in page
    widths = []
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("</tr>")[:-1]]
        pieces = [[re.split(r"[ -]", html.unescape(re.sub("<[^>]+>", "", cell))) for cell in row] for row in rows]
        columns = [max(len(piece) for cell in column for piece in cell) for column in zip(*pieces, strict=True)]
        widths.append(sum(8.5 * letters + 24 for letters in columns))
    return max(widths)


def test_a_wide_table_fits_into_the_page_by_wrapping_but_never_inside_an_interval():
    teachers = [
        (f"{name} (reference)", f"`packaged:{name}-MiniLM-L6-v2`", f"embed-{name}-07744db65e86") for name in NAMES
    ]
    markdown = "\n\n".join(
        [
            markdown_table(["task", *NAMES], [["stsb-dev (selection)", *(["0.8203 [0.803, 0.836]"] * 5)]]),
            markdown_table(["model", "difference"], [["student − minilm", "-0.1234 [-0.145, +0.101]"]]),
            markdown_table(
                ["teacher", "spec", "licence", "bank"], [(*row[:2], "Apache-2.0", row[2]) for row in teachers]
            ),
        ]
    )
    page = render_html(markdown, title="t", images={})
    assert "0.8203 [0.803,&nbsp;0.836]" in page
    assert "[-0.145,&nbsp;+0.101]" in page
    content = float(re.search(r"max-width: ([\d.]+)rem", page)[1]) * 16 - 2 * 1.4 * 16
    assert narrowest(page) < content


def test_plots_are_svg_and_the_same_bytes_each_time():
    spectra = {"minilm": [0.5, 0.3, 0.2], "consensus": [0.6, 0.4, 0.0], "student": [0.7, 0.2, 0.1]}
    scores = {"student": {"grammar": (0.5, 0.4, 0.6)}, "minilm": {"grammar": (-0.1, -0.2, 0.05)}}
    steps, panels = training_panels(LOG)

    def draw():
        return [
            plot_spectra(spectra),
            plot_agreement(["a", "b"], np.array([[1.0, 0.4], [0.4, 1.0]])),
            plot_scores(scores),
            plot_training(steps, panels),
        ]

    first = draw()
    assert all(text.startswith("<svg") and text.rstrip().endswith("</svg>") for text in first)
    assert first == draw()


def letters(svg):
    """Return how far to the left and right the upright texts of a plot reach, and the plot's width, in points."""
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', svg)[1])
    reach = []
    for x, scale, glyphs in re.findall(
        r'<g transform="translate\(([-\d.]+) [-\d.]+\) scale\(([\d.]+) -[\d.]+\)">(.*?)</g>', svg, re.DOTALL
    ):
        steps = [float(step) for step in re.findall(r'<use [^>]*transform="translate\(([\d.]+)', glyphs)]
        reach.append((float(x), float(x) + float(scale) * (max(steps, default=0.0) + 60)))  # a letter is 60 units wide
    return min(left for left, _ in reach), max(right for _, right in reach), width


@pytest.mark.parametrize("tasks", [1, 9])
@pytest.mark.parametrize("suffix", ["", "-a-student-of-a-longer-name", "-" + "x" * 90])
def test_a_bar_charts_legend_is_all_there(tasks, suffix):
    bars = {f"task{i}": (0.5, 0.4, 0.6) for i in range(tasks)}
    left, right, width = letters(plot_scores({name + suffix: bars for name in NAMES}))
    assert left > 0
    assert right < width


def test_a_studys_legends_are_all_there():
    training = {
        "gauge_steps": [0, 9],
        "target_cosine": [0.1, 0.5],
        "term_steps": [1, 9],
        "terms": {name: [2.0, 1.0] for name in ("mimicry", "infonce", "relational-knowledge")},
        "objective_weights": {"mimicry": 1.0},
    }
    groups = {f"objective-{i} · target-{i} · a student": [{"training": training, "seed": 0}] for i in range(22)}
    for svg in (_plot_set_points(groups), _plot_terms(groups), _plot_descent(next(iter(groups.values())))):
        left, right, width = letters(svg)
        assert left > 0
        assert right < width


def test_the_training_log_becomes_panels():
    steps, panels = training_panels(LOG)
    assert steps == [0, 1, 11, 11]
    curves = dict(panels)
    assert curves["loss and its terms"] == {
        "loss": [None, 2.0, 1.0, None],
        "infonce": [None, 1.5, 0.8, None],
        "mimicry": [None, 0.5, 0.2, None],
    }
    assert curves["held-out gauges"]["R@1 of 50"] == [0.2, None, None, 0.9]
    assert curves["effective rank, held out"] == {"effective rank": [9.0, None, None, 8.0]}
    assert training_panels([]) == ([], [])


def test_flags_and_texts_are_no_curves():
    assert flatten_entry({"step": 1, "done": True, "name": "x", "terms": {"a": 2}}) == {"step": 1.0, "a": 2.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data/captions.parquet", "captions.parquet"),
        ("npy:/data/x.npy", "npy:x.npy"),
        ("parquet:/data/x.parquet#v", "parquet:x.parquet#v"),
        ("https://host/v1/embeddings?model=a", "https://host/v1/embeddings?model=a"),
        ("st:sentence-transformers/all-mpnet-base-v2", "st:sentence-transformers/all-mpnet-base-v2"),
        ("flickr30k", "flickr30k"),
    ],
)
def test_reports_name_no_folders(text, expected):
    assert portable_text(text) == expected


def test_a_report_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"consilience\[report\]"):
        plot_spectra({"a": [1.0]})
