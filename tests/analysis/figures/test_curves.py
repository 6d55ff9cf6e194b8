"""The figure of learning curves: which panels it has, and what their axes count in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import matplotlib
import pytest
from fake_studies import TASK, fabricate
from matplotlib.figure import Figure

from ablate.results.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.draw.axes import log_x, log_y, numbers
from analysis.figures.draw.page import page_of
from analysis.figures.kinds import curves
from analysis.webpage.curve_data import series

SECONDS = "SD over seeds; seconds"


def evaluated(folder: Path, steps: list[int], tokens: int | None = 1024) -> Case:
    """A study that was evaluated at these steps alone."""
    study = load_study(folder, fabricate(folder, {"ffn": ["mlp", "swiglu"]}, timing="isolated"))
    place = study.curves["step"].rank(method="dense").astype(int) - 1
    rows = study.curves[place < len(steps)].assign(step=[steps[i] for i in place if i < len(steps)])
    rows = rows.assign(tokens=rows["step"] * tokens) if tokens else rows.drop(columns="tokens")
    return case_of(dataclasses.replace(study, curves=rows), folder)


def drawn(case: Case) -> Figure:
    with matplotlib.rc_context(style.RC):
        table = figures.tables(case, Edits(figures=["curves"]))["curves"]
        return curves.draw(table, page_of(case.study.manifest, Edits(caption=True)))


def texts(figure: Figure) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.findobj(matplotlib.text.Text)]


def test_runs_that_shared_the_machine_are_not_drawn_over_seconds(tmp_path: Path) -> None:
    shared = case_of(load_study(tmp_path, fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})), tmp_path)
    figure, table = drawn(shared), curves.table(shared)
    assert len(figure.axes) == 2 and not any("seconds" in text for text in texts(figure))
    assert table is not None and table["seconds"].isna().all()
    found = series(shared)
    assert found and list(found["axes"]) == ["step", "tokens"]


def test_a_band_of_shares_ends_where_shares_end(tmp_path: Path) -> None:
    task = TASK | {"metrics": {"accuracy": "max"}, "shares": ["accuracy"]}
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(2), tasks={"f0": task}))
    study.curves["val/accuracy"] = study.curves["seed"].map({0: 1.0, 1: 0.5})
    table = curves.table(case_of(study, tmp_path))
    assert table is not None and set(table["mean"]) == {0.75} and set(table["high"]) == {1.0}
    page = series(case_of(study, tmp_path))
    assert page and {max(page["columns"][cell["mean"]["high"]]) for cell in page["cells"]} == {1}
    study.curves["val/accuracy"] *= 100
    table = curves.table(case_of(study, tmp_path))
    assert table is not None and table["high"].min() > 100, "in per cent"


def test_a_log_axis_says_so_and_has_ticks_with_numbers(tmp_path: Path) -> None:
    first = drawn(evaluated(tmp_path, [0, 50, 100, 200, 400])).axes[0]
    assert first.get_xscale() == "log" and first.get_xlabel().endswith("log scale")
    low, high = first.get_xlim()
    shown = zip(first.get_xticklabels(), first.get_xticks(), strict=True)
    ticks = [tick.get_text() for tick, at in shown if low <= at <= high]
    assert len(ticks) >= 3 and all(ticks) and not first.get_xticks(minor=True).size
    axis = Figure().subplots()
    log_x(axis, 210, 480)
    assert len(axis.get_xticks()) >= 3, "a narrow range has ticks, too"
    log_y(axis, 0.01, 150)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["0.01", "0.1", "1", "10", "100"]


@pytest.mark.parametrize(
    ("steps", "panels", "shown", "said"),
    [
        ([0, 50, 100], 2, [50, 100], "without step 0"),
        ([0, 50, 60], 2, [50, 60], "without step 0"),  # no evaluation in the first two thirds but that of step 0
        ([50, 100], 2, [50, 100], SECONDS),
        ([0, 100], 2, [0, 100], SECONDS),  # without step 0 there would be no line
        ([100], 2, [100], SECONDS),
        ([0, 25, 50, 100], 3, [25, 50, 100], "enlarged: the end"),
    ],
)
def test_the_end_is_enlarged_only_where_it_is_not_the_whole(tmp_path, steps, panels, shown, said):
    figure = drawn(evaluated(tmp_path, steps))
    assert len(figure.axes) == panels and any(said in text for text in texts(figure))
    assert any(text.endswith("the end") for text in texts(figure)) == (panels == 3)
    first = figure.axes[0]
    low, high = first.get_xlim()
    inside = sorted({float(x) for line in first.lines for x in line.get_xdata() if low <= x <= high})
    assert inside == pytest.approx([1.024 * step for step in shown])
    assert panels == 3 or {line.get_marker() for line in first.lines} == {"o", "s"}  # one point alone is seen, too


@pytest.mark.parametrize(("most", "name"), [(2_000, "training steps"), (20_000, "training steps (thousands)")])
def test_a_few_thousand_steps_are_written_out(tmp_path: Path, most: int, name: str) -> None:
    case = evaluated(tmp_path, [0, most // 4, most // 2, most], tokens=None)
    assert f"{name}, log scale" in texts(drawn(case))


def test_settings_are_written_in_one_form() -> None:
    assert numbers([0.001, 0.01, 3, 99_999]) == ["0.001", "0.01", "3", "99999"]
    assert numbers([0, 9e-4, 0.003]) == ["0", "9e-4", "3e-3"] and numbers([1, 1e5]) == ["1e0", "1e5"]
    assert numbers([-0.5, 0]) == ["-0.5", "0"] and numbers([1.25e-4]) == ["1.25e-4"]
