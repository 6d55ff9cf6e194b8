"""What a difference is worth in steps of its reference: numbers against formulas, and what has no number."""

import math
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from claimed_studies import entry
from fake_studies import STEPS, TASK, study_of
from scipy import stats

from ablate import evidence
from ablate.cli.summary import summary
from ablate.evidence.worth import Worth, factor_interval, outside, within
from ablate.runs.study import Study

FACTORS = (0.8, 1.0, 1.25, 1.6)
LOGS = np.log(FACTORS)


def of_seeds(
    n: int, log_worth: float, slope: float = -0.3, spread: float = 0.01, rng: int = 0, log_steps: np.ndarray = LOGS
) -> np.ndarray:
    """Distances (n, numbers of steps) of a change that is worth `log_worth` of a reference with this slope."""
    drawn = np.random.default_rng(rng)
    level = slope * log_worth + drawn.normal(0, spread, (n, 1))
    return slope * log_steps + drawn.normal(0, spread, (n, len(log_steps))) - level


def fieller(differences: np.ndarray, slopes: np.ndarray, alpha: float) -> tuple[float, float]:
    """The ends of the confidence set of mean(differences) / mean(slopes), in the form of Fieller (1954)."""
    n = len(differences)
    y, x = differences.mean(), slopes.mean()
    (vyy, vxy), (_, vxx) = np.cov(differences, slopes) / n
    t = stats.t.ppf(1 - alpha / 2, n - 1)
    g = t**2 * vxx / x**2
    middle = y / x - g * vxy / vxx
    half = t / abs(x) * math.sqrt(vyy - 2 * y / x * vxy + (y / x) ** 2 * vxx - g * (vyy - vxy**2 / vxx))
    return (middle - half) / (1 - g), (middle + half) / (1 - g)


@pytest.mark.parametrize("n", [3, 5, 8, 12, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.004])
def test_on_one_segment_the_interval_is_fiellers(n, alpha):
    log_steps = np.array([-3.0, 3.0])
    distances = of_seeds(n, 0.2, rng=n, log_steps=log_steps)
    slopes = (distances[:, 1] - distances[:, 0]) / 6
    # Zero of distance(0) + slope·g.
    expected = fieller(-distances.mean(axis=1), slopes, alpha)
    point, low, high = factor_interval(distances, log_steps, -1, alpha)
    assert point == pytest.approx(-distances.mean() / slopes.mean())
    assert (low, high) == pytest.approx(expected)


@pytest.mark.parametrize("n", [3, 5, 12, 40])
def test_the_ends_are_where_a_t_test_of_the_interpolated_scores_turns(n):
    bounded = 0
    for rng in range(20):
        distances = of_seeds(n, 0.1, rng=rng, spread=0.006)
        _, *ends = factor_interval(distances, LOGS, -1, 0.05)
        for end in filter(math.isfinite, ends):
            at = np.array([np.interp(end, LOGS, row) for row in distances])
            assert stats.ttest_1samp(at, 0).pvalue == pytest.approx(0.05)
            bounded += 1
    assert bounded > 20


@pytest.mark.parametrize(
    ("log_worth", "unbounded"), [(math.log(3), (False, True)), (math.log(0.4), (True, False)), (0.1, (False, False))]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_last_number_of_steps_there_is_no_bound(log_worth, unbounded, sign):
    distances = sign * of_seeds(8, log_worth, spread=0.004)
    point, low, high = factor_interval(distances, LOGS, -sign, 0.05)
    assert (math.isinf(low), math.isinf(high)) == unbounded
    assert math.isinf(point) == any(unbounded) and low <= point <= high


@pytest.mark.parametrize("gain", [1, -1])
@pytest.mark.parametrize("column", [0, -1], ids=["low", "high"])
@pytest.mark.parametrize(("share", "bounded"), [(0.98, False), (1.02, True)])
def test_an_end_has_a_bound_where_a_t_test_at_the_last_number_of_steps_decides(gain, column, share, bounded):
    n = 6
    noise = np.random.default_rng(1).normal(size=(n, 2))
    noise = 0.1 * (noise - noise.mean(axis=0)) / noise.std(axis=0, ddof=1)
    distances = noise + gain * np.array([-5.0, 5.0])
    direction = gain if column == -1 else -gain
    t = share * stats.t.ppf(0.975, n - 1)
    distances[:, column] = noise[:, column] + direction * t * 0.1 / math.sqrt(n)
    _, *ends = factor_interval(distances, np.array([-1.0, 1.0]), gain, 0.05)
    assert math.isfinite(ends[column]) == bounded
    assert math.isfinite(ends[-1 - column])


Score = Callable[[dict[str, Any], int], float]


def study_at(
    score: Score, seeds: int = 6, factors: tuple[float, ...] = FACTORS, other_seeds: int | None = None, **more: Any
) -> Study:
    """A study of swiglu against mlp, whose reference was trained for other numbers of steps, too."""
    steps = [STEPS, *(round(STEPS * factor) for factor in factors if factor != 1)]
    own = {name: more[name] for name in ("tasks",) if name in more}
    others = study_of({"train.steps": steps}, range(other_seeds or seeds), score, exchange_of="s", **own)
    return study_of({"ffn": ["mlp", "swiglu"]}, range(seeds), score, beside={"exchange": others}, **more)


def law(
    slope: float, difference: float, spread: float = 0.002, sign: int = 1, collapsed: tuple[Any, ...] = ()
) -> Score:
    """Scores that move by `slope` per unit of log(steps) and by `difference` with swiglu."""

    def score(levels: dict[str, Any], seed: int) -> float:
        steps = levels.get("train.steps", STEPS)
        ffn = levels.get("ffn", "mlp")
        if (steps, seed) in collapsed or (ffn, seed) in collapsed:
            return 5.4
        own = np.random.default_rng([seed, steps, len(ffn)]).normal(0, spread)
        return float(sign * (2.0 + slope * math.log(steps / STEPS) + difference * (ffn == "swiglu")) + own)

    return score


def effect(study: Study) -> Any:
    return evidence.effects(study).iloc[0]


@pytest.mark.parametrize("seeds", [5, 12, 20])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_planted_slope_is_recovered_whichever_way_is_better(seeds, sign):
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}}} if sign < 0 else {"f0": TASK}
    row = effect(study_at(law(-0.3, -0.03, sign=sign), seeds, tasks=tasks))
    assert row.worth_low < math.expm1(0.1) < row.worth_high
    assert row.worth == pytest.approx(math.expm1(0.1), rel=0.15)
    assert row.worth_note == "" and row.verdict == "better"
    assert re.fullmatch(r"worth \+1.*\] training steps", evidence.worth_words(row))


def test_the_interval_follows_the_level_of_its_row():
    study = study_at(law(-0.3, -0.03))
    assert effect(study).alpha == 0.05
    distances = evidence.scores(study.beside["exchange"]).to_numpy()[:, [1, 0, 2, 3]]
    distances = distances - evidence.scores(study).to_numpy()[:, [1]]
    _, low, high = factor_interval(distances, np.log([640 / 800, 1, 1000 / 800, 1280 / 800]), -1, 0.05)
    assert [effect(study).worth_low, effect(study).worth_high] == pytest.approx([math.expm1(low), math.expm1(high)])


def test_a_curve_that_is_flat_has_no_worth_that_is_a_huge_number():
    for slope in (0.0, -0.0005, -0.002, -0.0045):
        row = effect(study_at(law(slope, -0.05, 0.004)))
        assert math.isnan(row.worth) or (row.worth_high == math.inf or row.worth_low == -1)
        assert not re.search(r"\d{3,} %", evidence.worth_text(row))


def test_a_reference_that_more_steps_make_worse_tells_nothing():
    row = effect(study_at(law(0.1, -0.05)))
    assert math.isnan(row.worth) and row.worth_note == "more steps do not improve its reference"


def test_what_lies_beyond_the_steps_that_were_trained_is_a_bound():
    row = effect(study_at(law(-0.1, -0.2)))
    assert evidence.worth_words(row) == "worth at least 60 % more training steps"
    row = effect(study_at(law(-0.1, 0.2)))
    assert evidence.worth_words(row) == "worth at least 20 % fewer training steps"
    row = effect(study_at(law(-0.1, -0.2), factors=(0.8, 1.0, 1.25, 1.6, 2.0, 4.0, 8.0)))
    assert row.worth == pytest.approx(math.expm1(2), rel=0.1) and row.worth_note == ""


@pytest.mark.parametrize(
    ("collapsed", "named"), [((640, 2), "640: seed 2"), (("swiglu", 1), "swiglu: seed 1"), (("mlp", 1), "")]
)
def test_a_collapsed_run_is_named_and_its_seed_left_out(collapsed, named):
    study = study_at(law(-0.3, -0.03, collapsed=(collapsed,)), seeds=8)
    row = effect(study)
    assert row.worth == pytest.approx(math.expm1(0.1), rel=0.2) and row.worth_high < 0.2
    assert row.worth_note.startswith("left out as collapsed or diverged: ") and named in row.worth_note
    assert "left out as collapsed or diverged: " in summary(study)


TWO_PER_CENT = {"value": "2 %", "written": "2026-01-01", "registered": True, "earlier": []}


@pytest.mark.parametrize("worth", [0.062, -0.062])
def test_a_difference_beyond_a_margin_in_steps_is_not_small_because_runs_collapsed(worth):
    """By the mean curve of all seeds 2 % of the steps were 0.03 nats here, and 6.2 % are 0.018."""
    score = law(-0.3, -0.3 * math.log1p(worth), 1e-3, collapsed=((640, 2), ("swiglu", 5)))
    assert effect(study_at(score, 8, margin=TWO_PER_CENT)).verdict not in ("negligible", "equivalent")


def test_what_a_collapsed_run_of_the_reference_lost_is_no_worth_of_its_steps():
    score = law(-0.3, -0.3 * math.log1p(0.004), 2e-4, collapsed=((640, 2),))
    row = effect(study_at(score, 8, margin=TWO_PER_CENT))
    assert row.verdict == "negligible" and row.worth == pytest.approx(0.004, abs=0.001)


def test_more_steps_that_make_it_worse_make_nothing_small():
    assert effect(study_at(law(0.3, 0.0, 2e-4), 8, margin=TWO_PER_CENT)).verdict == "undecided"


def test_a_margin_of_a_claim_may_be_a_share_of_the_training_steps():
    """swiglu is worse by what 1 % of the steps are worth."""
    margins = {"half": "0.5 %", "one": "1 %", "two": "2 %", "units": 0.1 * math.log(1.02)}
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    claims = {name: entry({"equivalent": sides, "margin": margin}) for name, margin in margins.items()}
    score = law(-0.1, 0.001, 1e-4)
    table = evidence.claims(study_at(score, 8, claims=claims)).set_index("name")
    assert list(table["verdict"]) == ["contradicted", "undecided", "supported", "supported"]
    two = table.loc["two"]
    assert two.worth == pytest.approx(math.exp(-0.01) - 1, abs=0.002) and two.worth_low < two.worth < two.worth_high < 0
    assert table.loc["half", "p"] < 0.01 < 0.05 < table.loc["one", "p"] and 0 < two.p < 0.01
    few = evidence.claims(study_at(score, 4, claims={"two": claims["two"]})).iloc[0]
    assert (few.verdict, few.p) == ("undecided", 1) and "fewer than 5 seeds" in few.note
    without = study_of({"ffn": ["mlp", "swiglu"]}, range(8), score, claims={"two": claims["two"]})
    waits = evidence.claims(without).iloc[0]
    assert waits.verdict == "undecided" and "step_equivalents=true" in waits.note and not waits.waits


def test_steps_that_are_too_few_to_learn_anything_are_no_collapse():
    """Most runs of 640 steps end at what is known without learning; they stay, and the worth above is as it was."""
    near = {seed: 3.235 + 0.001 * seed for seed in range(7)} | {7: 3.0}

    def score(levels: dict[str, Any], seed: int) -> float:
        steps = levels.get("train.steps", STEPS)
        return near[seed] if steps == 640 else law(-0.3, -0.03)(levels, seed)

    row = effect(study_at(score, seeds=8))
    assert row.worth_note == "" and row.worth == pytest.approx(math.expm1(0.1), rel=0.2)


def test_fewer_than_three_complete_seeds_have_no_worth():
    row = effect(study_at(law(-0.3, -0.03), other_seeds=2))
    assert math.isnan(row.worth) and "fewer than 3 seeds have all runs" in row.worth_note
    row = effect(study_at(law(-0.3, -0.03), other_seeds=4))
    assert row.worth_note == "over 4 seeds that have all runs" and row.n == 6


def test_without_runs_for_other_numbers_of_steps_there_is_no_worth():
    row = effect(study_of({"ffn": ["mlp", "swiglu"]}, range(6), law(-0.3, -0.03)))
    assert math.isnan(row.worth) and evidence.worth_words(row) == ""


def test_differences_without_pairs_or_over_several_settings_have_no_worth():
    apart = study_at(law(-0.3, -0.03), batches=lambda levels: levels.get("ffn", "mlp"))
    assert math.isnan(effect(apart).worth) and "only paired differences at one setting" in effect(apart).worth_note
    rates: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"], "optim.lr": [1e-3, 1e-2]}
    crossed = evidence.effects(study_of(rates, range(6), beside=apart.beside)).set_index("kind")
    assert "only paired differences at one setting" in crossed.loc["interaction", "worth_note"]


@pytest.mark.parametrize(
    ("worth", "low", "high", "said"),
    [
        (0.09, 0.06, 0.13, "worth +9 % [+6, +13] steps"),
        (0.0912, 0.085, 0.097, "worth +9.1 % [+8.5, +9.7] steps"),
        (1.4, 0.9, math.inf, "worth +140 % [+90, unbounded] steps"),
        (0.01, -1.0, 0.3, "worth +1 % [unbounded, +30] steps"),
        (0.01, -1.0, math.inf, "not bounded"),
        (math.inf, 0.6, math.inf, "worth at least 60 % more steps"),
        (-1.0, -1.0, -0.2, "worth at least 20 % fewer steps"),
        (math.nan, math.nan, math.nan, ""),
    ],
)
def test_a_worth_in_words(worth, low, high, said):
    assert evidence.worth_words(SimpleNamespace(worth=worth, worth_low=low, worth_high=high), "steps") == said


def test_a_share_of_the_steps_is_as_far_in_both_directions():
    """2 % more steps, and what 2 % more steps make up for: 1/1.02 − 1, which is −1.96 %, not −2 %."""
    assert within(-0.0196, 0.0199, 0.02) and not within(-0.0197, 0.01, 0.02) and not within(0.0, 0.02, 0.02)
    assert not within(-1.0, math.inf, 0.02) and not within(math.nan, math.nan, 0.02)
    assert outside(Worth(-0.03, -0.04, -0.0197), 0.02) and not outside(Worth(-0.03, -0.04, -0.0195), 0.02)


@pytest.mark.parametrize("exponent", [0.1, 0.5])
@pytest.mark.parametrize("seeds", [5, 12])
def test_intervals_hold_the_truth_of_a_power_law(exponent, seeds):
    """400 simulated studies, of which 95 % are expected, within three standard errors."""
    truth = math.log(1.4)
    log_steps = np.log((0.8, 1, 1.25, 1.6, 2.0))
    curve = lambda x: 0.12 / exponent * np.expm1(-exponent * x)  # noqa: E731
    rng = np.random.default_rng(0)
    holds = []
    for _ in range(400):
        level = curve(truth) + rng.normal(0, 0.0064, (seeds, 1))
        distances = curve(log_steps) + rng.normal(0, 0.0064, (seeds, 5)) - level
        _, low, high = factor_interval(distances, log_steps, -1, 0.05)
        holds.append(low <= truth <= high)
    assert np.mean(holds) > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 400)


def test_lines_between_numbers_of_steps_miss_a_power_law_by_little():
    """A loss that falls with the root of the steps: less than 0.7 % of the steps anywhere."""
    curve = lambda x: np.exp(-0.5 * x)  # noqa: E731
    log_steps = np.log((0.5, 0.64, 0.8, 1, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0))
    truths = np.linspace(log_steps[0] + 0.01, log_steps[-1] - 0.01, 200)
    for truth in truths:
        exact = np.repeat(curve(log_steps)[None] - curve(truth), 3, axis=0)
        point, _, _ = factor_interval(exact + np.array([[1e-9], [0], [-1e-9]]), log_steps, -1, 0.05)
        assert abs(point - truth) < 0.007
