"""Effects against other people's formulas: repeated measures and least squares of statsmodels, Welch of SciPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import TASK, fabricate, with_manifest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM

from ablate import evidence, formatting
from ablate.results.study import Study, load_study

GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NOISE = np.random.default_rng(3).normal(0, 0.01, (30, 9))


def score(levels: dict[str, Any], seed: int) -> float:
    """An effect of each factor, an interaction, noise that a seed shares and noise of each cell's own."""
    one, two = (GRID[name].index(levels[name]) if name in levels else 0 for name in GRID)
    size = {16: 1, 32: 3}[levels.get("train.batch_size", 16)]
    own = NOISE[seed, one + 2 * two + size] * size
    return float(2 - 0.02 * two + 0.005 * one + 0.008 * one * two + NOISE[seed, 8] + own)


def made(results: Path, factors: dict[str, list[Any]], **options: Any) -> Study:
    return load_study(results, fabricate(results, factors, **({"score": score} | options)))


def test_a_balanced_grid_is_an_analysis_of_variance_with_repeated_measures(tmp_path: Path) -> None:
    study = made(tmp_path, GRID, seeds=range(9))
    runs = study.runs.rename(columns={"test/loss": "loss"})
    reference = AnovaRM(runs, "loss", "seed", within=["norm", "ffn"]).fit().anova_table
    table = evidence.effects(study).query("family").set_index("factor")
    for ours, theirs in (("norm", "norm"), ("ffn", "ffn"), ("norm x ffn", "norm:ffn")):
        found, expected = table.loc[ours], reference.loc[theirs]
        assert found["p"] == pytest.approx(expected["Pr > F"])
        assert found["n"] - 1 == expected["Den DF"]
    # Effect codes of ±1/2 make coefficients of the main effects and of the interaction.
    coded = runs.assign(a=(runs["norm"] == "rms") - 0.5, b=(runs["ffn"] == "swiglu") - 0.5)
    fitted = ols("loss ~ a * b + C(seed)", coded).fit().params
    expected = [fitted["a"], fitted["b"], fitted["a:b"]]
    assert table.loc[["norm", "ffn", "norm x ffn"], "mean"].to_numpy(float) == pytest.approx(expected)


def test_main_effects_of_three_levels_are_those_of_least_squares(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu"]}
    place = {"ln": 0, "rms": 1, "bn": 2, "mlp": 0, "swiglu": 3}
    study = made(tmp_path, factors, seeds=range(6), score=lambda v, s: 2 + NOISE[s, place[v["norm"]] + place[v["ffn"]]])
    fitted = ols("loss ~ C(norm, Treatment('ln')) + C(ffn)", study.runs.rename(columns={"test/loss": "loss"})).fit()
    table = evidence.effects(study).query("kind == 'main'").set_index("level")
    for level in ("rms", "bn"):
        assert table.loc[level, "mean"] == pytest.approx(fitted.params[f"C(norm, Treatment('ln'))[T.{level}]"])


def test_unpaired_effects_are_welchs_and_a_lost_run_leaves_its_own_side_only(tmp_path: Path) -> None:
    def status(levels: dict[str, Any], seed: int) -> str:
        return "failed" if levels["train.batch_size"] == 32 and seed in (1, 4) else "done"

    study = made(tmp_path, {"train.batch_size": [16, 32]}, seeds=range(8), status=status, batches=str)
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
    study = made(
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

    study = made(tmp_path, GRID, seeds=range(7), status=status)
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

    (found,) = evidence.effects(made(tmp_path, {"norm": ["ln", "rms"]}, score=share, tasks=tasks)).itertuples()
    assert found.n == 3 and (found.high == 1) == cut and found.high <= unit * 3
    assert found.verdict == "undecided" and ("+1.000" in formatting.span(found.mean, found.low, found.high, 3)) == cut
    frame = pandas.DataFrame([found])
    assert (frame["low"] < frame["mean"]).all()
