"""What a fresh study of as many seeds finds four times in five, each effect by its own, estimated SD."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from fake_studies import fabricate
from scipy import optimize, stats
from simulate import SPREADS, design_of, paired_intervals, scores, with_scores

from ablate import evidence
from ablate.cli.summary import summary
from ablate.evidence.statistics import detectable, detectable_factor, found_with, paired, welch
from ablate.results.study import load_study

STUDIES = 10_000


@pytest.mark.parametrize(("n", "times"), [(3, 1.55), (5, 1.24), (8, 1.13), (20, 1.05)])
def test_an_estimated_sd_takes_so_many_times_the_difference_that_a_known_one_takes(n: int, times: float) -> None:
    known = optimize.brentq(lambda shift: found_with(shift, n - 1, 0.05) - 0.8, 0, 100)
    assert detectable_factor(n - 1, 0.05) / known == pytest.approx(times, abs=0.01)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("n", [3, 5, 8, 20])
def test_a_fresh_study_finds_it_in_80_of_100(tmp_path: Path, n: int, spread: str) -> None:
    """Each effect of the family at its own difference, told by one study and looked for by another."""
    weights, rng = design_of(tmp_path, "1x4").weights, np.random.default_rng(n)
    factor = detectable_factor(n - 1, 0.05 / 3)
    told = scores(rng, STUDIES, n, SPREADS[spread]) @ weights
    size = factor * told.std(1, ddof=1) / math.sqrt(n)
    fresh = scores(rng, STUDIES, n, SPREADS[spread]) @ weights + size[:, None]
    low, high = paired_intervals(fresh, 0.05 / 3)
    assert ((low > 0) | (high < 0)).mean(0) == pytest.approx([0.8] * 3, abs=0.012)


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_unpaired_a_fresh_study_finds_it_about_as_often(ratio: float) -> None:
    """By Welch's degrees of freedom, which are estimates themselves."""
    rng, found, studies = np.random.default_rng(3), 0, 1500
    for _ in range(studies):
        told = welch([rng.normal(size=5), -ratio * rng.normal(size=5)])
        size = told.error * detectable_factor(round(told.df, 1), 0.05)
        fresh = welch([rng.normal(size=5) + size, -ratio * rng.normal(size=5)])
        found += abs(fresh.mean) > stats.t.isf(0.025, fresh.df) * fresh.error
    assert found / studies == pytest.approx(0.8, abs=0.05)


def test_effects_tell_it_row_by_row_and_the_summary_from_the_least_to_the_most(tmp_path: Path) -> None:
    design = design_of(tmp_path, "2x2", 6)
    drawn = 0.01 * scores(np.random.default_rng(0), 1, 6, SPREADS["unequal"])[0]
    study = with_scores(design.study, drawn)
    family = evidence.effects(study).query("family")
    expected = [detectable(paired(drawn @ column), 0.05 / 3) for column in design.weights.T]
    assert family["smallest"].to_numpy() == pytest.approx(expected)
    main, interaction = evidence.noise(family)
    assert main.finds == pytest.approx((min(expected[:2]), max(expected[:2]))) and main.finds[0] < main.finds[1]
    assert interaction.finds == pytest.approx((expected[2], expected[2]))
    line = next(line for line in summary(study, tmp_path).splitlines() if "four times in five" in line)
    assert line.startswith("noise: a fresh study of 6 seeds would find effects of ")
    assert " and interactions of 0." in line


@pytest.mark.parametrize(("n", "batches", "finds"), [(2, "b0", False), (3, "b0", True), (4, "", False), (5, "", True)])
def test_so_few_seeds_that_nothing_is_decided_find_nothing(tmp_path: Path, n: int, batches: str, finds: bool) -> None:
    study = fabricate(tmp_path, {"ffn": ["mlp", "glu"]}, range(n), batches=lambda levels: batches or levels["ffn"])
    (row,) = evidence.effects(load_study(tmp_path, study)).itertuples()
    assert math.isfinite(row.smallest) == finds
    assert ("four times in five" in summary(load_study(tmp_path, study), tmp_path)) == (finds and n == 3)


def test_one_value_has_a_mean_and_nothing_else() -> None:
    for found in (paired(np.array([2.0])), welch([np.array([3.0]), np.array([-1.0, -1.5])])):
        assert found.mean in (2.0, 1.75) and found.n == 1
        assert all(math.isnan(value) for value in (found.sd, found.error, found.df))
