"""Beside the interval: effect size, pair correlation, superiority, what could be found, lost runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import TASK, fabricate, with_manifest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM
from statsmodels.stats.power import TTestPower

from ablate import evidence, formatting
from ablate.cli.summary import summary
from ablate.results.study import Study, load_study
from analysis.case import case_of
from analysis.writing.tables import particulars_sheet

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NOISE = np.random.default_rng(11).normal(0, 0.01, (40, 8))
SIZES = ["d_z", "correlation", "superiority", "smallest", "failed", "missing", "metric", "lower_is_better", "margin"]


def noisy(levels: dict[str, Any], seed: int) -> float:
    place = [str(level) for level in levels.values()]
    own = NOISE[seed, sum(map(len, place)) % 7]
    return float(2 + NOISE[seed, 7] + own / 2 - 0.01 * ("swiglu" in place))


def made(results: Path, factors: dict[str, list[Any]], **options: Any) -> Study:
    return load_study(results, fabricate(results, factors, **options))


def of(study: Study, label: str, **how: Any) -> Any:
    table = evidence.effects(study, **how)
    return next(table[table["label"] == label].itertuples())


def test_sizes_of_a_paired_effect_against_other_formulas(tmp_path: Path) -> None:
    study = made(tmp_path, GRID, seeds=range(9), score=noisy)
    found, values = of(study, "ffn: swiglu − mlp"), evidence.scores(study).to_numpy()
    level, base = values[:, [1, 3]].mean(1), values[:, [0, 2]].mean(1)
    assert found.d_z == pytest.approx(stats.ttest_rel(level, base).statistic / 3)
    assert found.correlation == pytest.approx(stats.pearsonr(level, base).statistic)
    # The lower loss is the better one.
    assert found.superiority == pytest.approx(stats.mannwhitneyu(base, level).statistic / 81)
    known = TTestPower().solve_power(None, 9, found.alpha, 0.8)  # were the SD known
    assert 1.1 < found.smallest / found.sd / known < 1.15 and found.alpha == pytest.approx(0.05 / 3)


def test_an_unpaired_effect_finds_what_its_own_error_and_degrees_of_freedom_find(tmp_path: Path) -> None:
    factors = {"train.batch_size": [16, 32]}
    study = made(
        tmp_path,
        factors,
        seeds=range(8),
        score=lambda levels, seed: 2 + NOISE[seed, levels["train.batch_size"] // 16] * levels["train.batch_size"],
        batches=str,
    )
    found, values = of(study, "train.batch_size: 32 − 16"), evidence.scores(study).to_numpy().T
    expected = stats.ttest_ind(values[1], values[0], equal_var=False)
    error = found.mean / expected.statistic
    shift, limit = found.smallest / error, stats.t.isf(0.025, expected.df)
    spread = np.sqrt(np.random.default_rng(0).chisquare(expected.df, 20_000) / expected.df)
    assert stats.nct.sf(limit, expected.df, shift * spread).mean() == pytest.approx(0.8, abs=0.005)
    assert math.isnan(found.d_z) and math.isnan(found.correlation) and not found.paired


def test_superiority_ranks_diverged_runs_last_and_ties_count_half(tmp_path: Path) -> None:
    def score(levels: dict[str, Any], seed: int) -> float:
        return 2.0 if levels["norm"] == "ln" else [1.0, 2.0, 3.0, 0.0][seed]

    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if levels["norm"] == "rms" and seed == 3 else "done"

    study = made(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(4), score=score, status=status)
    found = of(study, "norm: rms − ln")
    assert found.superiority == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert found.verdict == "withheld" and math.isnan(found.smallest) and math.isnan(found.d_z)
    assert math.isnan(of(made(tmp_path / "grid", GRID), "norm × ffn").superiority), "no runs of one kind with another's"


@pytest.mark.parametrize("batches", [lambda levels: "b0", str])
def test_one_or_two_seeds_say_nothing_of_how_often_a_level_is_better(tmp_path: Path, batches: Any) -> None:
    for n in (1, 2, 3):
        study = made(tmp_path / str(n), {"norm": ["ln", "rms"]}, seeds=range(n), batches=batches)
        assert math.isnan(of(study, "norm: rms − ln").superiority) == (n < 3)
        sheet = particulars_sheet(case_of(study, tmp_path / str(n)))
        assert sheet and ("P(A>B)" in sheet.head) == (n > 2) == any("P(A>B): how often" in note for note in sheet.notes)


def test_runs_without_a_number_are_counted_by_effect(tmp_path: Path) -> None:
    def status(levels: dict[str, Any], seed: int) -> str:
        return {("rms", 1): "failed", ("ln", 2): "missing", ("ln", 3): "running"}.get((levels["norm"], seed), "done")

    found = of(made(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(6), status=status), "norm: rms − ln")
    assert (found.failed, found.missing, found.n) == (1, 2, 3)


def test_a_table_without_effects_has_the_columns(tmp_path: Path) -> None:
    table = evidence.effects(made(tmp_path, {}))
    assert table.empty and set(SIZES) <= set(table)


TASKS = {"f0": TASK, "f1": TASK | {"title": "dates", "token": "token", "metrics": {"accuracy": "max", "loss": "min"}}}


def two_tasks(results: Path, **options: Any) -> Study:
    """A language model and a task measured by accuracy: swiglu is better at both."""

    def score(levels: dict[str, Any], seed: int) -> float:
        gain = 0.05 * (levels["ffn"] == "swiglu") + 0.1 * NOISE[seed, len(levels["ffn"])]
        return 2 - gain if levels["data"] == "stdlib" else 0.6 + gain

    factors = {"data": ["stdlib", "dates"], "ffn": ["mlp", "swiglu"]}
    return made(results, factors, seeds=range(6), score=score, tasks=TASKS, task=by_data, **options)


def by_data(levels: dict[str, Any]) -> str:
    return {"stdlib": "f0", "dates": "f1"}[levels["data"]]


def test_each_stratum_is_compared_by_the_metric_of_its_own_task(tmp_path: Path) -> None:
    study = two_tasks(tmp_path)
    table = evidence.effects(study).set_index("stratum")
    assert list(table["metric"]) == ["test/loss", "test/accuracy"] and list(table["lower_is_better"]) == [True, False]
    assert list(table["verdict"]) == ["better", "better"]
    assert table.loc["data=stdlib", "mean"] < 0 < table.loc["data=dates", "mean"]
    assert (table["superiority"] > 0.9).all()
    cells = evidence.cells(study)
    assert list(cells["metric"]) == ["test/loss"] * 2 + ["test/accuracy"] * 2
    assert cells["mean"].to_numpy()[2:] == pytest.approx([0.6, 0.65], abs=0.01)


def test_a_metric_that_is_asked_for_is_that_of_all(tmp_path: Path) -> None:
    study = two_tasks(tmp_path)
    table = evidence.effects(study, "test/accuracy")
    assert list(table["metric"]) == ["test/accuracy"] * 2 and list(table["n"]) == [0, 6]


def test_tasks_are_never_compared_with_each_other(tmp_path: Path) -> None:
    factors = {"data": ["stdlib", "dates"]}
    study = made(tmp_path, factors, seeds=range(5), tasks=TASKS, task=by_data, score=lambda levels, seed: 1.0 + seed)
    (found,) = evidence.effects(study).itertuples()
    assert found.verdict == "withheld" and "different tasks" in found.note
    assert found.metric == "test/accuracy, test/loss"


def test_a_tuning_study_compares_each_task_on_the_split_it_is_tuned_by(tmp_path: Path) -> None:
    study = two_tasks(tmp_path, endpoint="val/loss")
    assert list(evidence.endpoints(study.manifest).values()) == ["val/loss"] * 2 + ["val/accuracy"] * 2
    assert list(evidence.effects(study)["verdict"]) == ["better", "better"]


def test_an_endpoint_that_no_task_has_first_is_of_every_task_that_has_it(tmp_path: Path) -> None:
    manifest = two_tasks(tmp_path, endpoint="test/bpb").manifest
    assert set(evidence.endpoints(manifest).values()) == {"test/bpb"}


def test_the_endpoint_of_a_foreign_study_stands_as_it_is(tmp_path: Path) -> None:
    """Runs of other programs log names without a split, and on splits of their own."""
    study = made(tmp_path, {"norm": ["ln", "rms"]}, endpoint="eval_loss")
    assert evidence.endpoints(study.manifest) == {"c0": "eval_loss", "c1": "eval_loss"}


def test_noise_of_several_metrics_is_not_pooled_and_each_has_its_unit(tmp_path: Path) -> None:
    study = two_tasks(tmp_path)
    table = evidence.effects(study).set_index("stratum")
    assert {noise.metric: noise.sd for noise in evidence.noise(table)} == pytest.approx(
        {"test/loss": table.loc["data=stdlib", "sd"], "test/accuracy": table.loc["data=dates", "sd"]}
    )
    said = summary(study, tmp_path)
    assert "test/loss, nats per byte or test/accuracy, last step, each cell's by its own task" in said
    assert all(f") in {metric}" in said and "four times in five" in said for metric in ("test/loss", "test/accuracy"))
    assert "better (lower loss)" in said and "better (higher accuracy)" in said


GRID_EFFECTS: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}

NOISE_EFFECTS = np.random.default_rng(3).normal(0, 0.01, (30, 9))


def score(levels: dict[str, Any], seed: int) -> float:
    """An effect of each factor, an interaction, noise that a seed shares and noise of each cell's own."""
    one, two = (GRID_EFFECTS[name].index(levels[name]) if name in levels else 0 for name in GRID_EFFECTS)
    size = {16: 1, 32: 3}[levels.get("train.batch_size", 16)]
    own = NOISE_EFFECTS[seed, one + 2 * two + size] * size
    return float(2 - 0.02 * two + 0.005 * one + 0.008 * one * two + NOISE_EFFECTS[seed, 8] + own)


def made_effects(results: Path, factors: dict[str, list[Any]], **options: Any) -> Study:
    return load_study(results, fabricate(results, factors, **({"score": score} | options)))


def test_a_balanced_grid_is_an_analysis_of_variance_with_repeated_measures(tmp_path: Path) -> None:
    study = made_effects(tmp_path, GRID_EFFECTS, seeds=range(9))
    runs = study.runs.rename(columns={"test/loss": "loss"})
    reference = AnovaRM(runs, "loss", "seed", within=["norm", "ffn"]).fit().anova_table
    table = evidence.effects(study).query("family").set_index("factor")
    for ours, theirs in (("norm", "norm"), ("ffn", "ffn"), ("norm x ffn", "norm:ffn")):
        found, expected = table.loc[ours], reference.loc[theirs]
        assert found["p"] == pytest.approx(expected["Pr > F"]) and found["family"] and found["paired"]
        assert found["n"] - 1 == expected["Den DF"]
    # Effect codes of ±1/2 make coefficients of the main effects and of the interaction.
    coded = runs.assign(a=(runs["norm"] == "rms") - 0.5, b=(runs["ffn"] == "swiglu") - 0.5)
    fitted = ols("loss ~ a * b + C(seed)", coded).fit().params
    expected = [fitted["a"], fitted["b"], fitted["a:b"]]
    assert table.loc[["norm", "ffn", "norm x ffn"], "mean"].to_numpy(float) == pytest.approx(expected)


def test_main_effects_of_three_levels_are_those_of_least_squares(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu"]}
    place = {"ln": 0, "rms": 1, "bn": 2, "mlp": 0, "swiglu": 3}
    study = made_effects(
        tmp_path, factors, seeds=range(6), score=lambda v, s: 2 + NOISE_EFFECTS[s, place[v["norm"]] + place[v["ffn"]]]
    )
    fitted = ols("loss ~ C(norm, Treatment('ln')) + C(ffn)", study.runs.rename(columns={"test/loss": "loss"})).fit()
    table = evidence.effects(study).query("kind == 'main'").set_index("level")
    for level in ("rms", "bn"):
        assert table.loc[level, "mean"] == pytest.approx(fitted.params[f"C(norm, Treatment('ln'))[T.{level}]"])


def test_unpaired_effects_are_welchs_and_a_lost_run_leaves_its_own_side_only(tmp_path: Path) -> None:
    def status(levels: dict[str, Any], seed: int) -> str:
        return "failed" if levels["train.batch_size"] == 32 and seed in (1, 4) else "done"

    study = made_effects(tmp_path, {"train.batch_size": [16, 32]}, seeds=range(8), status=status, batches=str)
    (found,) = evidence.effects(study).itertuples()
    base, large = (column.dropna() for _, column in evidence.scores(study).items())
    expected = stats.ttest_ind(large, base, equal_var=False)
    assert not found.paired and (len(large), len(base)) == (6, 8) and (found.n, found.failed) == (6, 2)
    assert (found.mean, found.p) == pytest.approx((large.mean() - base.mean(), expected.pvalue))
    limits = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))


def test_an_unpaired_main_effect_is_welchs_on_each_sides_means_over_seeds(tmp_path: Path) -> None:
    """Cells that share batches pair within their side; a lost run takes its seed out of that side."""

    def status(levels: dict[str, Any], seed: int) -> str:
        return "failed" if (levels["train.batch_size"], levels["ffn"], seed) == (32, "swiglu", 3) else "done"

    factors = {"train.batch_size": [16, 32], "ffn": ["mlp", "swiglu"]}
    sizes = {16: "small", 32: "large"}
    study = made_effects(
        tmp_path, factors, seeds=range(8), status=status, batches=lambda levels: sizes[levels["train.batch_size"]]
    )
    # Compared, as reference= makes it, not a stratum.
    study = with_manifest(study, reference=study.manifest.reference | {"train.batch_size": 16})
    table = evidence.effects(study).set_index("factor")
    values = evidence.scores(study).to_numpy()
    base, large = values[:, :2].mean(1), values[:, 2:].mean(1)
    expected = stats.ttest_ind(large[~np.isnan(large)], base, equal_var=False)
    found = table.loc["train.batch_size"]
    assert not found["paired"] and found["n"] == 7 and found["p"] == pytest.approx(expected.pvalue)
    assert table.loc["ffn", "paired"]


def test_a_missing_run_takes_its_seed_out_of_every_main_effect_that_needs_it(tmp_path: Path) -> None:
    def status(levels: dict[str, Any], seed: int) -> str:
        return "missing" if (levels["norm"], levels["ffn"], seed) == ("rms", "mlp", 2) else "done"

    study = made_effects(tmp_path, GRID_EFFECTS, seeds=range(7), status=status)
    values = evidence.scores(study)
    whole = values.dropna().to_numpy()
    table = evidence.effects(study).set_index("label")
    expected = stats.ttest_rel(whole[:, [1, 3]].mean(1), whole[:, [0, 2]].mean(1))
    found = table.loc["ffn: swiglu − mlp"]
    assert (found["n"], found["missing"]) == (6, 1) and found["p"] == pytest.approx(expected.pvalue)
    assert table.loc["ln + swiglu against ln + mlp", "n"] == 7  # needs no cell that lost a run


@pytest.mark.parametrize(("unit", "cut"), [(1, True), (100, False)])
def test_differences_of_shares_end_at_one(tmp_path: Path, unit: float, cut: bool) -> None:
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max", "loss": "min"}}}

    def share(levels: dict[str, Any], seed: int) -> float:
        return unit * ([0.9, 1.0, 0.1][seed] if levels["norm"] == "rms" else 0.02 * seed)

    (found,) = evidence.effects(made_effects(tmp_path, {"norm": ["ln", "rms"]}, score=share, tasks=tasks)).itertuples()
    assert found.n == 3 and (found.high == 1) == cut and found.high <= unit * 3
    assert found.verdict == "undecided" and ("+1.000" in formatting.span(found.mean, found.low, found.high, 3)) == cut
    frame = pandas.DataFrame([found])
    assert (frame["low"] < frame["mean"]).all()
