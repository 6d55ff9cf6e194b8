"""Promises kept, by simulation: coverage, false verdicts, false equivalence, power, within three standard errors.

The arithmetic of tests/helpers/simulate.py runs thousands of studies at once; first it is shown to be evidence's own.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_studies import fabricate
from scipy import stats
from simulate import (
    DESIGNS,
    SPREADS,
    design_of,
    error,
    paired_intervals,
    scores,
    verdicts,
    welch_intervals,
    with_scores,
)

from ablate import evidence
from ablate.evidence.statistics import interval, welch
from ablate.results.records import MarginEntry
from ablate.results.study import load_study

STUDIES = 10_000
SEEDS = (3, 5, 8)
MARGIN = 1.0


@pytest.fixture(scope="module", params=list(DESIGNS))
def design(request, tmp_path_factory):
    return design_of(tmp_path_factory.mktemp("design"), request.param)


def written(value: float) -> MarginEntry:
    return MarginEntry(value=value, written="2026-01-01", registered=True)


@pytest.mark.parametrize("n", SEEDS)
def test_the_simulated_rule_is_the_rule_of_effects(design, n: int) -> None:
    rng = np.random.default_rng(n)
    seen = set()
    for scale in (0.05, 0.4, 2.0):
        for shift in (0.0, 0.5, -3.0):
            values = scale * scores(rng, 1, n, SPREADS["unequal"]) + shift * np.arange(4)
            table = evidence.effects(with_scores(design.study, values[0], margin=written(MARGIN))).query("family")
            low, high = paired_intervals(values @ design.weights, 0.05 / 3)
            assert table[["low", "high"]].to_numpy(float) == pytest.approx(
                np.stack([low[0], high[0]], axis=1), abs=1e-9
            )
            assert list(table["verdict"]) == list(verdicts(low[0], high[0], n, MARGIN))
            seen |= set(table["verdict"])
    assert {"better", "worse", "undecided"} <= seen and ("equivalent among seeds that trained" in seen) == (n >= 5)


@pytest.mark.parametrize("n", [3, 5, 8])
def test_the_simulated_welch_is_that_of_statistics_and_of_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    one, other = rng.normal(0, 1, (4, n)), rng.normal(0.5, 3, (4, n + 2))
    low, high = welch_intervals(one, other, 0.02)
    for i in range(4):
        found = welch([one[i], -other[i]])
        assert interval(found, 0.02) == pytest.approx((low[i], high[i]))
        expected = stats.ttest_ind(one[i], other[i], equal_var=False)
        assert (found.df, evidence.p_value(found)) == pytest.approx((expected.df, expected.pvalue))
        assert tuple(expected.confidence_interval(0.98)) == pytest.approx((low[i], high[i]))


@pytest.mark.parametrize(("n", "spread"), [(n, spread) for n in SEEDS for spread in SPREADS])
def test_simultaneous_intervals_cover_and_equal_variants_are_not_called_different(design, n: int, spread: str) -> None:
    values = scores(np.random.default_rng([n, len(spread)]), STUDIES, n, SPREADS[spread])
    low, high = paired_intervals(values @ design.weights, 0.05 / 3)
    wrong = (low > 0) | (high < 0)
    assert np.abs(wrong.mean(0) - 0.05 / 3).max() < error(0.05 / 3, STUDIES)  # of each interval: what it says
    assert wrong.any(1).mean() < 0.05 + error(0.05, STUDIES)  # together: no more than promised
    assert wrong.any(1).mean() > 0.02  # nor so little that intervals are wider than they need be


def test_two_by_two_of_equal_spread_errs_as_often_as_three_independent_rows_do(tmp_path: Path) -> None:
    values = scores(np.random.default_rng(1), STUDIES, 5, SPREADS["equal"])
    low, high = paired_intervals(values @ design_of(tmp_path, "2x2").weights, 0.05 / 3)
    expected = 1 - (1 - 0.05 / 3) ** 3
    assert ((low > 0) | (high < 0)).any(1).mean() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("n", SEEDS)
def test_beside_a_true_effect_the_other_rows_err_no_more_often(design, n: int) -> None:
    rng = np.random.default_rng(n)
    values = scores(rng, STUDIES, n, SPREADS["unequal"])
    # The last cell differs: in a 2x2 design all three rows have an effect, in the other one row has.
    values[:, :, 3] += 5
    low, high = paired_intervals(values @ design.weights, 0.05 / 3)
    truth = 5 * design.weights[3]
    assert ((low > truth) | (high < truth)).any(1).mean() < 0.05 + error(0.05, STUDIES)


@pytest.mark.parametrize(("n", "spread"), [(n, spread) for n in (3, 5, 8) for spread in SPREADS])
def test_a_difference_as_large_as_the_margin_is_not_called_small(design, n: int, spread: str) -> None:
    """At the margin, the least favourable truth, and beyond; with noise small enough for the interval to fit inside."""
    rng = np.random.default_rng(n)
    for size in (1.0, 1.3):
        for noise in (0.02, 0.1, 0.3):
            values = noise * scores(rng, 5000, n, SPREADS[spread]) @ design.weights + size * MARGIN
            said = verdicts(*paired_intervals(values, 0.05 / 3), n, MARGIN)
            small = np.char.find(said, " among ") > 0
            assert small.any(1).mean() < 0.05 + error(0.05, 5000)
            assert n >= 5 or not small.any()


def test_what_is_equal_is_called_equivalent_once_there_are_seeds_enough(design) -> None:
    rng, found = np.random.default_rng(4), {}
    for n in (3, 5, 8, 20):
        values = 0.3 * scores(rng, 2000, n, SPREADS["equal"]) @ design.weights
        said = verdicts(*paired_intervals(values, 0.05 / 3), n, MARGIN)
        found[n] = np.mean(np.char.startswith(said, "equivalent"))
    assert found[3] == 0 and found[5] < found[8] < found[20] and found[20] > 0.95


@pytest.mark.parametrize(("d", "n", "alpha"), [(1.0, 8, 0.05), (2.0, 5, 0.05 / 3), (3.0, 3, 0.05), (0.6, 20, 0.05 / 6)])
def test_power_is_what_theory_says_within_two_points(d: float, n: int, alpha: float) -> None:
    differences = d + np.random.default_rng(n).normal(size=(STUDIES, n, 1))
    low, high = paired_intervals(differences, alpha)
    assert np.mean((low > 0) | (high < 0)) == pytest.approx(evidence.power(d, n, alpha), abs=0.02)


def test_unpaired_from_five_seeds_on_errs_about_as_often_as_said(tmp_path: Path) -> None:
    """Below there is no verdict at all; benchmarks/bench_unpaired.py has the whole table."""
    rng = np.random.default_rng(9)
    for n in (5, 8):
        for ratio in (1.0, 4.0):
            low, high = welch_intervals(rng.normal(size=(STUDIES, n)), ratio * rng.normal(size=(STUDIES, n)), 0.05)
            assert 0.04 < np.mean((low > 0) | (high < 0)) < 0.06
    for n in (3, 4):
        name = fabricate(tmp_path, {"train.batch_size": [16, 32]}, range(n), score=far, batches=str, study=f"n{n}")
        (found,) = evidence.effects(load_study(tmp_path, name)).itertuples()
        assert found.verdict == "undecided" and found.note == "unpaired, n < 5" and found.low > 1


def far(levels: dict, seed: int) -> float:
    return 2.0 + levels["train.batch_size"] / 4 + 0.001 * seed
