"""Texts of figures: as wide as they are drawn, broken where they fit, beside their rows or above them."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from fake_studies import fabricate
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ablate.results.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.draw.legend import legend
from analysis.figures.draw.page import page_of
from analysis.figures.draw.wrap import SIZE, fold, width_of

KINDS = figures.KINDS
TEXTS = [
    "val/loss: mean over 3 seeds, band ± 1 SD over seeds; enlarged: the end",
    "−0.0539 [−0.0595, −0.0482]  n = 5  better",
    "iiiiiiiiii llllllllll",
    "WWWWWWWWWW MMMMMMMMMM",
    "a-rather-long-name-of-a-variant-0 + another_one.with.dots",
]
FFN = ["mlp", "gelu", "swiglu"]
CLAIMS = {
    name: {"claim": claim, "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    for name, claim in {
        "gated_is_better": {"less": [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}]},
        "same": {"equivalent": [{"ffn": "gelu"}, {"ffn": "mlp"}], "margin": 0.02},
    }.items()
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [SIZE, 7])
def test_a_text_is_as_wide_as_it_is_drawn(text: str, size: float) -> None:
    figure = Figure(figsize=(9, 1), dpi=style.DPI)
    canvas = FigureCanvasAgg(figure)
    drawn = figure.text(0, 0, text, fontsize=size, family="DejaVu Sans")
    canvas.draw()
    width = drawn.get_window_extent().width / style.DPI
    assert width <= width_of(text, size) + 0.01 and width_of(text, size) <= 1.09 * width


def test_letters_that_the_font_lacks_take_room() -> None:
    assert width_of("注意力 + 😀") > width_of("a + a") and "".join(fold("注意力机制", 0.3).split()) == "注意力机制"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("inches", [0.3, 0.7, 1.5, 9.0])
def test_no_line_is_wider_than_its_room_and_no_letter_is_lost(text: str, inches: float) -> None:
    folded = fold(text, inches)
    assert all(width_of(line) <= inches for line in folded.split("\n"))
    assert "".join(folded.split()) == "".join(text.split())
    assert inches < 9 or folded == text  # what fits stays as it is, two spaces, too


def test_long_words_are_broken_behind_hyphens_first() -> None:
    assert fold("a-rather-long-name", width_of("a-rather-long")) == "a-rather-\nlong-name"
    assert fold("mmmmmmmm", width_of("mmmm")) == "mmmm\nmmmm"


def made(tmp_path: Path, **options: Any) -> Case:
    return case_of(load_study(tmp_path, fabricate(tmp_path, {"ffn": FFN}, seeds=range(5), **options)), tmp_path)


def drawn(case: Case, name: str, width: float) -> Figure:
    edits = Edits(width=width, figures=[name])
    figure = KINDS[name].draw(figures.tables(case, edits)[name], page_of(case.study.manifest, edits))
    FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("width", [3.25, 6.9])
def test_rows_leave_their_data_room_and_no_text_leaves_the_page(tmp_path: Path, width: float) -> None:
    case = made(tmp_path, claims=CLAIMS, status=lambda v, s: "diverged" if v["ffn"] == "gelu" and s == 0 else "done")
    with warnings.catch_warnings(), matplotlib.rc_context(style.RC):
        warnings.simplefilter("error")
        for name in ("effects", "claims", "seeds", "divergence", "curves"):
            figure = drawn(case, name, width)
            used = figure.get_tightbbox()
            assert used.x0 >= -0.01 and used.x1 <= width + 0.01, name
            assert used.y0 >= -0.01 and used.y1 <= figure.get_figheight() + 0.01, name
            across = figure.axes[0].get_position().width
            assert across >= (0.2 if name == "curves" and width > 4 else 0.45 if width < 4 else 0.3), name


def test_results_stand_below_their_names_on_a_narrow_page(tmp_path: Path) -> None:
    case = made(tmp_path, claims=CLAIMS)
    with matplotlib.rc_context(style.RC):
        narrow, wide = (drawn(case, "claims", width).axes[0] for width in (3.25, 6.9))
    labels = [label.get_text() for label in narrow.get_yticklabels()]
    assert labels[1].startswith("same: gelu − mlp\n") and "[" in labels[1]
    assert [label.get_text() for label in wide.get_yticklabels()][1] == "same: gelu − mlp"
    boxes = [label.get_window_extent() for label in narrow.get_yticklabels()]
    assert all(upper.y0 >= lower.y1 for upper, lower in itertools.pairwise(boxes))


def test_entries_of_a_legend_fit_the_page_in_even_columns(tmp_path: Path) -> None:
    manifest = made(tmp_path).study.manifest
    encoding = next(iter(page_of(manifest, Edits()).encodings.values()))
    for width in (3.25, 6.9):
        page = page_of(manifest, Edits(width=width))
        for names in (FFN, TEXTS, [f"cell {i}" for i in range(13)]):
            made_of = legend(dict.fromkeys(names, encoding), page)
            widest = max(map(width_of, made_of.handles)) + 0.5
            assert made_of.columns * widest <= width
            figure = Figure(figsize=(width, 2 + made_of.height), layout="constrained")
            figure.subplots()
            with matplotlib.rc_context(style.RC):
                made_of.draw(figure)
                FigureCanvasAgg(figure).draw()
            box = figure.legends[0].get_window_extent()
            assert box.x1 <= figure.bbox.width + 1 and box.height / figure.dpi <= made_of.height + 0.2


def test_names_below_the_maps_of_interactions_stand_apart(tmp_path: Path) -> None:
    factors = {"norm": ["no norm at all", "RMSNorm", "LayerNorm"], "ffn": ["a gated unit", "none"]}
    case = case_of(load_study(tmp_path, fabricate(tmp_path, factors)), tmp_path)
    with matplotlib.rc_context(style.RC):
        figure = drawn(case, "interactions", 3.3)
        for axis in figure.axes:
            names = [text for text in axis.get_xticklabels() if text.get_text()]
            if all(text.get_rotation() == 0 for text in names):
                boxes = [text.get_window_extent() for text in names]
                assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)), names
        assert sum(bool(axis.get_xticklabels()) for axis in figure.axes) == 1
