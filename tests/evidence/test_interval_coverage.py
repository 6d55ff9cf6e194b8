"""Promises kept, by simulation: coverage, false verdicts, false equivalence, power, within three standard errors.

The arithmetic of tests/helpers/simulate.py runs thousands of studies at once; first it is shown to be evidence's own.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas
import pytest
from fake_studies import fabricate
from scipy import optimize, special, stats
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
from ablate.cli.summary import summary
from ablate.evidence.statistics import (
    chi2_quantile,
    detectable,
    detectable_factor,
    found_with,
    interval,
    paired,
    t_above,
    t_limit,
    welch,
)
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
    for scale, shift in ((0.05, 0.0), (0.05, 0.5), (0.4, 3.0), (0.4, -3.0), (2.0, 0.5)):
        values = scale * scores(rng, 1, n, SPREADS["unequal"]) + shift * np.arange(4)
        table = evidence.effects(with_scores(design.study, values[0], margin=written(MARGIN))).query("family")
        low, high = paired_intervals(values @ design.weights, 0.05 / 3)
        assert table[["low", "high"]].to_numpy(float) == pytest.approx(np.stack([low[0], high[0]], axis=1), abs=1e-9)
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
    df = np.linspace(4, 8, 9)
    factors = [detectable_factor(each, 0.05) for each in df]
    for _ in range(studies):
        earlier = welch([rng.normal(size=5), -ratio * rng.normal(size=5)])
        size = earlier.error * np.interp(earlier.df, df, factors)
        fresh = welch([rng.normal(size=5) + size, -ratio * rng.normal(size=5)])
        found += abs(fresh.mean) > t_limit(0.025, fresh.df) * fresh.error
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


DRAWN = np.random.default_rng(0)

P = np.concatenate([DRAWN.uniform(0, 1, 20_000) ** 4, [1e-9, 1.0, 1e-300, 0.5, np.nan]])

DF = np.concatenate([DRAWN.integers(1, 80, 15_000), DRAWN.uniform(0.3, 40, 5000), [1, 2, 3, 4, 5]])


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (t_limit(P, DF), stats.t.isf(P, DF)),
        (t_above(20 * P - 5, DF), stats.t.sf(20 * P - 5, DF)),
        (chi2_quantile(P, DF), stats.chi2.ppf(P, DF)),
        (special.ndtr(20 * P - 10), stats.norm.cdf(20 * P - 10)),
        (special.betainccinv(DF, DF[::-1], P), stats.beta.isf(P, DF, DF[::-1])),
    ],
)
def test_as_scipy_computes_them(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(ours, theirs)


FILE = Path(__file__).parents[1] / "recorded" / "norm_ffn_tiny.csv"

DRAWS = 4000

# Real differences are no Gaussian ones, at least not quite: their intervals may miss the truth by this much more often.
SLACK = 0.012


@pytest.fixture(scope="module")
def losses() -> np.ndarray:
    """Test losses (seeds, cells) in the order of the grid's cells."""
    runs = pandas.read_csv(FILE)
    assert set(runs["status"]) == {"done"} and runs["batches"].nunique() == 1
    table = runs.pivot(index="seed", columns=["norm", "ffn"], values="test/loss")
    return table[[(norm, ffn) for norm in DESIGNS["2x2"]["norm"] for ffn in DESIGNS["2x2"]["ffn"]]].to_numpy()


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return design_of(tmp_path_factory.mktemp("grid"), "2x2")


def drawn(values: np.ndarray, n: int) -> np.ndarray:
    """Many draws (draws, n, rows) of n different seeds."""
    order = np.random.default_rng(n).random((DRAWS, len(values))).argsort(1)
    return np.asarray(values[order[:, :n]])


def test_the_record_is_whole(losses: np.ndarray) -> None:
    assert len(losses) >= 64 and np.isfinite(losses).all()
    assert losses.min() > 1.5 and losses.max() < 2


@pytest.mark.parametrize("n", SEEDS)
def test_paired_intervals_hold_the_mean_of_all_seeds(losses: np.ndarray, grid, n: int) -> None:
    effects = losses @ grid.weights
    low, high = paired_intervals(drawn(effects, n), 0.05 / 3)
    # n of N different seeds vary less about the mean of all N, by √(1 − n/N): without it coverage would look too good.
    middle, half = (low + high) / 2, (high - low) / 2 * math.sqrt(1 - n / len(effects))
    missed = np.abs(middle - effects.mean(0)) > half
    assert missed.mean(0).max() < 0.05 / 3 + SLACK
    assert missed.any(1).mean() < 0.05 + SLACK + error(0.05, DRAWS)
    assert missed.any(1).mean() > 0.02


@pytest.mark.parametrize("n", SEEDS)
def test_without_an_effect_variants_are_rarely_called_different(losses: np.ndarray, grid, n: int) -> None:
    """Differences about their mean, as placebos make them, each seed's with a random sign."""
    effects = losses @ grid.weights
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(DRAWS, n, 1))
    noise = drawn(effects - effects.mean(0), n) * signs
    low, high = paired_intervals(noise, 0.05 / 3)
    wrong = (low > 0) | (high < 0)
    assert 0.02 < wrong.any(1).mean() < 0.05 + SLACK + error(0.05, DRAWS)
    for margin in (0.005, 0.01, 0.02):
        low, high = paired_intervals(noise + margin, 0.05 / 3)
        small = np.char.find(verdicts(low, high, n, margin), " among ") > 0
        assert small.any(1).mean() < 0.05 + SLACK + error(0.05, DRAWS) and (n >= 5 or not small.any())


@pytest.mark.parametrize("n", [5, 8])
def test_unpaired_seeds_of_equal_cells_are_rarely_called_different(losses: np.ndarray, n: int) -> None:
    one, other = drawn(losses - losses.mean(0), 2 * n)[:, :, [0, 3]].transpose(2, 0, 1)
    low, high = welch_intervals(one[:, :n], other[:, n:], 0.05)  # seeds of one cell, other seeds of another
    assert np.mean((low > 0) | (high < 0)) < 0.05 + SLACK


def test_pairing_saves_seeds(losses: np.ndarray, grid) -> None:
    """Of the norm's main effect, pairs vary far less than runs of different seeds would."""
    norm = grid.weights[:, 0]
    between = sum(np.var(losses @ side, ddof=1) for side in (np.maximum(norm, 0), np.minimum(norm, 0)))
    assert between / np.var(losses @ norm, ddof=1) > 3
