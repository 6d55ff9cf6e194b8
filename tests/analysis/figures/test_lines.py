"""Figures against a number: learning rate, depth, width, the length at evaluation."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from analysed_studies import case as made
from fake_studies import TASK, fabricate, study_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.draw.axes import log_axis
from analysis.figures.kind import page_of
from analysis.figures.kinds import curves
from analysis.writing.chart import chart

RATES = [1e-4, 1e-3, 1e-2]


def valley(levels: dict[str, Any], seed: int) -> float:
    """A loss that is lowest at the middle rate, higher for rms."""
    away = abs(math.log10(levels.get("optim.lr", 1e-3)) + 3)
    return 2.0 + 0.3 * away + 0.01 * seed + 0.1 * (levels.get("norm") == "rms")


def table_of(name: str, case: Case) -> pandas.DataFrame:
    """The table of one figure."""
    return figures.tables(case, figures.Edits(figures=[name]))[name]


def both(name: str, case: Case) -> tuple[pandas.DataFrame, Figure]:
    """One figure and its table."""
    table = table_of(name, case)
    return table, figures.KINDS[name].draw(table, page_of(case.study.manifest, figures.Edits()))


def points(axis: Axes) -> list[list[tuple[float, float]]]:
    """What the lines of an axis join."""
    drawn = [np.column_stack([line.get_xdata(), line.get_ydata()]) for line in axis.lines]
    return [[tuple(point) for point in line if np.isfinite(point).all()] for line in drawn]  # type: ignore[misc]


def test_a_value_as_good_as_the_best_inside_the_grid_leaves_no_note_on_its_edge(tmp_path: Path) -> None:
    flat = lambda levels, seed: 1.0 if levels["optim.lr"] < 1e-2 else 2.0  # noqa: E731
    table = table_of("sensitivity", made(tmp_path / "tie", {"norm": ["ln", "rms"], "optim.lr": RATES}, score=flat))
    assert not table["label"].str.contains("edge").any()
    steep = lambda levels, seed: 100 * levels["optim.lr"]  # noqa: E731
    table = table_of("sensitivity", made(tmp_path / "edge", {"norm": ["ln", "rms"], "optim.lr": RATES}, score=steep))
    assert table["label"].str.contains("best at the edge").all()


def test_a_sweep_of_rates_is_a_line_per_variant_with_its_best_and_its_sensitivity(tmp_path: Path) -> None:
    case = made(tmp_path, {"norm": ["ln", "rms"], "optim.lr": RATES}, score=valley)
    table, drawn = both("sensitivity", case)
    ln = table[table["label"].str.startswith("LayerNorm")]
    assert list(ln["x"]) == RATES and ln["mean"].tolist() == pytest.approx([2.31, 2.01, 2.31])
    assert (ln["high"] - ln["mean"]).tolist() == pytest.approx([0.01] * 3)
    assert list(ln["best"]) == [False, True, False] and drawn.axes[0].get_xscale() == "log"
    # min(l, l0) - l* is 0.3, 0, 0.3: all losses are below those at the start.
    assert set(ln["label"]) == {"LayerNorm (sensitivity 0.200)"}
    expected = list(zip(ln["x"], ln["mean"], strict=True))
    assert any(np.allclose(line, expected) for line in points(drawn.axes[0]) if len(line) == 3)


def test_a_diverged_run_counts_at_its_initial_loss_and_stands_at_the_top(tmp_path: Path) -> None:
    lost = lambda v, s: "diverged" if v["optim.lr"] == 1e-2 and v["norm"] == "rms" and s < 2 else "done"  # noqa: E731
    case = made(tmp_path, {"norm": ["ln", "rms"], "optim.lr": RATES}, score=valley, status=lost)
    table, drawn = both("sensitivity", case)
    rms = table[table["label"].str.startswith("RMSNorm")]
    first = case.study.curves.query("step == 0").groupby("cell")["val/loss"].mean()[rms["cell"].iloc[-1]]
    expected = np.mean([0.3, 0, (2 * first + 2.42) / 3 - 2.11])
    assert set(rms["label"]) == {f"RMSNorm (sensitivity {formatting.number(expected, 3)})"}
    said = [text.get_text() for text in drawn.axes[0].texts]
    assert said[0] == "× 2 of 3" and {*said[1:]} == {*table["label"]}, "names stand at the ends of lines"
    assert not drawn.legends
    assert [line for line in points(drawn.axes[0]) if len(line) == 1 and np.allclose(line, [(1e-2, 2.42)])]  # apart
    told = "there, and only there, a diverged run counts, at its initial loss"
    assert any(told in line for line in table.attrs["caption"])


def test_of_several_numbers_the_learning_rate_is_the_axis(tmp_path: Path) -> None:
    found = table_of("sensitivity", made(tmp_path, {"model.dropout": [0.0, 0.1], "optim.lr": RATES}, score=valley))
    assert found.attrs["x"] == "optim.lr" and sorted(set(found["x"])) == RATES


def test_many_lines_have_a_panel_per_width_and_are_never_cut(tmp_path: Path) -> None:
    norms = {"norm": ["ln", "rms", "none"]}
    rates, widths = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2], [32, 64, 128]
    case = case_of(study_of(norms | {"model.dim": widths, "optim.lr": rates}, score=valley), tmp_path)
    table, drawn = both("sensitivity", case)
    assert len(table) == 54 and table.groupby(["label", "facet"]).size().tolist() == [6] * 9, (
        "more cells than are shown"
    )
    assert [axis.get_title() for axis in drawn.axes] == ["width 32", "width 64", "width 128"]
    named = [text.get_text() for text in drawn.axes[0].get_xticklabels() if text.get_text()]
    assert named == ["1e-4", "1e-3", "1e-2"], "every second, so that they do not overlap"
    tens = {"model.dim": [16 * i for i in range(1, 11)], "optim.lr": rates}
    one = case_of(study_of(tens, score=valley), tmp_path)
    assert len(both("sensitivity", one)[1].axes) == 1, "panels of a single line would compare nothing"
    pair = {"norm": ["ln", "rms"], "model.dim": widths, "optim.lr": rates}
    two = case_of(study_of(pair, score=valley), tmp_path)
    assert len(both("sensitivity", two)[1].axes) == 1, "six lines are one panel"


def test_of_too_many_lines_whole_ones_are_left_out(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(25)]
    score = lambda levels, seed: valley(levels, seed) + names.index(levels["norm"])  # noqa: E731
    table = table_of("sensitivity", case_of(study_of({"norm": names, "optim.lr": RATES}, score=score), tmp_path))
    assert table.groupby("label").size().tolist() == [3] * 24
    assert "72 of 75 configurations shown; the reference and those with the best score" in " ".join(
        table.attrs["caption"]
    )
    wide: Any = {"norm": names[:13], "model.dim": [32, 64], "optim.lr": RATES}
    shrinks = lambda levels, seed: score(levels, seed) - levels["model.dim"]  # noqa: E731
    table = table_of("sensitivity", case_of(study_of(wide, [0], shrinks), tmp_path))
    kept = table.groupby("facet")["label"].agg(lambda labels: {*labels.str.partition(" (")[0]})
    assert len(kept) == 2 and kept.iloc[0] == kept.iloc[1] and len(kept.iloc[0]) == 12, "every panel has the same"


def test_a_rate_without_an_ended_run_has_no_sensitivity(tmp_path: Path) -> None:
    failed = lambda levels, seed: "failed" if levels["optim.lr"] == 1e-2 else "done"  # noqa: E731
    table = table_of("sensitivity", made(tmp_path, {"optim.lr": RATES}, score=valley, status=failed))
    assert not table["label"].str.contains("sensitivity").any() and table["n"].tolist() == [3, 3, 0]


def test_a_best_rate_at_the_edge_is_flagged(tmp_path: Path) -> None:
    case = made(tmp_path, {"optim.lr": RATES}, score=lambda v, s: 2 + v["optim.lr"])
    table = table_of("sensitivity", case)
    assert table["label"].str.contains("best at the edge").all()
    assert "at the edge: wider values may be better" in " ".join(table.attrs["caption"])
    assert table["best"].tolist() == [True, False, False]


def test_the_ring_of_a_tuned_line_is_what_was_chosen_and_not_the_best_mean(tmp_path: Path) -> None:
    cells = {f"c{i}": {"value": 1e-3, "scores": [2.3, 2.01, 2.0], "edge": False} for i in range(2)}
    tuning = {"key": "optim.lr", "values": RATES, "seeds": 3, "study": "x-tune", "rule": "one_se", "cells": cells}
    table = table_of("sensitivity", made(tmp_path, {"norm": ["ln", "rms"]}, tuning=tuning))
    assert table["best"].tolist() == [False, True, False] * 2
    assert "ring: the value that was chosen" in " ".join(table.attrs["caption"])
    effects = table_of("effects", made(tmp_path / "again", {"norm": ["ln", "rms"]}, tuning=tuning))
    assert "learning rate tuned per variant; intervals ignore tuning noise" in effects.attrs["caption"]


def test_depth_and_width_have_figures_of_their_own(tmp_path: Path) -> None:
    def kinds(case: Case) -> set[str]:
        return {name for name in ("sensitivity", "depth", "width") if figures.KINDS[name].table(case) is not None}

    factors = {"residual": ["pre", "post"], "model.layers": [2, 4, 8]}
    deep = made(tmp_path / "deep", factors, status=lambda v, s: "diverged" if v["model.layers"] == 8 else "done")
    assert kinds(deep) == {"depth"}
    assert [text.get_text() for text in both("depth", deep)[1].axes[0].texts] == ["× 3 of 3"] * 2
    wide = made(tmp_path / "wide", {"ffn": ["mlp", "swiglu"], "model.dim": [32, 64], "data.context": [16, 32]})
    table, drawn = both("width", wide)
    assert set(table["facet"]) == {"context length 16", "context length 32"} and {*table["label"]} == {
        "ReLU MLP",
        "SwiGLU",
    }
    assert kinds(wide) == {"width"} and len(drawn.axes) == 2


def test_long_titles_of_panels_are_not_cut(tmp_path: Path) -> None:
    factors = {"ffn": ["mlp", "swiglu"], "model.dim": [32, 64], "data.context": [16, 32], "train.batch_size": [8, 16]}
    factors = factors | {"train.steps": [1000, 2000]}
    table = table_of("width", case := made(tmp_path, factors))
    with matplotlib.rc_context(style.RC):
        drawn = figures.KINDS["width"].draw(table, page_of(case.study.manifest, figures.Edits()))
        drawn.draw_without_rendering()
    titles = [axis._left_title.get_window_extent() for axis in drawn.axes if axis.get_title(loc="left")]  # type: ignore[attr-defined]
    assert len(titles) > 1 and "\n" in drawn.axes[0].get_title(loc="left")
    assert all(title.x0 >= 0 and title.x1 <= drawn.bbox.x1 for title in titles)


def test_lengths_are_lines_with_the_training_length_marked(tmp_path: Path) -> None:
    name = fabricate(tmp_path, {"position": ["rope", "alibi"]})
    for run in read_manifest(tmp_path, name).runs:
        far = 0.5 if run.path.startswith("ln-mlp-pre-rope") else 0.0
        metrics = {f"test/loss@{n}": 2 + far * (n > 64) + 0.01 * run.seed for n in (32, 64, 128, 256)}
        write_json(Run(tmp_path, run.path).evaluation_file, {"metrics": metrics})
    case = case_of(load_study(tmp_path, name), tmp_path)
    table, drawn = both("extrapolation", case)
    axis = drawn.axes[0]
    rope = table[table["label"].str.startswith("RoPE")]
    assert rope["x"].tolist() == [32, 64, 128, 256]
    assert rope["mean"].tolist() == pytest.approx([2.01, 2.01, 2.51, 2.51])
    assert (rope["high"] - rope["low"]).tolist() == pytest.approx([0.02] * 4)
    assert [(64, 0), (64, 1)] in points(axis) and axis.get_xscale() == "log"
    expected = list(zip(rope["x"], rope["mean"], strict=True))
    assert any(np.allclose(line, expected) for line in points(axis) if len(line) == 4)


def test_each_task_has_a_panel_with_its_own_metric(tmp_path: Path) -> None:
    """More accuracy is better, more loss is worse: at the same rates the best of one is the worst of the other."""
    tasks = {"f0": TASK, "f1": TASK | {"title": "dates", "metrics": {"accuracy": "max", "loss": "min"}}}
    task = lambda levels: {"stdlib": "f0", "dates": "f1"}[levels["data"]]  # noqa: E731
    factors = {"norm": ["ln", "rms"], "optim.lr": RATES, "data": ["stdlib", "dates"]}
    case = made(tmp_path, factors, score=valley, tasks=tasks, task=task)
    table, drawn = both("sensitivity", case)
    panels = [axis for axis in drawn.axes if axis.get_visible()]
    assert [axis.get_title() for axis in panels] == ["Python stdlib", "Dates"]
    assert [axis.get_ylabel() for axis in panels] == ["test loss (nats per byte)", "test accuracy"]
    assert "test loss (nats per byte) or test accuracy: mean over 3 seeds" in table.attrs["caption"][0]
    scored = evidence.scores(case.study)
    assert table["mean"].tolist() == pytest.approx([scored[cell].mean() for cell in table["cell"]])
    assert {label.split(" (")[0] for label in table["label"]} == {"LayerNorm", "RMSNorm"}
    best = table[table["best"]].set_index("facet")["x"]
    assert set(best["Python stdlib"]) == {1e-3} and set(best["Dates"]) <= {1e-4, 1e-2}
    assert table["label"].str.contains("best at the edge at Dates").all()


SECONDS = "SD over seeds; seconds"


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("timed")
    return load_study(folder, fabricate(folder, {"ffn": ["mlp", "swiglu"]}, range(2), timing="isolated"))


def evaluated(study: Study, steps: list[int], tokens: int | None = 1024) -> Case:
    """A study that was evaluated at these steps alone."""
    place = study.curves["step"].rank(method="dense").astype(int) - 1
    rows = study.curves[place < len(steps)].assign(step=[steps[i] for i in place if i < len(steps)])
    rows = rows.assign(tokens=rows["step"] * tokens) if tokens else rows.drop(columns="tokens")
    return case_of(dataclasses.replace(study, curves=rows), Path("nowhere"))


def drawn(case: Case) -> Figure:
    with matplotlib.rc_context(style.RC):
        table = figures.tables(case, Edits(figures=["curves"]))["curves"]
        return curves.draw(table, page_of(case.study.manifest, Edits(caption=True)))


def texts(figure: Figure) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.findobj(matplotlib.text.Text)]


def test_a_band_of_shares_ends_where_shares_end(tmp_path: Path) -> None:
    task = TASK | {"metrics": {"accuracy": "max"}, "shares": ["accuracy"]}
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(2), tasks={"f0": task}))
    study.curves["val/accuracy"] = study.curves["seed"].map({0: 1.0, 1: 0.5})
    table = curves.table(case_of(study, tmp_path))
    assert table is not None and set(table["mean"]) == {0.75} and set(table["high"]) == {1.0}
    page = chart(case_of(study, tmp_path))
    assert page
    assert max(max(line["y"]) for line in page["data"]) == 1
    study.curves["val/accuracy"] *= 100
    table = curves.table(case_of(study, tmp_path))
    assert table is not None and table["high"].min() > 100, "in per cent"


def test_a_log_axis_says_so_and_has_ticks_with_numbers(timed: Study) -> None:
    first = drawn(evaluated(timed, [0, 50, 100, 200, 400])).axes[0]
    assert first.get_xscale() == "log" and first.get_xlabel().endswith("log scale")
    low, high = first.get_xlim()
    shown = zip(first.get_xticklabels(), first.get_xticks(), strict=True)
    ticks = [tick.get_text() for tick, at in shown if low <= at <= high]
    assert len(ticks) >= 3 and all(ticks) and not first.get_xticks(minor=True).size
    axis = Figure().subplots()
    log_axis(axis.xaxis, 210, 480)
    assert len(axis.get_xticks()) >= 3, "a narrow range has ticks, too"
    log_axis(axis.yaxis, 0.01, 150)
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
def test_the_end_is_enlarged_only_where_it_is_not_the_whole(timed, steps, panels, shown, said):
    figure = drawn(evaluated(timed, steps))
    assert len(figure.axes) == panels and any(said in text for text in texts(figure))
    assert any(text.endswith("the end") for text in texts(figure)) == (panels == 3)
    first = figure.axes[0]
    low, high = first.get_xlim()
    inside = sorted({float(x) for line in first.lines for x in line.get_xdata() if low <= x <= high})
    assert inside == pytest.approx([1.024 * step for step in shown])
    assert panels == 3 or {line.get_marker() for line in first.lines} == {"o", "s"}  # one point alone is seen, too


@pytest.mark.parametrize(("most", "name"), [(2_000, "training steps"), (20_000, "training steps (thousands)")])
def test_a_few_thousand_steps_are_written_out(timed: Study, most: int, name: str) -> None:
    case = evaluated(timed, [0, most // 4, most // 2, most], tokens=None)
    assert f"{name}, log scale" in texts(drawn(case))
