"""seeds=auto: the levels of its looks, their error rates by simulation, and what a study does from look to look."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_studies import a_manifest, fabricate
from scipy import stats

from ablate import evidence
from ablate.evidence.sequential import looks_until, nominal, overall
from ablate.evidence.statistics import detectable_factor
from ablate.results.records import Look, Sequential
from ablate.results.study import Study, load_study

LOOKS = (5, 8, 12, 20)
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
DESIGNS = {
    "1": {"norm": ["ln", "rms"]},
    "3": GRID,
    "3 of one reference": {"norm": ["ln", "rms", "bn", "none"]},
    "6 of one reference": {"norm": ["ln", "rms", "bn", "none", "crms", "scale", "power"]},
}


def smallest_p(values: np.ndarray, looks: tuple[int, ...]) -> np.ndarray:
    """(paths, seeds) -> the least two-sided p of SciPy's own t test over the looks."""
    return np.min([stats.ttest_1samp(values[:, :n], 0, axis=1).pvalue for n in looks], axis=0)


# Levels


def test_one_look_spends_the_level_itself() -> None:
    assert nominal((7,), 0.05) == 0.05 and overall((7,), 0.013) == 0.013


@pytest.mark.parametrize(
    ("alpha", "looks", "critical"),  # Pocock's constants for a known variance: Jennison & Turnbull 2000, table 2.1
    [(0.05, 2, 2.178), (0.01, 2, 2.772), (0.05, 4, 2.361)],
)
def test_many_seeds_come_to_the_published_constants(alpha: float, looks: int, critical: float) -> None:
    found = nominal(tuple(10**6 * k for k in range(1, looks + 1)), alpha)
    assert critical - 0.002 < stats.norm.isf(found / 2) < critical + 0.007, "on the safe side by its own error"


@pytest.mark.parametrize("looks", [(5, 8), LOOKS, (2, 3, 20)])
def test_levels_against_paths_drawn_one_by_one(looks: tuple[int, ...]) -> None:
    least = smallest_p(np.random.default_rng(11).normal(size=(50_000, looks[-1])), looks)
    for alpha in (0.2, 0.05, 0.05 / 3, 0.05 / 6):
        error = math.sqrt(alpha * (1 - alpha) / len(least))
        assert np.mean(least <= nominal(looks, alpha)) == pytest.approx(alpha, abs=3 * error + 0.01 * alpha)


def test_a_tiny_level_is_spent_once() -> None:
    """.05/28, by paths that a mean and a smaller spread draw towards the boundary, and density ratios that undo it.

    Not the package's way: each n values at the first crossing weigh 1 / mean over (δ, σ) of N(δ, σ²)ⁿ / N(0, 1)ⁿ.
    """
    rng, level = np.random.default_rng(3), nominal(LOOKS, 0.05 / 28)
    drifts, spreads = np.array([0.3, 0.6, 1.0, 0.8, 0.3]), np.array([0.3, 0.6, 0.6, 1.0, 0.1])
    which = rng.integers(5, size=(100_000, 1))
    x = rng.normal(size=(len(which), LOOKS[-1])) * spreads[which] + drifts[which]
    chance, running = np.zeros(len(x)), np.ones(len(x), dtype=bool)
    for n in LOOKS:
        crossed = running & (stats.ttest_1samp(x[:, :n], 0, axis=1).pvalue <= level)
        seen = x[crossed, :n, None]
        logs = (seen**2 / 2 - ((seen - drifts) / spreads) ** 2 / 2 - np.log(spreads)).sum(1)
        chance[crossed] = 2 * (seen.sum((1, 2)) > 0) / np.exp(logs).mean(1)
        running &= ~crossed
    error = chance.std() / math.sqrt(len(chance))
    assert error < 0.02 * 0.05 / 28
    assert chance.mean() == pytest.approx(0.05 / 28, abs=3 * error + 0.01 * 0.05 / 28)


@pytest.mark.parametrize("looks", [LOOKS, (5, 8)])
def test_a_level_and_its_p_are_each_others_inverse(looks: tuple[int, ...]) -> None:
    p = np.geomspace(1e-14, 1, 400)
    chances = np.array([overall(looks, each) for each in p])
    assert (np.diff(chances) > 0).all() and chances[-1] == pytest.approx(1)
    assert (chances <= len(looks) * p * (1 + 1e-9)).all() and (chances >= p * (1 - 1e-9)).all()
    for chance, each in zip(chances[:-1], p[:-1], strict=True):
        assert nominal(looks, chance) == pytest.approx(each, rel=1e-6)


def test_looks_are_cut_at_the_most_seeds() -> None:
    assert [looks_until(n) for n in (5, 7, 8, 20)] == [[5], [5, 7], [5, 8], [5, 8, 12, 20]]
    assert looks_until(50) == [5, 8, 12, 20, 50]


# Error rates: the rule of a study, over many at once


def contrasts_of(tmp_path: Path, factors: dict[str, list[str]]) -> np.ndarray:
    """Weights (cells, rows of the family) of a design's real contrasts."""
    study = load_study(tmp_path, fabricate(tmp_path, factors, seeds=[0]))
    found = [contrast for contrast in evidence.contrasts(study.manifest) if contrast.kind != "cell"]
    cells = [cell.id for cell in study.manifest.cells]
    return np.array([[contrast.weights.get(cell, 0.0) for contrast in found] for cell in cells])


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
    seen, level = effects[:, :n], nominal(LOOKS, evidence.ALPHA / effects.shape[2])
    half = stats.t.isf(level / 2, n - 1) * seen.std(1, ddof=1) / math.sqrt(n)
    return seen.mean(1) - half, seen.mean(1) + half


def template(tmp_path: Path, factors: dict[str, list[str]], at: int = 20) -> Study:
    """A study with seeds=auto at a look."""
    name = fabricate(tmp_path, factors, range(at), sequential={"looks": list(LOOKS), "at": at, "max": 20})
    return load_study(tmp_path, name)


def at_look(study: Study, scores: np.ndarray, n: int) -> Study:
    """The study at its look at n seeds, with scores (seeds, cells)."""
    cells = [cell.id for cell in study.manifest.cells]
    runs = study.runs[study.runs["seed"] < n].copy()
    runs["test/loss"] = [scores[run.seed, cells.index(run.cell)] for run in runs.itertuples()]
    sequential = replace(study.manifest.sequential, at=n)
    return Study(replace(study.manifest, seeds=list(range(n)), sequential=sequential), runs, study.curves, [])


@pytest.mark.parametrize("design", DESIGNS)
def test_the_simulated_rule_is_the_rule_of_a_study(design: str, tmp_path: Path) -> None:
    weights = contrasts_of(tmp_path / "w", DESIGNS[design])
    study, rng = template(tmp_path, DESIGNS[design]), np.random.default_rng(5)
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


@pytest.mark.parametrize("design", DESIGNS)
def test_false_decisions_stay_below_five_per_cent(design: str, tmp_path: Path) -> None:
    weights = contrasts_of(tmp_path, DESIGNS[design])
    scores = np.random.default_rng(17).normal(size=(8000, 20, len(weights)))
    low, high, seeds = carried_out(scores @ weights)
    wrong = ((low > 0) | (high < 0)).any(1)
    error = math.sqrt(0.05 * 0.95 / len(wrong))
    assert wrong.mean() <= 0.05 + 3 * error
    shown = [intervals(scores @ weights, n) for n in LOOKS]
    ever = np.any([((low > 0) | (high < 0)).any(1) for low, high in shown], axis=0)
    assert 0.03 < ever.mean() <= 0.05 + 3 * error, "at any look, whoever stops when"
    if weights.shape[1] == 1:
        assert wrong.mean() == pytest.approx(0.05, abs=3 * error), "what may be spent is spent"
        assert np.mean(seeds < 20) > 0.02, "false decisions come at early looks, too"


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("effect", [0.8, 1.6])
def test_intervals_hold_all_truths_where_a_study_stops(design: str, effect: float, tmp_path: Path) -> None:
    weights = contrasts_of(tmp_path, DESIGNS[design])
    truth = np.linspace(effect, 2 * effect, weights.shape[1])
    noise = np.random.default_rng(23).normal(size=(8000, 20, len(weights))) @ weights
    low, high, seeds = carried_out(noise + truth)
    covered = ((low <= truth) & (truth <= high)).all(1).mean()
    assert covered >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 8000)
    assert len(set(seeds)) > 1, "studies stop at different looks"


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_unpaired_rows_with_the_paired_levels(spread: float) -> None:
    """Welch's t at the levels of the paired t: exact for neither, and no more errors than Welch makes at one look."""
    rng, level = np.random.default_rng(29), nominal(LOOKS, 0.05)
    a, b = rng.normal(size=(20_000, 20)), spread * rng.normal(size=(20_000, 20))
    found = [stats.ttest_ind(a[:, :n], b[:, :n], axis=1, equal_var=False).pvalue <= level for n in LOOKS]
    assert np.any(found, axis=0).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(a))


# Effects of a study with looks


def test_intervals_and_p_allow_for_all_looks_and_agree(tmp_path: Path) -> None:
    study, rng = template(tmp_path, GRID), np.random.default_rng(1)
    agreed = 0
    for shift in np.linspace(0, 3, 13):
        scores = rng.normal(size=(20, 4)) + np.array([0, shift, 0, shift])
        table = evidence.effects(at_look(study, scores, 8))
        family = table[table["family"]]
        gains = (scores[:8, 1] + scores[:8, 3] - scores[:8, 0] - scores[:8, 2]) / 2
        row = family[family["label"] == "ffn: swiglu − mlp"].iloc[0]
        expected = stats.ttest_1samp(gains, 0).confidence_interval(1 - nominal(LOOKS, 0.05 / 3))
        assert [row.low, row.high] == pytest.approx(list(expected))
        assert row.p == pytest.approx(overall(LOOKS, stats.ttest_1samp(gains, 0).pvalue))
        decided = table["verdict"].str.contains("better|worse")
        assert (decided == (table["p_holm"].fillna(table["p_bh"]) <= 0.05)).all(), "p contradicts the interval"
        agreed += int(decided.sum())
    assert 5 < agreed < 78


def test_runs_without_a_number_make_the_looks_smaller(tmp_path: Path) -> None:
    study = template(tmp_path, {"norm": ["ln", "rms"]})
    scores = np.random.default_rng(2).normal(size=(20, 2))
    scores[1, 0] = scores[6, 1] = np.nan
    here = at_look(study, scores, 8)
    here.runs.loc[here.runs["test/loss"].isna(), "status"] = "failed"
    row = evidence.effects(here).iloc[0]
    assert row.n == 6
    assert row.alpha == nominal((4, 6, 10, 18), 0.05)
    assert "the look at 8 seeds lacks 2 runs" in evidence.standing(here, evidence.effects(here))


def test_a_fixed_number_of_seeds_is_as_it_was(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, GRID, range(8)))
    table = evidence.effects(study)
    assert set(table.loc[table["family"], "alpha"]) == {0.05 / 3} and not table["unadjusted"].any()
    for seeds, early in (([0, 1, 2], True), ([8, 9], False)):
        seen = replace(study, manifest=replace(study.manifest, looks=[Look(seeds=seeds)]))
        assert set(evidence.effects(seen)["unadjusted"]) == {early}
    assert not evidence.standing(study, table)


def test_what_n_seeds_find_is_at_the_level_of_the_looks(tmp_path: Path) -> None:
    study = template(tmp_path, {"norm": ["ln", "rms"]})
    scores = np.random.default_rng(2).normal(size=(20, 2))
    auto = evidence.noise(evidence.effects(at_look(study, scores, 8)))[0]
    factor = detectable_factor(7, nominal(LOOKS, 0.05))
    assert auto.finds == pytest.approx((factor * auto.sd / math.sqrt(8),) * 2)


PLAN = list(LOOKS)
OTHER = [5, 8]


@pytest.mark.parametrize(
    ("auto", "seeds", "looks", "said"),
    [
        (PLAN, 8, [(5, PLAN)], ""),
        (PLAN, 8, [(5, PLAN), (8, PLAN)], ""),
        (PLAN, 5, [(5, PLAN)], ""),
        (PLAN, 8, [(5, None), (5, PLAN)], "a look at 5 seeds was not one of seeds=auto at 5, 8, 12, 20"),
        (PLAN, 5, [(5, None)], "a look at 5 seeds was not one of seeds=auto"),
        (PLAN, 8, [(3, None)], "a look at 3 seeds was not"),
        (PLAN, 8, [(5, OTHER), (5, PLAN)], "a look at 5 seeds was not"),
        (PLAN, 8, [(6, PLAN)], "a look at 6 seeds was not"),
        (None, 5, [(5, PLAN)], "seeds=auto stopped at these 5 seeds"),
        (None, 8, [(5, PLAN)], "seeds were added after a look at 5 of the 8"),
        (None, 8, [(8, None)], ""),
        (None, 5, [], ""),
        (None, 5, [(0, None)], ""),
        (None, 5, [(5, None), (3, None)], "seeds were added after a look at 3 of the 5"),
    ],
)
def test_only_the_looks_of_one_plan_are_allowed_for(auto, seeds, looks, said):
    log = [Look(seeds=list(range(n)), planned=plan) for n, plan in looks]
    sequential = Sequential(looks=auto, at=seeds, max=auto[-1]) if auto else None
    found = evidence.unadjusted(a_manifest(seeds=list(range(seeds)), looks=log, sequential=sequential))
    assert said in found and bool(said) == bool(found)


def test_a_seed_beside_the_plan_is_accused() -> None:
    looks = [Look(seeds=[0, 1, 2, 30]), Look(seeds=[0, 1, 2, 3, 4], planned=PLAN)]
    sequential = Sequential(looks=PLAN, at=5, max=20)
    manifest = a_manifest(seeds=[0, 1, 2, 3, 4, 30], looks=looks, sequential=sequential)
    assert "a look at 4 seeds was not" in evidence.unadjusted(manifest)
