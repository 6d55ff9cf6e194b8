"""How an effect depends on a setting: interactions and trends beside the effect at each level, in one family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_studies import TASK, Levels, fabricate
from scipy import stats
from simulate import error, paired_intervals, scores

from ablate import evidence
from ablate.cli.summary import summary
from ablate.evidence import nominal
from ablate.evidence.contrasts import slope
from ablate.planning.rounds.sequential import decided
from ablate.results.study import Study, load_study
from analysis import figures
from analysis.case import case_of
from analysis.writing import latex_macros, tables
from analysis.writing.sentences import sentences

WARM = {"residual": ["pre", "post"], "optim.warmup": [0, 40]}
RATES = {"residual": ["pre", "post"], "optim.lr": [1e-3, 2e-3, 8e-3]}


def noise(levels: Levels, seed: int) -> float:
    return float(np.random.default_rng([seed, *str(levels).encode()]).normal(0, 0.004))


def warmed(levels: Levels, seed: int) -> float:
    """post is as good as pre with warm-up, and 0.05 worse without."""
    return 2 + 0.05 * (levels["residual"] == "post") * (levels["optim.warmup"] == 0) + noise(levels, seed)


def rated(levels: Levels, seed: int) -> float:
    """post gains 0.03 with each doubling of the rate."""
    doublings = np.log2(levels["optim.lr"] / 1e-3)
    return float(2 - 0.03 * doublings * (levels["residual"] == "post") + noise(levels, seed))


def made(folder: Path, factors: dict[str, list[Any]], score: Any, n: int = 6, **options: Any) -> Study:
    return load_study(folder, fabricate(folder, factors, range(n), score, **options))


def values(study: Study, **levels: Any) -> np.ndarray:
    runs = study.runs
    for name, level in levels.items():
        runs = runs[runs[name] == level]
    return np.asarray(runs.sort_values("seed")["test/loss"])


@pytest.mark.parametrize("apart", [False, True], ids=["shared batches", "other batches"])
def test_a_component_and_a_setting_have_a_difference_of_differences_in_the_family(tmp_path: Path, apart: bool) -> None:
    batches = (lambda levels: str(levels["optim.warmup"])) if apart else (lambda levels: "b0")
    study = made(tmp_path, WARM, warmed, batches=batches)
    table = evidence.effects(study).set_index("label")
    assert list(table.index) == [
        "residual: post − pre at optim.warmup=0",
        "residual: post − pre at optim.warmup=40",
        "residual × optim.warmup",
    ]
    found = table.loc["residual × optim.warmup"]
    gains = [
        values(study, **{"residual": "post", "optim.warmup": at})
        - values(study, **{"residual": "pre", "optim.warmup": at})
        for at in (40, 0)
    ]
    expected = stats.ttest_rel(*gains)
    assert (found["mean"], found.p) == pytest.approx(((gains[0] - gains[1]).mean(), expected.pvalue))
    assert found.low == pytest.approx(expected.confidence_interval(1 - 0.05 / 3).low), "the family has three rows"
    assert found.family and found.paired and found.kind == "interaction" and found.verdict == "better"


@pytest.mark.parametrize(
    ("levels", "x", "unit"),
    [
        ([1e-3, 2e-3, 8e-3], [0, 1, 3], "per doubling"),
        ([64, 128, 256], [0, 1, 2], "per doubling"),
        ([3e-3, 1e-3, 1e-2], np.log2([3e-3, 1e-3, 1e-2]), "per doubling"),
        ([0, 20, 40], [0, 1, 2], "per 20 more"),
        ([2, 4, 6], [0, 1, 2], "per 2 more"),
        ([0.0, 0.1, 0.3], [0, 1, 3], "per 0.1 more"),
    ],
)
def test_a_trend_is_the_least_squares_slope_on_the_axis_that_spaces_the_levels_best(levels, x, unit):
    found = slope(levels)
    assert found is not None and found[1] == unit
    y = np.random.default_rng(0).normal(size=len(levels))
    assert found[0] @ y == pytest.approx(np.polyfit(x, y, 1)[0])


@pytest.mark.parametrize("levels", [[1, 2], [True, False, 2], ["1+16", "2+32", "4+64"], [1, None, 3], [1, 1.0, 2]])
def test_what_is_no_axis_has_no_trend(levels: list[Any]) -> None:
    assert slope(levels) is None


def test_a_setting_of_numbers_has_a_trend(tmp_path: Path) -> None:
    table = evidence.effects(made(tmp_path, RATES, rated)).set_index("label")
    found = table.loc["residual × optim.lr: post, per doubling"]
    assert found.kind == "trend" and found.family and found.verdict == "better"
    assert found.low < -0.03 < found.high and found["mean"] == pytest.approx(-0.03, abs=0.005)
    assert list(table["kind"]) == ["main"] * 3 + ["interaction"] * 2 + ["trend"]
    assert set(table["alpha"]) == {0.05 / 6}


def test_a_margin_of_differences_judges_no_slope(tmp_path: Path) -> None:
    margin = {"value": 1.0, "written": "2026-01-01", "registered": True, "earlier": []}
    table = evidence.effects(made(tmp_path, RATES, rated, margin=margin))
    assert set(table.loc[table["kind"] != "trend", "verdict"]) <= {
        f"{word} among seeds that trained" for word in ("negligible", "equivalent")
    }
    assert list(table.loc[table["kind"] == "trend", "verdict"]) == ["better"] and table["margin"].isna().sum() == 1


def test_zipped_sizes_are_crossed_without_a_trend(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms"], "model.layers+model.dim": ["1+16", "2+32", "4+64"]}
    table = evidence.effects(made(tmp_path, factors, lambda v, s: 2 + noise(v, s)))
    crossed = table[table["kind"] != "main"]
    assert list(crossed["label"]) == [f"norm × model.layers+model.dim: rms, {size}" for size in ("2+32", "4+64")]


def test_each_pair_is_counted_once_and_three_together_never(tmp_path: Path) -> None:
    """Two components at two rates and depths: per stratum three effects, then each component by each setting."""
    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"], "optim.lr": [1e-3, 2e-3], "model.layers": [2, 4]}
    family = evidence.effects(made(tmp_path, factors, lambda v, s: 2 + noise(v, s), 3)).query("family")
    assert (family["stratum"] != "").sum() == 4 * 3
    assert list(family.loc[family["stratum"] == "", "label"]) == [
        *("norm × optim.lr", "ffn × optim.lr", "norm × model.layers", "ffn × model.layers")
    ]


def test_strata_of_other_tasks_have_no_interaction_and_other_settings_one_in_each_task(tmp_path: Path) -> None:
    tasks = {"f0": TASK, "f1": TASK | {"metrics": {"accuracy": "max"}}}
    task = lambda levels: {"stdlib": "f0", "copy": "f1"}[levels["data"]]  # noqa: E731
    factors = {"norm": ["ln", "rms"], "data": ["stdlib", "copy"], "optim.lr": [1e-3, 2e-3]}
    study = made(tmp_path, factors, lambda v, s: 0.5 + noise(v, s), 3, task=task, tasks=tasks)
    table = evidence.effects(study)
    assert list(table.loc[table["kind"] == "interaction", "label"]) == [
        f"norm × optim.lr at data={name}" for name in ("stdlib", "copy")
    ]
    assert set(table.loc[table["kind"] == "interaction", "metric"]) == {"test/loss", "test/accuracy"}


def test_seeds_auto_waits_for_the_interaction_at_the_level_of_the_whole_family(tmp_path: Path) -> None:
    looks = [5, 8, 12, 20]

    def score(levels: Levels, seed: int) -> float:
        """Both effects are clear, their difference is not."""
        return warmed(levels | {"optim.warmup": 0}, seed) + noise(levels, seed)

    study = made(tmp_path, WARM, score, 5, sequential={"looks": looks, "at": 5, "max": 20}, placebo_seeds=0)
    table = evidence.effects(study)
    assert list(table["verdict"]) == ["worse", "worse", "undecided"]
    assert table["alpha"].to_numpy() == pytest.approx([nominal(tuple(looks), 0.05 / 3)] * 3)
    assert list(evidence.undecided(table)["label"]) == ["residual × optim.warmup"]
    assert not decided(tmp_path, study.manifest)


def test_unequal_divergence_withholds_an_interaction(tmp_path: Path) -> None:
    lost = {"residual": "post", "optim.warmup": 0}
    study = made(tmp_path, WARM, warmed, status=lambda v, s: "diverged" if v == lost and s < 2 else "done")
    found = evidence.effects(study).set_index("label")["verdict"]
    assert found["residual × optim.warmup"] == "withheld" and found.iloc[1] == "undecided"
    assert "interaction" not in set(evidence.divergence(study)["kind"])


def test_interactions_and_trends_reach_every_output(tmp_path: Path) -> None:
    study = made(tmp_path, RATES, rated)
    given = case_of(study, tmp_path)
    said = summary(study, tmp_path)
    assert "residual × optim.lr: post, per doubling" in said and "n = 6  better (lower loss per doubling)" in said
    sheet = tables.effects_sheet(given)
    assert [row[0] for row in sheet.rows][-1] == "residual × optim.lr: post, per doubling"
    told = sentences(given)
    assert told[-1].startswith(
        "trend of post in place of pre over optim.lr: the difference to the test loss is lower by "
    )
    assert " per doubling of optim.lr (6 seeds" in told[-1]
    assert "the difference that post in place of pre makes to the test loss is lower by" in told[-2]
    assert "with optim.lr=0.008 than with optim.lr=0.001" in told[-2]
    assert latex_macros.effect_name(list(given.effects.itertuples())[-1]) == "ResidualPostByOptimLrPerDoubling"
    drawn = figures.tables(given)
    made_of = drawn["interactions"]
    assert set(made_of["factor"]) == {"residual x optim.lr"} and len(made_of[made_of["one"].notna()]) == 6
    assert list(drawn["effects"]["label"])[-1] == "residual × optim.lr: post, per doubling"


@pytest.mark.parametrize("n", [3, 5])
@pytest.mark.parametrize("shared", [0.0, 2.0], ids=["independent strata", "strata share draws"])
def test_the_family_with_its_interactions_errs_within_5_per_cent(tmp_path: Path, n: int, shared: float) -> None:
    """Also over settings with batches of their own, whose runs share their initial draws or share nothing."""
    study = made(tmp_path, RATES, rated, n, batches=lambda levels: str(levels["optim.lr"]))
    found, cells = evidence.contrasts(study.manifest), study.manifest.cells
    weights = np.array([[each.weights.get(cell.id, 0.0) for each in found] for cell in cells])
    assert evidence.effects(study)["paired"].all() and weights.shape == (6, 6)
    rng, studies = np.random.default_rng(n), 10_000
    drawn = scores(rng, studies, n, (1.0, 3.0, 1.0, 2.0, 1.0, 0.5)) + shared * rng.normal(size=(studies, n, 1))
    low, high = paired_intervals(drawn @ weights, 0.05 / len(found))
    wrong = (low > 0) | (high < 0)
    assert wrong.any(1).mean() < 0.05 + error(0.05, studies)
    assert np.abs(wrong.mean(0) - 0.05 / 6).max() < error(0.05 / 6, studies)
