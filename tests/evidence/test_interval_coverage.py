"""Promises kept, by simulation: coverage, false verdicts, false equivalence, power, within three standard errors.

The arithmetic of tests/helpers/simulate.py runs thousands of studies at once; first it is shown to be evidence's own.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from fake_studies import a_manifest, study_of
from scipy import stats
from simulate import DESIGNS, SPREADS, design_of, error, paired_intervals, scores, verdicts, weights_of, with_scores

from ablate import evidence
from ablate.evidence.estimates import paired, welch
from ablate.evidence.families import looks_until
from ablate.evidence.power import detectable_factor
from ablate.runs.records import Look, MarginEntry, Sequential
from ablate.runs.study import Study

STUDIES = 10_000
SEEDS = (3, 5)
MARGIN = 1.0


@pytest.fixture(scope="module", params=list(DESIGNS))
def design(request):
    return design_of(request.param)


@pytest.mark.parametrize("n", SEEDS)
def test_the_simulated_rule_is_the_rule_of_effects(design, n):
    rng, margin, seen = np.random.default_rng(n), MarginEntry(value=MARGIN, written="", registered=True), set()
    for scale, shift in ((0.05, 0.0), (0.05, 0.5), (0.4, 3.0), (0.4, -3.0), (2.0, 0.5)):
        values = scale * scores(rng, 1, n, SPREADS["unequal"]) + shift * np.arange(4)
        table = evidence.effects(with_scores(design.study, values[0], margin=margin)).query("family")
        low, high = paired_intervals(values @ design.weights, 0.05 / 3)
        assert table[["low", "high"]].to_numpy(float) == pytest.approx(np.stack([low[0], high[0]], axis=1), abs=1e-9)
        assert list(table["verdict"]) == list(verdicts(low[0], high[0], n, MARGIN))
        seen |= set(table["verdict"])
    assert {"better", "worse", "undecided"} <= seen and ("equivalent" in seen) == (n >= 5)


@pytest.mark.parametrize(("n", "spread"), [(n, spread) for n in SEEDS for spread in SPREADS])
def test_simultaneous_intervals_cover_and_equal_variants_are_not_called_different(design, n, spread):
    values = scores(np.random.default_rng([n, len(spread)]), STUDIES, n, SPREADS[spread])
    low, high = paired_intervals(values @ design.weights, 0.05 / 3)
    wrong = (low > 0) | (high < 0)
    assert np.abs(wrong.mean(0) - 0.05 / 3).max() < error(0.05 / 3, STUDIES)  # of each interval: what it says
    assert wrong.any(1).mean() < 0.05 + error(0.05, STUDIES)  # together: no more than promised
    assert wrong.any(1).mean() > 0.02  # nor so little that intervals are wider than they need be


@pytest.mark.parametrize(("n", "spread"), [(n, spread) for n in SEEDS for spread in SPREADS])
def test_a_difference_as_large_as_the_margin_is_not_called_small(design, n, spread):
    """At the margin, the least favourable truth, and beyond; with noise small enough for the interval to fit inside."""
    rng = np.random.default_rng(n)
    for size in (1.0, 1.3):
        for noise in (0.02, 0.1, 0.3):
            values = noise * scores(rng, 5000, n, SPREADS[spread]) @ design.weights + size * MARGIN
            said = verdicts(*paired_intervals(values, 0.05 / 3), n, MARGIN)
            small = np.isin(said, ["negligible", "equivalent"])
            assert small.any(1).mean() < 0.05 + error(0.05, 5000)
            assert n >= 5 or not small.any()


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("n", [3, 8])
def test_a_fresh_study_finds_it_in_80_of_100(n, spread):
    """Each effect of the family at its own difference, told by one study and looked for by another."""
    weights, rng = design_of("1x4").weights, np.random.default_rng(n)
    factor = detectable_factor(n - 1, 0.05 / 3)
    told = scores(rng, STUDIES, n, SPREADS[spread]) @ weights
    size = factor * told.std(1, ddof=1) / math.sqrt(n)
    fresh = scores(rng, STUDIES, n, SPREADS[spread]) @ weights + size[:, None]
    low, high = paired_intervals(fresh, 0.05 / 3)
    assert ((low > 0) | (high < 0)).mean(0) == pytest.approx([0.8] * 3, abs=0.012)


def test_one_value_has_a_mean_and_nothing_else():
    for found in (paired(np.array([2.0])), welch([np.array([3.0]), np.array([-1.0, -1.5])])):
        assert found.mean in (2.0, 1.75) and found.n == 1
        assert all(math.isnan(value) for value in (found.sd, found.error, found.df))


LOOKS = (5, 8, 12, 20)
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
SEQUENTIAL = {"1": {"norm": ["ln", "rms"]}, "3": GRID}


def test_looks_are_cut_at_the_most_seeds():
    assert [looks_until(n) for n in (5, 7, 8, 20)] == [[5], [5, 7], [5, 8], [5, 8, 12, 20]]
    assert looks_until(50) == [5, 8, 12, 20, 50]


# Error rates: the rule of a study, over many at once


def carried_out(effects: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of studies (studies, seeds, rows): intervals (studies, rows) where they stop, and the number of seeds there."""
    low, high = np.full((2, len(effects), effects.shape[2]), np.nan)
    seeds = np.zeros(len(effects), dtype=int)
    for n in LOOKS:
        going = seeds == 0
        low[going], high[going] = intervals(effects[going], n)
        decided = ((low > 0) | (high < 0)).all(1) | (n == LOOKS[-1])
        seeds[going & decided] = n
    return low, high, seeds


def intervals(effects: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Repeated intervals (studies, rows) at the look at n seeds."""
    seen = effects[:, :n]
    level = evidence.ALPHA / effects.shape[2] / len(LOOKS)
    half = stats.t.isf(level / 2, n - 1) * seen.std(1, ddof=1) / math.sqrt(n)
    return seen.mean(1) - half, seen.mean(1) + half


def template(factors: dict[str, list[str]], looks: tuple[int, ...] = LOOKS) -> Study:
    """A study with seeds=auto at its last look."""
    most = looks[-1]
    return study_of(factors, range(most), sequential={"looks": list(looks), "at": most, "max": most})


def at_look(study: Study, scores: np.ndarray, n: int) -> Study:
    """The study at its look at n seeds, with scores (seeds, cells)."""
    return with_scores(study, scores[:n], sequential=replace(study.manifest.sequential, at=n))


@pytest.mark.parametrize("design", SEQUENTIAL)
def test_the_simulated_rule_is_the_rule_of_a_study(design):
    study, rng = template(SEQUENTIAL[design]), np.random.default_rng(5)
    weights = weights_of(study)
    shift = np.linspace(0, 3, weights.shape[0])
    for _ in range(2):
        scores = 2 + rng.normal(size=(20, len(shift))) + shift
        low, high, seeds = carried_out((scores @ weights)[None])
        for n in LOOKS:
            table = evidence.effects(at_look(study, scores, n)).query("family")
            if evidence.undecided(table).empty:
                break
        assert n == seeds[0]
        assert table[["low", "high"]].to_numpy() == pytest.approx(np.stack([low[0], high[0]], axis=1), abs=1e-9)


@pytest.mark.parametrize("design", SEQUENTIAL)
def test_false_decisions_stay_below_five_per_cent(design):
    weights = weights_of(study_of(SEQUENTIAL[design]))
    scores = np.random.default_rng(17).normal(size=(8000, 20, len(weights)))
    low, high, _ = carried_out(scores @ weights)
    wrong = ((low > 0) | (high < 0)).any(1)
    error = math.sqrt(0.05 * 0.95 / len(wrong))
    assert wrong.mean() <= 0.05 + 3 * error
    shown = [intervals(scores @ weights, n) for n in LOOKS]
    ever = np.any([((low > 0) | (high < 0)).any(1) for low, high in shown], axis=0)
    assert 0.01 < ever.mean() <= 0.05 + 3 * error, "at any look, whoever stops when"


# Effects of a study with looks


def test_intervals_and_p_agree_at_a_look():
    study, rng = template(GRID), np.random.default_rng(1)
    agreed = 0
    for shift in np.linspace(0, 3, 5):
        scores = rng.normal(size=(20, 4)) + np.array([0, shift, 0, shift])
        table = evidence.effects(at_look(study, scores, 8))
        decided = table["verdict"].isin(["better", "worse"])
        assert (decided == (table["p_bonferroni"] <= 0.05)).all(), "p contradicts the interval"
        agreed += int(decided.sum())
    assert 0 < agreed < 15, "both verdicts occur"


def test_runs_without_a_number_leave_the_looks_as_they_were_planned():
    study = template({"norm": ["ln", "rms"]}, (2, 5, 8))
    scores = np.random.default_rng(2).normal(size=(20, 2))
    scores[1, 0] = scores[6, 1] = np.nan
    here = at_look(study, scores, 8)
    here.runs.loc[here.runs["test/loss"].isna(), "status"] = "failed"
    row = evidence.effects(here).iloc[0]
    assert row.n == 6
    assert row.alpha == 0.05 / 3
    assert "the analysis at 8 seeds lacks 2 runs" in evidence.sequential_state(here, evidence.effects(here))


PLAN = list(LOOKS)
OTHER = [5, 8]


@pytest.mark.parametrize(
    ("auto", "seeds", "looks", "said"),
    [
        (PLAN, 8, [(5, PLAN), (8, PLAN)], ""),
        (PLAN, 8, [(3, None), (6, PLAN)], "interim analyses at 3, 6 seeds"),
        (PLAN, 8, [(5, OTHER), (5, PLAN)], "interim analyses at 5 seeds"),
        (None, 8, [(5, PLAN)], "interim analyses at 5 seeds"),
        (None, 8, [(8, None)], ""),
        (None, 5, [(5, None), (3, None)], "interim analyses at 3 seeds"),
    ],
)
def test_only_the_looks_of_one_plan_are_allowed_for(auto, seeds, looks, said):
    log = [Look(seeds=list(range(n)), planned=plan) for n, plan in looks]
    sequential = Sequential(looks=auto, at=seeds, max=auto[-1]) if auto else None
    found = evidence.unadjusted(a_manifest(seeds=list(range(seeds)), looks=log, sequential=sequential))
    assert said in found and bool(said) == bool(found)


def test_a_seed_beside_the_plan_is_accused():
    looks = [Look(seeds=[0, 1, 2, 30]), Look(seeds=[0, 1, 2, 3, 4], planned=PLAN)]
    sequential = Sequential(looks=PLAN, at=5, max=20)
    manifest = a_manifest(seeds=[0, 1, 2, 3, 4, 30], looks=looks, sequential=sequential)
    assert "interim analyses at 4 seeds" in evidence.unadjusted(manifest)
