"""Kinds of figures beyond curves, effects and seeds: chosen by content, their numbers against independent formulas."""

import dataclasses
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from analysed_studies import case
from fake_studies import TASK, Levels, edit_manifest, fabricate, plain_score, with_cells
from ladders import TOP, climbed
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import stats
from shown_studies import AUTO, FFN, claim
from shown_studies import CLAIMS as SHOWN
from shown_studies import THREE as STEPS
from statsmodels.stats.proportion import proportion_confint

from ablate import evidence, formatting
from ablate.config.ladder import levels_of_rungs
from ablate.runs.kept_tables import read_tables
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.kind import page_of
from analysis.figures.kinds import mirror

GLU = {"ffn": ["mlp", "swiglu"]}
PUBLISHED = [1.677, 1.679, 1.683, 1.636]
MIRRORED: dict[str, Any] = {"source": "P 2019, table 1", "metric": "BLEU"}
MIRRORED |= {"series": [{"of": {"ffn": name}, "value": value} for name, value in {"swiglu": 27.5, "mlp": 26.6}.items()]}


def table_of(name: str, given: Case) -> pandas.DataFrame:
    """The table of one figure."""
    return figures.tables(given, Edits(figures=[name]))[name]


def drawn(name: str, given: Case, **edits: Any) -> tuple[pandas.DataFrame, Figure]:
    """A figure with its table."""
    wanted = Edits(figures=[name], caption=True, **edits)
    table = figures.tables(given, wanted)[name]
    with matplotlib.rc_context(style.RC):
        return table, figures.KINDS[name].draw(table, page_of(given.study.manifest, wanted))


def fitting(name: str, given: Case) -> tuple[pandas.DataFrame, Figure]:
    """The same for the narrowest style's column: it is drawn without a warning, and no text leaves it."""
    with warnings.catch_warnings(), matplotlib.rc_context(style.RC):
        warnings.simplefilter("error")
        table, figure = drawn(name, given, width=3.03, style="acl")
        figure.draw_without_rendering()
        used, height = figure.get_tightbbox(), figure.get_figheight()
    width = figure.get_figwidth()
    assert used.x0 >= -0.01 and used.y0 >= -0.01 and used.x1 <= width + 0.01 and used.y1 <= height + 0.01, name
    return table, figure


def texts(figure: Figure) -> str:
    """All that is written in a figure, without the ends of lines."""
    return "\n".join(text.get_text().replace("\n", " ") for text in figure.findobj(matplotlib.text.Text))


def line(axis: Axes, x: Any, y: Any) -> bool:
    """Whether a line, a stretch or a dot with these coordinates is drawn."""
    there = [np.column_stack([each.get_xdata(), each.get_ydata()]).astype(float) for each in axis.lines]
    for each in axis.collections:
        there += each.get_segments() if isinstance(each, LineCollection) else list(each.get_offsets()[:, None])
    wanted = np.column_stack([np.atleast_1d(x), np.atleast_1d(y)]).astype(float)
    return any(points.shape == wanted.shape and np.allclose(points, wanted) for points in there)


def score(given: Case, **levels: Any) -> np.ndarray:
    """The scores of the runs with these levels, by seed, averaged over cells."""
    runs = given.study.runs
    for name, level in levels.items():
        runs = runs[runs[name] == level]
    return runs.groupby("seed")["test/loss"].mean().to_numpy()


def with_diagnostics(results: Path) -> Case:
    given = case(results, status=lambda v, s: "diverged" if v == {"norm": "rms", "ffn": "swiglu"} and s else "done")
    curves, rng = given.study.curves.copy(), np.random.default_rng(0)
    for key in ("grad_norm/embed", "grad_norm/blocks.2", "grad_norm/blocks.10", "attention_logit/blocks.2"):
        curves[f"diag/{key}"] = rng.uniform(1, 3, len(curves))
    return given._replace(study=dataclasses.replace(given.study, curves=curves))


def with_sizes(results: Path, **options: Any) -> Case:
    factors = {"ffn": FFN, "model.dim": [32, 64]}
    name = fabricate(results, factors, score=lambda v, s: plain_score(v, s) - 0.002 * v["model.dim"], **options)
    sizes = lambda i, cell: {"params": 1000 * cell.levels["model.dim"] + 10 * FFN.index(cell.levels["ffn"])}  # noqa: E731
    return case_of(with_cells(load_study(results, name), sizes), results)


def with_rungs(results: Path) -> Case:
    factors = {**GLU, "rung": levels_of_rungs(4)}
    name = fabricate(results, factors, design="ladder", score=lambda v, s: -0.1 * int(str(v["rung"])[0]) - 0.01 * s)
    flops = lambda i, cell: {"flops_per_token": 4.0 ** int(str(cell.levels["rung"])[0])}  # noqa: E731
    return case_of(with_cells(load_study(results, name), flops), results)


def with_solved(results: Path, seeds: Any = range(5)) -> Case:
    """rope solves its task at steps 200, 240, ..., alibi at none."""
    task = {"name": "mqar", "title": "MQAR", "kind": "classification", "token": "token", "metrics": {"accuracy": "max"}}
    tasks = {"f0": task | {"yardsticks": {}, "train_tokens": None}}
    given = case(results, {"position": ["rope", "alibi"]}, seeds=seeds, score=lambda v, s: 0.5, tasks=tasks)
    curves = given.study.curves
    reached = (curves["cell"] == "c0") & (curves["step"] >= 200 + 40 * curves["seed"])
    curves = curves.assign(**{"val/accuracy": np.where(reached, 1.0, 0.3)})
    return given._replace(study=dataclasses.replace(given.study, curves=curves))


CLAIMS = {name: SHOWN[name] for name in ("lower", "near", "late", "no_more", "no_less", "safe", "theirs")}
BASIC = {"effects", "seeds", "curves"}
AGAINST_A_NUMBER = {"sensitivity", "depth", "width", "extrapolation"}  # when they are drawn, test_lines.py says


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (case, "interactions"),
        (lambda at: case(at, {}), ""),
        (lambda at: case(at, STEPS, design="cumulative", seeds=range(5)), "waterfall"),
        (lambda at: case(at, STEPS, design="leave_one_out"), "waterfall"),
        (lambda at: case(at, STEPS, design="one_at_a_time"), "waterfall"),
        (lambda at: case(at, {"ffn": FFN}, status=lambda v, s: ["done", "done", "diverged"][s]), "divergence"),
        (lambda at: case(at, {"ffn": FFN}, seeds=range(6), claims=CLAIMS), "claims"),
        (with_solved, "solved"),
        (lambda at: case(at, GLU, seeds=range(8), sequential=AUTO), ""),
        (with_diagnostics, "diagnostics interactions divergence"),
        (with_sizes, "pareto interactions"),
        (lambda at: case(at, GLU, mirror=MIRRORED), "mirror"),
        (with_rungs, "ladder"),
        (lambda at: case(at, GLU, mirror=MIRRORED, tunes="other"), ""),
    ],
)
def test_a_study_gets_the_figures_of_what_it_contains(tmp_path: Path, make: Any, kinds: str) -> None:
    """Whether a kind has a table says it; what is in it and how it is drawn, the test of the kind says."""
    given = make(tmp_path)
    found = {name for name, kind in figures.KINDS.items() if kind.table(given) is not None} - AGAINST_A_NUMBER
    assert found == BASIC | {*kinds.split()}, "a kind that every study has stands in BASIC, others in this table"


def test_a_waterfall_of_many_changes_keeps_what_they_are_compared_with(tmp_path: Path) -> None:
    ffns = ["mlp", "gelu", "silu", "swish", "relu2", "glu", "bilinear", "reglu", "geglu", "swiglu"]
    norms = ["ln", "rms", "prms", "ln_std", "scale", "bn", "powernorm", "instance", "group", "dyt"]
    places = ["rope", "partial_rope", "xpos", "alibi", "t5", "sinusoidal", "learned", "none"]
    first = {"ffn": "mlp", "norm": "ln", "position": "rope"}
    given = case(
        tmp_path,
        {"ffn": ffns, "norm": norms, "position": places},
        design="one_at_a_time",
        seeds=range(5),
        score=lambda levels, seed: (
            2.0 + 0.1 * (levels != first) + 1e-3 * math.sin(7 * seed + sum(map(ord, str(levels))))
        ),
    )
    table = table_of("waterfall", given)
    assert table["role"].iloc[0] == "first" and len(table) == 24
    assert (table["verdict"] == "worse").sum() == 23, "of 25"


def test_a_waterfall_goes_from_the_first_values_to_the_last(tmp_path: Path) -> None:
    given = case(tmp_path, STEPS, design="cumulative", seeds=range(5))
    table, figure = fitting("waterfall", given)
    means = [float(given.study.runs.query("cell == @cell")["test/loss"].mean()) for cell in ("c0", "c1", "c2", "c3")]
    assert list(table["role"]) == ["first", "step", "step", "step", "total"]
    assert np.allclose(table["start"], [means[0], means[0], means[1], means[2], means[0]])
    assert np.allclose(table["end"], [*means, means[3]])
    assert list(table["name"][1:]) == ["+ RMSNorm", "+ SwiGLU", "+ Post-LN", "all steps together"]
    effects = given.effects
    assert np.allclose(table[["mean", "low", "high"]][1:], effects[["mean", "low", "high"]])
    axis, said = figure.axes[0], texts(figure)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axis.patches]
    assert np.allclose(sorted(bars[1]), sorted([means[1], means[2]])) and len(bars) == 4
    whisker = [table["start"][2] + table["low"][2], table["start"][2] + table["high"][2]]
    assert line(axis, whisker, [2, 2])
    assert all(line(axis, [end, end], [i, i + 1]) for i, end in enumerate(means[:3])), "to where the next bar starts"
    assert not line(axis, [means[3]] * 2, [3, 4])
    assert "all steps together: a plain 95 % interval" in said and "3 main comparisons" in said and "5 seeds" in said


def test_interactions_show_differences_to_the_reference_levels_and_the_estimate(tmp_path: Path) -> None:
    given = case(tmp_path, STEPS, seeds=range(6))
    table, figure = fitting("interactions", given)
    pair = table[table["factor"] == "norm x ffn"]
    corner = {key: score(given, norm=key[0], ffn=key[1]) for key in itertools.product(("ln", "rms"), ("mlp", "swiglu"))}
    for row in pair[pair["one"].notna()].itertuples():
        change = corner[row.one, row.other] - corner["ln", "mlp"]
        assert np.isclose(row.difference, change.mean())
        if row.difference:
            span = stats.ttest_1samp(change, 0).confidence_interval(0.95)
            assert np.isclose(row.half, (span.high - span.low) / 2)
    estimate = pair[pair["one"].isna()].iloc[0]
    by_hand = corner["rms", "swiglu"] - corner["ln", "swiglu"] - corner["rms", "mlp"] + corner["ln", "mlp"]
    assert np.isclose(estimate["mean"], by_hand.mean())
    assert len(figure.axes) == 3 and estimate["verdict"] in texts(figure)


def test_cells_with_equal_batches_are_averaged_within_seeds_in_a_map_as_in_the_table(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "data.context": [32, 64]}
    given = case(tmp_path, factors, seeds=range(6), batches=lambda v: str(v["data.context"]), every=400)
    table, _ = drawn("interactions", given)
    pair = table[(table["factor"] == "norm x data.context") & table["one"].notna()].set_index("level")
    sides = [
        sum(score(given, norm=norm, ffn=ffn, **{"data.context": at}) for ffn in factors["ffn"]) / 2
        for norm, at in (("ln", 32), ("rms", 32), ("rms", 64))
    ]
    span = stats.ttest_1samp(sides[1] - sides[0], 0).confidence_interval(0.95)
    assert np.isclose(pair.loc["rms, 32", "half"], (span.high - span.low) / 2), "equal batches are paired"
    span = stats.ttest_ind(sides[2], sides[0], equal_var=False).confidence_interval(0.95)
    assert np.isclose(pair.loc["rms, 64", "half"], (span.high - span.low) / 2), "two groups, not four cells"


def test_a_map_whose_numbers_would_be_too_small_to_read_has_a_scale_of_colours(tmp_path: Path) -> None:
    many = {name: [f"{name[0]}{i}" for i in range(7)] for name in ("ffn", "norm")}
    _, figure = fitting("interactions", case(tmp_path, many, seeds=range(2), every=400))
    assert len(figure.axes) == 2 and not figure.axes[0].texts


def test_two_seeds_decide_no_cell_of_a_map(tmp_path: Path) -> None:
    table, _ = drawn("interactions", case(tmp_path, STEPS, seeds=range(2)))
    corners = table[table["one"].notna()]
    assert corners["half"].isna().all() and corners["difference"].notna().all()
    assert "dotted: undecided, the interval holds zero or is missing" in table.attrs["caption"]


def test_of_many_pairs_the_largest_interactions_are_shown(tmp_path: Path) -> None:
    given = case(tmp_path, STEPS | {"position": ["rope", "none"]}, seeds=range(2))
    table, figure = drawn("interactions", given)
    assert table["factor"].nunique() == 4 and "4 of 6" in texts(figure)


def test_the_frontier_is_what_no_cell_beats_in_both(tmp_path: Path) -> None:
    lost = {("swiglu", 64, 0): "diverged", ("gelu", 64, 0): "failed"}
    given = with_sizes(tmp_path, status=lambda v, s: lost.get((*v.values(), s), "done"))
    table, figure = fitting("pareto", given)
    assert set(table["facet"]) == {"parameters", "seconds, shared machine"}
    rows = table[table["facet"] == "parameters"].set_index("cell")
    assert rows["cost"].to_dict() == {cell.id: cell.params for cell in given.study.manifest.cells}
    assert rows["diverged"].sum() == rows["failed"].sum() == 1
    whole = rows[rows["diverged"] + rows["failed"] == 0]
    for cell, row in rows.iterrows():
        beaten = ((whole["cost"] <= row["cost"]) & (whole["mean"] < row["mean"])).any()
        beaten |= ((whole["cost"] < row["cost"]) & (whole["mean"] <= row["mean"])).any()
        assert row["frontier"] == (cell in whole.index and not beaten)
    assert rows["frontier"].sum() >= 2 and not table.loc[table["facet"].str.contains("shared"), "frontier"].any()
    edge = rows[rows["frontier"]].sort_values("cost")
    assert line(figure.axes[0], edge["cost"], edge["mean"])
    said = texts(figure)
    assert "no claim about speed" in said and "1 of 3 diverged" in said and "1 of 3 failed" in said


def test_equal_budgets_have_no_frontier_and_foreign_studies_no_figure(tmp_path: Path) -> None:
    table = figures.KINDS["pareto"].table
    assert table(case(tmp_path / "equal")) is None
    given = with_sizes(tmp_path / "foreign")
    known = given.cells.assign(params=None, flops_per_token=None)
    bare = dataclasses.replace(given.study, curves=given.study.curves[["cell", "seed", "step"]].iloc[:0])
    assert table(given._replace(cells=known, study=bare)) is None
    free = given.cells.assign(params=[0] + [9] * (len(given.cells) - 1), flops_per_token=None)
    assert table(given._replace(cells=free, study=bare)) is None, "zero has no place on a log axis"


def test_diagnostics_are_means_over_seeds_by_step_and_layer(tmp_path: Path) -> None:
    given = with_diagnostics(tmp_path)
    (table, figure), curves = fitting("diagnostics", given), given.study.curves
    norms = [name for name in curves if name.startswith("diag/grad_norm")]
    steps = table[(table["facet"] == "gradient norm") & (table["side"] == "steps") & (table["cell"] == "c0")]
    first = curves[curves["cell"] == "c0"]
    largest = first[norms].max(axis=1).groupby(first["step"])
    assert np.allclose(steps["mean"], largest.mean()) and np.allclose(steps["high"] - steps["mean"], largest.std())
    layers = table[(table["facet"] == "gradient norm") & (table["side"] == "layers") & (table["cell"] == "c1")]
    assert list(layers["layer"]) == ["embed", "blocks.2", "blocks.10"]
    end = curves[(curves["cell"] == "c1") & (curves["step"] == 800)]
    assert np.allclose(layers["mean"], [end[f"diag/grad_norm/{layer}"].mean() for layer in layers["layer"]])
    assert line(figure.axes[0], steps["step"], steps["mean"]) and line(figure.axes[1], range(3), layers["mean"])
    crosses = [each for each in figure.axes[0].lines if each.get_marker() == "x"]
    assert [each.get_xdata()[0] for each in crosses] == [400, 400]  # both diverged runs, where they ended


def test_a_table_of_the_paper_stands_beside_our_means_in_its_order(tmp_path: Path) -> None:
    gone = [*MIRRORED["series"], {"of": {"ffn": "glu"}, "value": 1}]
    given = case(tmp_path, GLU, seeds=range(5), mirror=MIRRORED | {"series": gone})
    table, figure = fitting("mirror", given)
    theirs, ours = figure.axes
    assert line(theirs, 0, 27.5) and line(theirs, 1, 26.6) and theirs.get_ylabel() == "BLEU"
    for place, level in enumerate(("swiglu", "mlp")):
        known = score(given, ffn=level)
        assert line(ours, place, known.mean())
        assert np.isclose(table[table["n"] == 5]["low"].iloc[place], known.mean() - known.std(ddof=1))
        assert line(ours, [place] * 2, known.mean() + known.std(ddof=1) * np.array([-1, 1]))
    assert [text.get_text() for text in ours.get_xticklabels()] == ["SwiGLU", "ReLU MLP"]
    assert "published, without configurations here: FFN glu" in table.attrs["caption"] and "26.6" in texts(figure)
    assert "this study: test loss (nats per byte): mean over 5 seeds, band ± 1 SD over seeds" in table.attrs["caption"]
    assert any(text.startswith("each has its own scale: BLEU and test loss") for text in table.attrs["caption"])


def test_curves_of_the_paper_share_our_axes_and_panels(tmp_path: Path) -> None:
    """Against a rate and over training, in units of the whole; what has no printed number is said."""
    factors = {"norm": ["ln", "rms"], "optim.lr": [1e-3, 1e-2]}
    points = {"ln": [[1e-3, 2.0], [1e-1, 3.5]], "rms": []}
    series = [{"of": {"norm": norm}, "points": each} for norm, each in points.items()]
    own = {"source": "P, figure 1", "metric": "test loss (nats per byte)", "x": "optim.lr", "panels": "norm"}
    given = case(tmp_path / "a", factors, mirror=own | {"series": series})
    table, figure = drawn("mirror", given)
    assert [axis.get_title("left") for axis in figure.axes][::2] == ["P, figure 1, LayerNorm", "P, figure 1, RMSNorm"]
    theirs, ours, silent, _ = figure.axes
    assert line(theirs, [1e-3, 1e-1], [2.0, 3.5]) and theirs.get_ylim() == ours.get_ylim() == silent.get_ylim()
    assert line(
        ours, [1e-3, 1e-2], [score(given, norm="ln", **{"optim.lr": rate}).mean() for rate in factors["optim.lr"]]
    )
    assert theirs.get_xlim() == ours.get_xlim() and "no numbers printed" in texts(figure)
    assert "one scale: test loss (nats per byte)" in table.attrs["caption"]
    own = {"source": "P, figure 2", "metric": "BLEU", "x": "epoch", "trained": 15, "at": {"optim.lr": 1e-2}}
    given = case(tmp_path / "b", factors, mirror=own | {"series": [series[0] | {"points": [[3, 1], [15, 8.45]]}]})
    table, figure = fitting("mirror", given)
    assert line(figure.axes[0], [0.2, 1], [1, 8.45]) and figure.axes[1].lines[0].get_xdata()[-1] == 1
    fixed = lambda i, cell: {  # noqa: E731
        "levels": {"norm": cell.levels["norm"]},
        "config": cell.config.with_value("optim.lr", cell.levels["optim.lr"]),
    }
    found = figures.KINDS["mirror"].table(given._replace(study=with_cells(given.study, fixed)))
    assert found is not None and set(found["cell"]) == set(table["cell"]), (
        "a rate that the command line fixes still counts"
    )


def test_claims_stand_on_what_they_claim(tmp_path: Path) -> None:
    given = case(tmp_path, {"ffn": FFN}, seeds=range(6), claims=CLAIMS)
    (table, figure), judged = fitting("claims", given), evidence.claims(given.study)
    assert np.allclose(table[["mean", "low", "high"]], judged[["mean", "low", "high"]], equal_nan=True)
    assert list(table["wanted"]) == [-1, 0, 1, -1, 1, 1, 1] and table["facet"].nunique() == 3
    change = score(given, ffn="swiglu") - score(given, ffn="mlp")
    assert np.isclose(table["mean"][0], change.mean())
    axis = figure.axes[0]
    assert line(axis, [table["low"][0], table["high"][0]], [0, 0])
    grey = [each for each in axis.collections if not isinstance(each, LineCollection)]
    bands = [each.get_paths()[0].get_extents() for each in grey]
    assert bands[0].x1 == 0 and bands[0].x0 < table["low"][0]  # less: all below zero
    assert np.allclose([bands[1].x0, bands[1].x1], [-0.02, 0.02]) and bands[2].x0 == 0
    assert bands[3].x1 == 0.02 and bands[3].x0 == bands[0].x0  # not greater: all below the margin
    assert bands[4].x0 == -0.02 and bands[4].x1 == bands[2].x1
    assert "late: GELU MLP − ReLU MLP, post hoc" in texts(figure) and table["verdict"][0] in texts(figure)


@pytest.mark.parametrize(("count", "norms"), [(3, ("ln", "rms")), (4, ())])
def test_a_ladder_shows_losses_multipliers_and_their_trend(tmp_path: Path, norms: tuple[str, ...], count: int) -> None:
    given = case_of(climbed(lambda c: 0.3, noise=0.002, count=count, norms=norms), tmp_path)
    (table, figure), found = fitting("ladder", given), evidence.ladder(given.study)
    losses, worth = table[table["panel"] == "loss"], table[table["panel"] == "multiplier"]
    arms = 2 + len(norms) // 2
    assert len(losses) == arms * count and len(worth) == (arms - 1) * count  # none at another learning rate
    own = score(given, ffn="swiglu", rung=2)
    (row,) = losses[(losses["label"] == "SwiGLU") & (losses["rung"] == 2)].itertuples()
    ends = stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))
    assert np.allclose([row.mean, row.low, row.high], [own.mean(), *ends])
    assert np.isclose(row.compute, 1.05 * math.exp(TOP) / 4 ** (count - 2))  # of the change, not of the reference
    assert np.allclose(worth[["mean", "low", "high"]], found[["multiplier", "low", "high"]].sort_index())
    left, right = figure.axes
    base = losses[losses["label"].str.endswith("(reference)")]
    assert line(left, base["compute"], base["mean"]) and line(right, [0, 1], [1, 1])
    (start, end) = table[(table["panel"] == "trend") & (table["label"] == "SwiGLU")].itertuples()
    slope = math.log(end.mean / start.mean) / math.log10(end.compute / start.compute)
    assert slope == pytest.approx(found["trend"].iloc[0])
    assert line(right, [start.compute, end.compute], [start.mean, end.mean])
    assert "trend" in texts(figure) and "simultaneous" in texts(figure)


def test_a_ladder_that_was_judged_by_an_earlier_method_keeps_its_figure(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "experiments" / "results" / "compute_ladder"
    kept = pandas.read_csv(folder / "ladder.csv")
    table, figure = fitting("ladder", case_of(read_tables(folder), tmp_path))
    drawn = table[table["panel"] == "multiplier"]
    assert np.allclose(drawn["mean"], kept.loc[kept["panel"] == "multiplier", "mean"])
    assert table["compute"].max() < 1e13, "nothing beyond what was trained"
    assert "by a parabola over the rungs, as judged when the study was run" in texts(figure)


def test_other_figures_of_a_ladder_have_its_rungs_and_one_colour_per_variant(tmp_path: Path) -> None:
    given = with_rungs(tmp_path)
    manifest = given.study.manifest
    cells = {cell.id: cell.levels for cell in manifest.cells}
    shown = {name: table_of(name, given) for name in ("effects", "seeds", "curves")}
    for name, table in shown.items():
        assert not table.astype(str).apply(lambda column: column.str.contains("rate")).any(axis=None), name
        assert table.attrs["caption"][-1].endswith("shown; other learning rates are in the tables")
    assert list(shown["curves"]["facet"].unique()) == [f"rung {rung}" for rung in range(1, 5)]
    assert set(shown["curves"]["label"]) == {"ReLU MLP", "SwiGLU"}
    asked = {"rung": [formatting.show(level) for level in manifest.factors["rung"]]}
    assert len(figures.tables(given, Edits(figures=["effects"], levels=asked))["effects"]) == 6
    encodings = {(cells[cell]["ffn"], each) for cell, each in page_of(manifest, Edits()).encodings.items()}
    assert len(encodings) == 2


def test_what_is_not_known_of_a_ladder_is_not_drawn(tmp_path: Path) -> None:
    table, figure = fitting("ladder", case_of(climbed(lambda c: 0.3, other_steps=False), tmp_path))
    assert set(table["panel"]) == {"loss"} and "no trend: rung 1: its reference was trained for no" in texts(figure)
    nothing = case_of(climbed(lambda c: 0.3, status=lambda levels, seed: "missing"), tmp_path)
    assert "no finished run" in texts(fitting("ladder", nothing)[1])


def test_a_claimed_multiplier_stands_on_the_side_of_its_bound(tmp_path: Path) -> None:
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    bounds = {"more": {"above": 1.1}, "less": {"below": 0.9}}
    claims = {name: claim(multiplier=sides, at={"rung": 3}, **bound) for name, bound in bounds.items()}
    given = case_of(climbed(lambda c: 0.3, count=3, claims=claims), tmp_path)
    table, figure = fitting("claims", given)
    (axis, *_), more = figure.axes, table.iloc[0]
    grey = [each for each in axis.collections if not isinstance(each, LineCollection)]
    bands = [each.get_paths()[0].get_extents() for each in grey]
    assert np.isclose(bands[0].x0, 1.1) and bands[0].x1 > more["high"] and np.isclose(bands[1].x1, 0.9)
    assert line(axis, [1, 1], [0, 1]) and more["verdict"] == "supported" and table.iloc[1]["verdict"] == "contradicted"
    assert "×1.29 [" in texts(figure) and "compute multiplier" in texts(figure) and "at rung 3" in texts(figure)


def test_shares_of_solved_runs_rise_over_steps(tmp_path: Path) -> None:
    table, _ = fitting("solved", with_solved(tmp_path))
    rope = table[table["cell"] == "c0"]
    assert list(rope["step"]) == [0, 200, 240, 280, 320, 360, 800]
    assert np.allclose(rope["share"], [0, 0.2, 0.4, 0.6, 0.8, 1, 1])
    spans = [proportion_confint(count, 5, method="wilson") for count in (0, 1, 2, 3, 4, 5, 5)]
    assert np.allclose(rope[["low", "high"]], spans, atol=1e-9)
    assert table[table["cell"] == "c1"]["share"].eq(0).all()
    assert list(table_of("solved", with_solved(tmp_path / "one", [0]))["step"])[:3] == [0, 200, 800]


def test_of_shares_in_per_cent_nothing_says_when_a_task_is_solved(tmp_path: Path) -> None:
    given = with_solved(tmp_path)
    curves = given.study.curves.assign(**{"val/accuracy": 100 * given.study.curves["val/accuracy"]})
    in_percent = given._replace(study=dataclasses.replace(given.study, curves=curves))
    assert figures.KINDS["solved"].table(in_percent) is None


def test_shares_of_diverged_runs_have_wilson_intervals(tmp_path: Path) -> None:
    ends = lambda v, s: ["done", "diverged", "failed"][s] if v["ffn"] == "silu" else "done"  # noqa: E731
    given = case(tmp_path, {"ffn": FFN}, status=ends)
    table, figure = fitting("divergence", given)
    table = table.set_index("name")
    assert (
        table.loc["SiLU MLP", "share"] == 0.5 and table.loc["SiLU MLP", "ended"] == 2
    )  # a failed run counts on neither side
    for row in table.itertuples():
        low, high = proportion_confint(row.diverged, row.ended, method="wilson")
        assert np.isclose(row.low, low, atol=1e-9) and np.isclose(row.high, high)
    assert line(figure.axes[0], table.loc["SiLU MLP", ["low", "high"]].astype(float), [2, 2])


def test_of_many_cells_those_that_diverged_are_shown(tmp_path: Path) -> None:
    factors = {"norm": [f"n{i}" for i in range(6)], "ffn": [f"f{i}" for i in range(6)]}
    given = case(tmp_path, factors, seeds=[0, 1], status=lambda v, s: "diverged" if v["ffn"] == "f5" and s else "done")
    table, figure = drawn("divergence", given)
    assert len(table) == 24 and table["diverged"].sum() == 6
    assert "24 of 36 configurations shown, those that diverged most" in texts(figure)


def test_axes_of_a_map_are_named_after_what_stands_along_them(tmp_path: Path) -> None:
    """The longer factor along x, whichever comes first; the squares are those of its labels."""
    for factors in ({"norm": ["ln", "rms"], "ffn": FFN}, {"ffn": FFN, "norm": ["ln", "rms"]}):
        given = case(tmp_path / next(iter(factors)), factors, seeds=range(4))
        table, figure = drawn("interactions", given)
        axis = figure.axes[0]
        assert (axis.get_xlabel(), axis.get_ylabel()) == ("FFN", "norm")
        along, across = ([each.get_text() for each in by.get_ticklabels()] for by in (axis.xaxis, axis.yaxis))
        assert (along, across) == (["ReLU MLP", "GELU MLP", "SiLU MLP", "SwiGLU"], ["LayerNorm", "RMSNorm"])
        written = [text.get_text().split("\n")[0] for text in axis.texts]
        ffn, norm = ("one", "other") if next(iter(factors)) == "ffn" else ("other", "one")
        means = table[table["one"].notna()].set_index([norm, ffn])["difference"]
        for text, key in zip(written, itertools.product(factors["norm"], FFN), strict=True):
            assert text == ("ref." if key == ("ln", "mlp") else formatting.number(means[key], 4, signed=True)), key


N = 12
MEASURED = TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {}}
SOLVED = TASK | {"metrics": {"solved": "max", "accuracy": "max"}, "shares": ["solved", "accuracy"], "solved_at": 0.9}


def clopper_pearson(count: int, n: int, tail: float) -> tuple[float, float]:
    found = stats.binomtest(count, n).proportion_ci(1 - 2 * tail, method="exact")
    return float(found.low), float(found.high)


def test_differences_of_shares_in_the_map_are_decided_by_their_exact_intervals(tmp_path: Path) -> None:
    """Of norm × ffn, ln solves in 1 of 12 seeds, rms with mlp in 10 (two runs diverged), rms with swiglu in 12."""

    def score(levels: Levels, seed: int) -> float:
        return 0.95 if levels["norm"] == "rms" or seed == 0 else 0.3

    def status(levels: Levels, seed: int) -> str:
        return "diverged" if levels == {"norm": "rms", "ffn": "mlp"} and seed in (3, 4) else "done"

    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
    name = fabricate(tmp_path, factors, range(N), score, status, tasks={"f0": MEASURED}, every=400)
    edit_manifest(tmp_path, name, lambda manifest: manifest.update(tasks={"f0": SOLVED}))
    table = table_of("interactions", case_of(load_study(tmp_path, name), tmp_path))
    cells = table[table["one"].notna()].set_index("level")
    low = clopper_pearson(9, N, 0.05 / 4)[0] - clopper_pearson(0, N, 0.05 / 4)[1]
    found = cells.loc["rms, mlp"]
    assert found["difference"] == pytest.approx(9 / 12) and found["difference"] - found["half"] == pytest.approx(low)
    same = cells.loc["ln, swiglu"]  # equal shares: a difference of zero that nothing shows to be one
    assert same["difference"] == 0 and same["half"] == pytest.approx(clopper_pearson(0, N, 0.05 / 4)[1])
    assert "the side of its exact 95 % interval towards zero" in table.attrs["caption"][0]


def test_single_values_of_shares_end_at_0_and_1_in_a_mirrored_figure(tmp_path: Path) -> None:
    metrics = {"metrics": {"accuracy": "max", "loss": "min"}, "shares": ["accuracy"]}
    name = fabricate(tmp_path, GLU, range(3), lambda _, seed: (0.5, 1.0, 1.0)[seed], tasks={"f0": TASK | metrics})
    study = load_study(tmp_path, name)
    means = mirror._ours(case_of(study, tmp_path), None)
    assert (
        means is not None and means["mean"].gt(0.8).all() and means["high"].eq(1).all() and means["low"].lt(0.6).all()
    )
