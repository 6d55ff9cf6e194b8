"""Figures against a number: learning rate, depth, width, length at evaluation, tokens."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysed_studies import case as made
from conftest import ROOT
from drawn_figures import drawn, has_line
from fake_studies import TASK, fabricate, study_of
from shown_studies import with_lengths
from statsmodels.stats.proportion import proportion_confint

from ablate.runs.kept_tables import read_tables
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.learning_curves import over_seeds

RATES = [1e-4, 1e-3, 1e-2]


def valley(levels: dict[str, Any], seed: int) -> float:
    """A loss that is lowest at the middle rate, higher for rms."""
    away = abs(math.log10(levels.get("optim.lr", 1e-3)) + 3)
    return 2.0 + 0.3 * away + 0.01 * seed + 0.1 * (levels.get("norm") == "rms")


def test_a_sweep_of_rates_is_a_line_per_variant_with_a_ring_at_its_best(tmp_path):
    table, figure = drawn("sensitivity", made(tmp_path, {"norm": ["ln", "rms"], "optim.lr": RATES}, score=valley))
    ln = table[table["label"] == "LayerNorm"]
    assert list(ln["x"]) == RATES
    assert ln["mean"].tolist() == pytest.approx([2.31, 2.01, 2.31])
    assert (ln["high"] - ln["mean"]).tolist() == pytest.approx([0.01] * 3)
    assert list(ln["best"]) == [False, True, False]
    axis = figure.axes[0]
    assert axis.get_xscale() == "log"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1e-4", "1e-3", "0.01"]
    assert has_line(axis, ln["x"], ln["mean"])
    assert has_line(axis, [1e-3], [2.01])


def test_a_value_at_which_runs_diverged_is_an_open_point(tmp_path):
    lost = lambda v, s: "diverged" if v["optim.lr"] == 1e-2 and v["norm"] == "rms" and s < 2 else "done"  # noqa: E731
    shown = made(tmp_path, {"norm": ["ln", "rms"], "optim.lr": RATES}, score=valley, status=lost)
    _, figure = drawn("sensitivity", shown)
    axis = figure.axes[0]
    [point] = [line for line in axis.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
    assert (point.get_xdata()[0], point.get_ydata()[0]) == pytest.approx((1e-2, 2.42))


@pytest.mark.parametrize(("score", "is_edge"), [(lambda v, s: 2 + v["optim.lr"], True), (valley, False)])
def test_a_best_rate_at_the_edge_is_said(tmp_path, score, is_edge):
    table, _ = drawn("sensitivity", made(tmp_path, {"optim.lr": RATES}, score=score))
    assert ("best at the edge" in " ".join(table.attrs["caption"])) == is_edge


def test_many_lines_have_a_panel_per_width(tmp_path):
    rates = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
    factors = {"norm": ["ln", "rms", "none"], "model.dim": [32, 64, 128], "optim.lr": rates}
    table, figure = drawn("sensitivity", case_of(study_of(factors, score=valley), tmp_path))
    assert table.groupby(["label", "facet"]).size().tolist() == [6] * 9
    assert [axis.get_title("left") for axis in figure.axes] == ["width 32", "width 64", "width 128"]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1e-4", "1e-3", "0.01"], "every second"


def test_of_too_many_lines_whole_ones_are_left_out(tmp_path):
    names = [f"v{i}" for i in range(30)]
    score = lambda levels, seed: valley(levels, seed) + names.index(levels["norm"])  # noqa: E731
    table, _ = drawn("sensitivity", case_of(study_of({"norm": names, "optim.lr": RATES}, score=score), tmp_path))
    assert table.groupby("label").size().tolist() == [3] * 24
    assert "24 of 30 shown" in table.attrs["caption"][-1]


def test_width_has_a_panel_per_context(tmp_path):
    shown = made(tmp_path, {"ffn": ["mlp", "swiglu"], "model.dim": [32, 64], "data.context": [16, 32]})
    table, figure = drawn("width", shown)
    assert [axis.get_title("left") for axis in figure.axes] == ["context length 16", "context length 32"]
    assert {*table["label"]} == {"ReLU MLP", "SwiGLU"}
    assert figures.KINDS["sensitivity"].table(shown) is None


def test_lengths_are_lines_with_the_training_length_marked(tmp_path):
    table, figure = drawn("extrapolation", case_of(load_study(tmp_path, with_lengths(tmp_path)), tmp_path))
    line = table[table["cell"] == "c0"]
    assert line["x"].tolist() == [32, 64, 128]
    assert line["mean"].tolist() == pytest.approx([2.02, 16.02, 128.02])
    assert (line["high"] - line["low"]).tolist() == pytest.approx([2 * np.std(0.01 * np.arange(5), ddof=1)] * 3)
    axis = figure.axes[0]
    assert has_line(axis, line["x"], line["mean"])
    assert has_line(axis, [64, 64], [0, 1])


def test_each_task_has_a_panel_with_its_own_metric(tmp_path):
    """More accuracy is better, more loss is worse: at the same rates the best of one is the worst of the other."""
    tasks = {"lm": TASK, "mqar": TASK | {"metrics": {"accuracy": "max", "loss": "min"}}}
    factors = {"norm": ["ln", "rms"], "optim.lr": RATES, "data": ["lm", "mqar"]}
    shown = made(tmp_path, factors, score=valley, tasks=tasks, task=lambda levels: levels["data"])
    table, figure = drawn("sensitivity", shown)
    assert [axis.get_ylabel() for axis in figure.axes] == ["test loss\n(nats per byte)", "test accuracy"]
    of_loss, of_accuracy = [set(rows.loc[rows["best"], "x"]) for _, rows in table.groupby("facet", sort=False)]
    assert of_loss == {1e-3}
    assert of_accuracy <= {1e-4, 1e-2}


def test_shares_solved_have_wilson_intervals_within_0_and_1(tmp_path):
    shown = case_of(read_tables(ROOT / "experiments" / "results" / "mqar_mixers"), tmp_path)
    table, _ = drawn("width", shown)
    low, high = proportion_confint((table["mean"] * table["n"]).round(), table["n"], method="wilson")
    assert np.allclose(table[["low", "high"]], np.column_stack([low, high]), atol=1e-9)
    assert "Wilson" in table.attrs["caption"][0]


# Learning curves


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    folder = tmp_path_factory.mktemp("curves")
    return load_study(folder, fabricate(folder, {"ffn": ["mlp", "swiglu"]}, range(3)))


def evaluated(study: Study, steps: list[int]) -> Case:
    """A study that was evaluated at these steps alone."""
    curves = study.curves[study.curves["step"].isin(steps)]
    return case_of(dataclasses.replace(study, curves=curves), Path("nowhere"))


def test_the_band_is_one_standard_deviation_where_every_seed_was_evaluated(study):
    rows = study.curves[study.curves["cell"] == "c1"].assign(status="done", value=study.curves["val/loss"])
    rows = rows[~((rows["seed"] == 2) & (rows["step"] == 400))]
    table = over_seeds(rows, ["cell", "step"]).set_index("step")
    values = rows[rows["step"] == 800]["value"]
    assert table.loc[800, "high"] == pytest.approx(values.mean() + values.std(ddof=1))
    assert 400 not in table.index
    assert 360 in table.index


def test_curves_are_shown_with_their_differences_to_the_reference(study):
    table, figure = drawn("curves", evaluated(study, [0, 200, 400, 600, 800]))
    left, right = figure.axes
    means = table[table["tokens"] > 0].pivot(index="tokens", columns="cell", values="mean")
    assert has_line(left, means.index, means["c1"])
    assert left.get_xscale() == "log"
    assert has_line(right, means.index, 0 * means["c0"])
    assert has_line(right, means.index, means["c1"] - means["c0"])


def test_a_diverged_run_is_a_line_of_its_own_and_in_no_mean(tmp_path):
    status = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed == 1 else "done"  # noqa: E731
    shown = made(tmp_path, {"ffn": ["mlp", "swiglu"]}, status=status)
    table, figure = drawn("curves", shown)
    assert table.loc[(table["cell"] == "c1") & (table["status"] == "done"), "n"].eq(2).all()
    [thin] = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    run = table[(table["status"] == "diverged") & (table["tokens"] > 0)].dropna(subset="mean")
    assert list(thin.get_xdata()) == list(run["tokens"])
    assert "SwiGLU (1 of 3 diverged)" in set(table["label"])


@pytest.mark.parametrize(("unit", "top"), [(1, 1), (100, 75 + 100 * 0.5**1.5)], ids=["share", "per cent"])
def test_a_band_of_shares_ends_where_shares_end(tmp_path, unit, top):
    task = TASK | {"metrics": {"accuracy": "max"}, "shares": ["accuracy"]}
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(2), tasks={"f0": task}))
    is_wrong = (study.curves["cell"] == "c1") & (study.curves["seed"] == 1)
    study.curves["val/accuracy"] = np.where(is_wrong, 0.5 * unit, unit)
    table, _ = drawn("curves", case_of(study, tmp_path))
    assert table["high"].max() == pytest.approx(top)


def test_curves_of_several_strata_have_a_panel_each_with_one_encoding_per_variant(tmp_path):
    shown = made(tmp_path, {"ffn": ["mlp", "swiglu"], "model.dim": [32, 64]})
    table, figure = drawn("curves", shown)
    assert list(table["facet"].unique()) == ["width 32", "width 64"]
    assert set(table["label"]) == {"ReLU MLP", "SwiGLU"}
    assert len(figure.legends[0].get_texts()) == 2
    colours = [{line.get_color() for line in axis.lines if len(line.get_xdata()) > 1} for axis in figure.axes[::2]]
    assert colours[0] == colours[1]


def test_a_run_that_was_evaluated_once_has_no_curve(study):
    assert figures.KINDS["curves"].table(evaluated(study, [0, 800])) is None
    assert figures.KINDS["curves"].table(evaluated(study, [400, 800])) is not None
