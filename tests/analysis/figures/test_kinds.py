"""The numbers of each figure against independent formulas, and that they are what is drawn."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from analysed_studies import case
from conftest import ROOT
from drawn_figures import drawn, has_line
from fake_studies import fabricate, plain_score, with_cells
from ladders import climbed
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from shown_studies import CLAIMS as SHOWN
from shown_studies import FFN, claim, diagnosed, solved
from shown_studies import THREE as STEPS

from ablate import evidence
from ablate.runs.kept_tables import read_tables
from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.figures import style

GLU = {"ffn": ["mlp", "swiglu"]}


def areas(axis: Axes) -> list[tuple[float, float]]:
    """From where to where the areas of an axis go."""
    boxes = [c.get_paths()[0].get_extents() for c in axis.collections if not isinstance(c, LineCollection)]
    return [(box.x0, box.x1) for box in boxes]


def scores(shown: Case, **levels: Any) -> np.ndarray:
    """The scores of the runs with these levels, by seed, averaged over cells."""
    runs = shown.study.runs
    for name, level in levels.items():
        runs = runs[runs[name] == level]
    return runs.groupby("seed")["test/loss"].mean().to_numpy()


def test_a_forest_shows_each_effect_with_its_interval_in_the_colour_of_its_verdict(tmp_path):
    shown = case(tmp_path, {"ffn": FFN}, seeds=range(8))
    table, figure = drawn("effects", shown)
    effects = evidence.effects(shown.study).set_index("level")
    axis = figure.axes[0]
    for row in table.itertuples():
        assert (row.mean, row.low, row.high) == tuple(effects.loc[row.level, ["mean", "low", "high"]])
        assert has_line(axis, [row.low, row.high], [row.Index] * 2)
        assert row.result.endswith(row.verdict)
        point = next(line for line in axis.lines if list(line.get_ydata()) == [row.Index] and line.get_marker() == "o")
        assert point.get_xdata()[0] == row.mean
        is_decided = row.verdict in ("better", "worse")
        assert (point.get_markerfacecolor() != "white") == is_decided
    assert table.set_index("level").loc["swiglu", "verdict"] == "better"
    assert style.VERDICTS["better"] == style.VERDICTS["supported"] != style.VERDICTS["worse"]


@pytest.mark.parametrize(
    ("figure", "claims", "is_tested"),
    [("effects", "", True), ("effects", "lower", False), ("claims", "lower", True), ("claims", "late", False)],
)
def test_captions_explain_colours_where_there_are_verdicts(tmp_path, figure, claims, is_tested):
    shown = case(tmp_path, {"ffn": FFN}, seeds=range(6), claims={name: SHOWN[name] for name in claims.split()})
    table, _ = drawn(figure, shown)
    assert ("filled: decided" in table.attrs["caption"][0]) == is_tested


def test_the_margin_is_grey_and_the_legend_says_so(tmp_path):
    margin = {"value": 0.02, "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    _, figure = drawn("effects", case(tmp_path, GLU, seeds=range(5), margin=margin))
    assert areas(figure.axes[0]) == [(-0.02, 0.02)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["margin"]


@pytest.mark.parametrize(("away", "arrow"), [(97.0, ">"), (-97.0, "<")])
def test_one_far_interval_leaves_the_axis_with_an_arrow_and_does_not_squeeze_the_others(tmp_path, away, arrow):
    means = {"mlp": 2.0, "gelu": 2.1, "silu": 1.9, "swiglu": 2.0 + away}
    noise = lambda levels, seed: means[levels["ffn"]] + 0.001 * np.random.default_rng(seed).normal()  # noqa: E731
    _, figure = drawn("effects", case(tmp_path, {"ffn": FFN}, seeds=range(5), score=noise))
    low, high = figure.axes[0].get_xlim()
    assert -3 < low < -0.1 < 0.1 < high < 3
    assert [line.get_marker() for line in figure.axes[0].lines if line.get_marker() in "<>"] == [arrow]


def test_a_mean_outside_of_its_interval_is_drawn(tmp_path):
    """As of skewed differences, whose interval is of the sign test."""
    skewed = lambda v, seed: 2 + (v["norm"] == "rms") * (9.0 if seed == 6 else 0.001 * seed)  # noqa: E731
    table, figure = drawn("effects", case(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(14), score=skewed))
    assert table["mean"].item() > table["high"].item()
    assert has_line(figure.axes[0], [table["low"].item(), table["high"].item()], [0, 0])
    assert has_line(figure.axes[0], table["mean"].item(), 0)


def test_what_is_withheld_has_no_number_in_a_forest(tmp_path):
    status = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed < 2 else "done"  # noqa: E731
    table, figure = drawn("effects", case(tmp_path, GLU, seeds=range(5), status=status))
    assert table["mean"].isna().all()
    assert table["result"][0].startswith("withheld: ")
    points = [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert np.isnan(np.asarray(points, float)).all()


def test_strata_and_factors_of_many_rows_are_headings(tmp_path):
    table, figure = drawn("effects", case(tmp_path, {"ffn": FFN, "norm": ["ln", "rms"], "optim.lr": [1e-3, 1e-2]}))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names.count("at learning rate 1e-3") == 1
    assert not table.loc[table["heading"] != "", "name"].str.contains(" at ").any()


CLAIMS = {name: SHOWN[name] for name in ("lower", "near", "late", "no_more", "no_less", "safe", "theirs")}


def test_claims_stand_on_what_they_claim(tmp_path):
    shown = case(tmp_path, {"ffn": FFN}, seeds=range(6), claims=CLAIMS)
    table, figure = drawn("claims", shown)
    judged = evidence.claims(shown.study)
    assert np.allclose(table[["mean", "low", "high"]], judged[["mean", "low", "high"]], equal_nan=True)
    assert table["facet"].nunique() == 3
    assert table["mean"][0] == pytest.approx((scores(shown, ffn="swiglu") - scores(shown, ffn="mlp")).mean())
    axis = figure.axes[0]
    assert has_line(axis, [table["low"][0], table["high"][0]], [0, 0])
    low, high = axis.get_xlim()
    expected = [(low, 0), (-0.02, 0.02), (0, high), (low, 0.02), (-0.02, high)]  # less, equivalent, greater, not …
    assert np.allclose(areas(axis), expected)
    assert table["name"][2] == "late: GELU MLP − ReLU MLP, post hoc"
    assert "over 6 registered claims" in table.attrs["caption"][0]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["claimed: the first minus the second"]


def test_a_claimed_multiplier_stands_on_the_side_of_its_bound(tmp_path):
    of = {"multiplier": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "at": {"rung": 3}}
    claims = {"more": claim(above=1.1, **of), "less": claim(below=0.9, **of)}
    table, figure = drawn("claims", case_of(climbed(lambda c: 0.3, count=3, claims=claims), tmp_path))
    [more, less] = areas(figure.axes[0])
    assert (more[0], less[1]) == pytest.approx((1.1, 0.9))
    assert has_line(figure.axes[0], [1, 1], [0, 1])
    assert list(table["verdict"]) == ["supported", "contradicted"]
    assert table["result"][0].startswith("×1.29 [")


def test_a_waterfall_goes_from_the_first_values_to_the_last(tmp_path):
    shown = case(tmp_path, STEPS, design="cumulative", seeds=range(5))
    table, figure = drawn("waterfall", shown)
    means = shown.study.runs.groupby("cell")["test/loss"].mean()
    assert list(table["kind"])[:2] == ["first", "step"]
    assert np.allclose(table["start"], means[["c0", "c0", "c1", "c2", "c0"]])
    assert np.allclose((table["start"] + table["mean"])[1:], means[["c1", "c2", "c3", "c3"]])
    assert list(table["name"][1:]) == ["+ RMSNorm", "+ SwiGLU", "+ Post-LN", "all steps together"]
    bar = table.loc[2]
    axis = figure.axes[0]
    patch = axis.patches[1]
    assert sorted([patch.get_x(), patch.get_x() + patch.get_width()]) == pytest.approx(sorted(means[["c1", "c2"]]))
    assert has_line(axis, [means["c1"]] * 2, [1, 2])
    assert has_line(axis, [bar["start"] + bar["low"], bar["start"] + bar["high"]], [2, 2])
    assert np.allclose(table[["low", "high"]][1:], shown.effects[["low", "high"]])


def test_interactions_are_lines_through_the_means_of_each_combination(tmp_path):
    shown = case(tmp_path, STEPS, seeds=range(6))
    table, figure = drawn("interactions", shown)
    effects = shown.effects[shown.effects["kind"] == "interaction"]
    assert table["factor"][0] == effects.loc[effects["mean"].abs().idxmax(), "factor"], "the largest first"
    points = table[table["factor"] == "norm x ffn"]
    assert len(points) == 4
    for row in points.itertuples():
        assert row.mean == pytest.approx(scores(shown, norm=row.first, ffn=row.second).mean())
    axis = next(axis for axis in figure.axes if axis.get_title("left").startswith("norm × FFN"))
    assert has_line(axis, [0, 1], points.loc[points["second"] == "mlp", "mean"])


def test_a_combination_without_all_runs_has_no_point(tmp_path):
    lost = {"norm": "rms", "ffn": "swiglu"}
    status = lambda levels, seed: "diverged" if levels == lost and seed == 1 else "done"  # noqa: E731
    shown = case(tmp_path, {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, seeds=range(5), status=status)
    table, _ = drawn("interactions", shown)
    assert table.loc[table["mean"].isna(), ["first", "second"]].to_numpy().tolist() == [["rms", "swiglu"]]


def test_seeds_are_dots_joined_where_batches_were_equal(tmp_path):
    shown = case(tmp_path, {"norm": ["ln", "rms"], "data.context": [16, 32]}, batches=lambda v: str(v["data.context"]))
    table, figure = drawn("seeds", shown)
    runs = table.merge(shown.study.runs, on=["cell", "seed"])
    assert runs["value"].tolist() == runs["test/loss"].tolist()
    axis = figure.axes[0]
    joined = [line for line in axis.lines if line.get_linewidth() == pytest.approx(0.4)]
    assert [len(line.get_xdata()) for line in joined] == [2] * 6  # of two contexts and three seeds
    assert has_line(axis, table.groupby("cell", sort=False)["value"].mean(), range(4))


def with_sizes(results: Path, **options: Any) -> Case:
    factors = {"ffn": FFN, "model.dim": [32, 64]}
    name = fabricate(results, factors, score=lambda v, s: plain_score(v, s) - 0.002 * v["model.dim"], **options)
    sizes = lambda i, cell: {"params": 1000 * cell.levels["model.dim"] + 10 * FFN.index(cell.levels["ffn"])}  # noqa: E731
    return case_of(with_cells(load_study(results, name), sizes), results)


def test_the_frontier_is_what_no_cell_beats_in_both(tmp_path):
    lost = {("swiglu", 64, 0): "diverged", ("gelu", 64, 0): "failed"}
    shown = with_sizes(tmp_path, status=lambda v, s: lost.get((*v.values(), s), "done"))
    table, figure = drawn("pareto", shown)
    rows = table[table["facet"] == "parameters"].set_index("cell")
    assert rows["cost"].to_dict() == {cell.id: cell.params for cell in shown.study.manifest.cells}
    complete = rows[rows["diverged"] + rows["failed"] == 0]
    for cell, row in rows.iterrows():
        is_beaten = ((complete["cost"] <= row["cost"]) & (complete["mean"] < row["mean"])).any()
        is_beaten |= ((complete["cost"] < row["cost"]) & (complete["mean"] <= row["mean"])).any()
        assert row["frontier"] == (cell in complete.index and not is_beaten)
    assert rows["frontier"].sum() >= 2
    edge = rows[rows["frontier"]].sort_values("cost")
    assert has_line(figure.axes[0], edge["cost"], edge["mean"])
    assert rows["label"].str.contains("1 of 3 diverged").sum() == 1


def test_diagnostics_are_means_over_seeds_by_step_and_layer(tmp_path):
    status = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed else "done"  # noqa: E731
    name = fabricate(tmp_path, GLU, status=status)
    diagnosed(tmp_path, name)
    shown = case_of(load_study(tmp_path, name), tmp_path)
    table, figure = drawn("diagnostics", shown)
    curves = shown.study.curves[shown.study.curves["cell"] == "c0"]
    norms = ["diag/grad_norm/embed", "diag/grad_norm/blocks.2"]
    rows = table[(table["facet"] == "gradient norm") & (table["cell"] == "c0")]
    steps = rows[rows["panel"] == "steps"]
    largest = curves[norms].max(axis=1).groupby(curves["step"])
    assert np.allclose(steps["mean"], largest.mean())
    assert np.allclose(steps["high"] - steps["mean"], largest.std())
    layers = rows[rows["panel"] == "layers"]
    assert list(layers["layer"]) == ["embed", "blocks.2"]
    assert np.allclose(layers["mean"], curves.loc[curves["step"] == 800, norms].mean())
    left, right = figure.axes[:2]
    assert has_line(left, steps["step"], steps["mean"])
    assert has_line(right, range(2), layers["mean"])
    assert len([line for line in left.lines if line.get_marker() == "x"]) == 2  # the diverged runs


def test_a_log_axis_of_diagnostics_has_no_room_for_what_is_below_zero(tmp_path):
    shown = case(tmp_path, GLU)
    curves = shown.study.curves.assign(**{"diag/grad_norm/embed": 1.0})
    curves["diag/grad_norm/blocks.2"] = 10.0 ** (curves["seed"] * 2 - 2)
    table, figure = drawn("diagnostics", shown._replace(study=dataclasses.replace(shown.study, curves=curves)))
    assert table["low"].min() < 0
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_ylim()[0] > 0


def test_a_table_of_the_paper_stands_beside_our_means_in_its_order(tmp_path):
    series = [{"of": {"ffn": "swiglu"}, "value": 22.5}, {"of": {"ffn": "mlp"}, "value": 23.6}]
    mirror = {"source": "P 2019, table 1", "metric": "perplexity", "series": series}
    shown = case(tmp_path, GLU, seeds=range(5), mirror=mirror)
    _, figure = drawn("mirror", shown)
    theirs, ours = figure.axes
    assert (theirs.get_ylabel(), ours.get_ylabel()) == ("perplexity", "test loss (nats per byte)")
    for place, (level, value) in enumerate([("swiglu", 22.5), ("mlp", 23.6)]):
        assert has_line(theirs, place, value)
        values = scores(shown, ffn=level)
        assert has_line(ours, place, values.mean())
        sd = values.std(ddof=1)
        assert has_line(ours, [place] * 2, [values.mean() - sd, values.mean() + sd])
    assert {line.get_markerfacecolor() for line in theirs.lines} == {"white"}


def test_curves_of_the_paper_are_in_units_of_its_training(tmp_path):
    mirror = {"source": "P", "metric": "validation loss", "x": "epoch", "trained": 15, "at": {"ffn": "swiglu"}}
    mirror["series"] = [{"of": {"norm": "ln"}, "points": [[3, 4.0], [15, 2.5]]}]
    table, figure = drawn("mirror", case(tmp_path, {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, mirror=mirror))
    assert has_line(figure.axes[0], [0.2, 1], [4.0, 2.5])
    assert figure.axes[1].lines[0].get_xdata()[-1] == 1
    assert set(table["cell"]) == {"c1"}  # LayerNorm with SwiGLU


@pytest.mark.parametrize(("count", "norms"), [(3, ("ln", "rms")), (4, ())])
def test_a_ladder_shows_losses_and_multipliers(tmp_path, norms, count):
    shown = case_of(climbed(lambda c: 0.3, noise=0.002, count=count, norms=norms), tmp_path)
    table, figure = drawn("ladder", shown)
    worths = evidence.ladder(shown.study)
    losses = table[table["panel"] == "loss"]
    assert len(losses) == (2 + len(norms) // 2) * count  # none at another learning rate
    values = scores(shown, ffn="swiglu", rung=2)
    row = losses[(losses["label"] == "SwiGLU") & (losses["rung"] == 2)].iloc[0]
    assert (row["mean"], row["high"]) == pytest.approx((values.mean(), values.mean() + values.std(ddof=1)))
    multipliers = table[table["panel"] == "multiplier"]
    assert np.allclose(multipliers[["mean", "low", "high"]], worths[["multiplier", "low", "high"]].sort_index())
    left, right = figure.axes
    reference = losses[losses["label"].str.endswith("(reference)")]
    assert has_line(left, reference["compute"], reference["mean"])
    row = multipliers.iloc[0]
    assert has_line(right, [row["compute"]] * 2, [max(row["low"], row["mean"] / 4), min(row["high"], row["mean"] * 4)])


def test_a_ladder_without_multipliers_shows_losses(tmp_path):
    table, figure = drawn("ladder", case_of(climbed(lambda c: 0.3, other_steps=False), tmp_path))
    assert set(table["panel"]) == {"loss"}
    assert len(figure.axes) == 1


def test_a_ladder_that_was_judged_by_an_earlier_method_keeps_its_figure(tmp_path):
    folder = ROOT / "experiments" / "results" / "compute_ladder"
    recorded = pandas.read_csv(folder / "ladder.csv").query("panel == 'multiplier'")
    table, _ = drawn("ladder", case_of(read_tables(folder), tmp_path))
    assert np.allclose(table.loc[table["panel"] == "multiplier", "mean"], recorded["mean"])
    assert table["compute"].max() < 1e13, "nothing beyond what was trained"
    assert "as judged when the study was run" in table.attrs["caption"][0]


def test_shares_of_solved_runs_rise_over_steps(tmp_path):
    """RoPE solves the task at steps 200, 240, …, the others at 400 with every second seed."""
    shown = case_of(load_study(tmp_path, solved(tmp_path, 0.99)), tmp_path)
    table, figure = drawn("solved", shown)
    assert table.loc[table["cell"] == "c0", "x"].tolist() == [200, 240, 280, 320, 360, 400]
    assert table.loc[table["cell"] == "c1", "x"].tolist() == [400, math.inf] * 3
    shares = [place / 6 for place in range(7)]
    assert has_line(figure.axes[0], [0, 200, 240, 280, 320, 360, 400, 800], [*shares, 1])
