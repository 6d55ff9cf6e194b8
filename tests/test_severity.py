"""False passes of claims on placebos: how often noise alone would have been called a finding."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fabricate import Levels, always_done, fabricate
from scipy import stats
from test_claim_verdicts import FFN, NOISE, PUBLISHED, entry, ranked, row, stairs

from ablate import evidence
from ablate.evidence import ranking
from ablate.evidence.divergence import RESAMPLES, false_passes
from ablate.evidence.findings import rule_of
from ablate.evidence.severity import Noisy, severity
from ablate.results import Study, load_study

Placebo = Callable[[str | None, int], float]
Ending = Callable[[Levels, int], str]


def placebos(
    folder: Path,
    value: Placebo,
    seeds: int = 12,
    kinds: tuple[str, ...] = ("ffn", "data", "chaos"),
    status: Ending = always_done,
) -> Study:
    """A study of placebos whose differences to the plain runs are `value`."""
    name = fabricate(
        folder,
        {"seed.placebo": [None, *kinds]},
        seeds=range(seeds),
        score=lambda levels, seed: 2.0 + (levels["seed.placebo"] is not None) * value(levels["seed.placebo"], seed),
        status=status,
        study="x-aa",
        placebo_of="x",
    )
    return load_study(folder, name)


def rate(found: Study, relation: str, n: int = 5, margin: float = math.nan, alpha: float = 0.05, **more: Any) -> Any:
    """The false passes of a claim about ffn with one cell on each side."""
    given: dict[str, Any] = {"noise": Noisy((2.0,), (n,)), "about": {"ffn"}, "looks": [(n, alpha)]} | more
    shift = 0.0 if math.isnan(margin) else margin
    rule, rng = rule_of(relation, margin), np.random.default_rng(0)
    return severity(found, "test/loss", given["about"], given["noise"], given["looks"], rule, shift, rng)


GAUSS = np.random.default_rng(1).normal(0, 0.005, 400)


def gaussian(kind: str | None, seed: int) -> float:
    return float(GAUSS[seed])


@pytest.mark.parametrize(("relation", "margin"), [("less", math.nan), ("greater", math.nan), ("equivalent", 0.1)])
def test_gaussian_placebos_pass_about_as_often_as_the_level_says(tmp_path, relation, margin):
    """One side of a two-sided level of 5 %, at the edge of what is claimed."""
    found = rate(placebos(tmp_path, gaussian, 60), relation, 8, margin)
    assert found.rate == pytest.approx(0.025, abs=0.006) and (found.n, found.kind) == (60, "ffn drawn anew")


def test_a_margin_within_the_noise_lets_nothing_pass(tmp_path):
    found = placebos(tmp_path, gaussian)
    rates = [rate(found, "equivalent", 8, margin).rate for margin in (0.0003, 0.002, 0.02)]
    assert rates[0] < 0.002 and rates[0] <= rates[1] <= rates[2] and rates[2] > 0.01


def test_one_huge_outlier_makes_equivalence_pass_less_and_differences_not_more(tmp_path):
    """An outlier widens the interval of the resamples that hold it; it does not move their mean to one side."""
    found = placebos(tmp_path, lambda kind, seed: 5.0 if seed == 3 else gaussian(kind, seed))
    plain = placebos(tmp_path / "plain", gaussian)
    assert rate(found, "equivalent", 8, 0.05).rate < 0.6 * rate(plain, "equivalent", 8, 0.05).rate
    assert rate(found, "less", 8).rate < 0.05


def test_noise_of_one_size_passes_too_often_with_few_seeds(tmp_path):
    """Differences of ±.01 that hardly vary: three of one sign are a finding, in 1 of 8; so are 7 of 8, in 9 of 256."""
    found = placebos(tmp_path, lambda kind, seed: 0.01 + 1e-6 * seed)
    assert rate(found, "less", 3).rate == pytest.approx(1 / 8, abs=0.012)
    assert rate(found, "less", 8).rate == pytest.approx(9 / 256, abs=0.006)


def test_looks_add_up(tmp_path):
    found = placebos(tmp_path, gaussian, 60)
    once = rate(found, "less", 12, looks=[(12, 0.05)]).rate
    thrice = rate(found, "less", 12, looks=[(5, 0.05), (8, 0.05), (12, 0.05)]).rate
    assert thrice > 1.4 * once


def test_averaged_sides_are_less_noisy_and_unpaired_ones_take_data_order(tmp_path):
    """A margin that a single difference never keeps is kept by the mean over four cells; Welch's rate is its own."""
    found = placebos(tmp_path, gaussian, 60)
    margin = 0.0012
    one = rate(found, "equivalent", 5, margin).rate
    four = rate(found, "equivalent", 5, margin, noise=Noisy((2 / 4,), (5,))).rate
    assert four > 2 * one
    welch = rate(found, "less", 8, noise=Noisy((1.0, 1.0), (8, 8)))
    assert welch.kind == "data order" and welch.rate == pytest.approx(0.025, abs=0.007)


def test_kinds_that_fit_are_pooled(tmp_path):
    found = placebos(tmp_path, gaussian, 12, ("ffn", "norm", "data", "init", "chaos"))
    for about, kind, n in (
        ({"ffn", "norm"}, "ffn drawn anew and norm drawn anew", 24),
        ({"ffn", "optim.lr"}, "ffn drawn anew", 12),
        ({"optim.lr"}, "chaos", 12),
    ):
        measured = rate(found, "less", about=about)
        assert (measured.kind, measured.n) == (kind, n)


def claimed(folder: Path, value: Placebo, seeds: int = 12, n: int = 3, **claim: Any) -> Any:
    """The verdict on a claim that its own runs support, beside placebos."""
    placebos(folder, value, seeds)
    text = claim or {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}

    def score(levels: Levels, seed: int) -> float:
        return float(2 - (levels["ffn"] == "swiglu") + NOISE[seed, int(levels["ffn"] == "swiglu")])

    manifest = {"claims": {"a": entry(text)}, "placebos": "x-aa"}
    name = fabricate(folder, {"ffn": ["mlp", "swiglu"]}, seeds=range(n), score=score, study="x", **manifest)
    return row(evidence.claims(load_study(folder, name)), "a")


def test_a_claim_that_noise_would_pass_stays_undecided(tmp_path):
    found = claimed(tmp_path, lambda kind, seed: 0.01 + 1e-6 * seed)
    assert found.verdict == "undecided" and found.severity == pytest.approx(1 / 8, abs=0.012) and found.waits
    assert "would pass on too many placebos" in found.note and "false passes on placebos 12." in found.sentence


def test_a_claim_that_noise_seldom_passes_says_so(tmp_path):
    found = claimed(tmp_path, gaussian)
    assert found.verdict == "supported" and 0 < found.severity < 0.05 and found.severity_n == 12
    assert "false passes on placebos " in found.sentence and "12 of ffn drawn anew" in found.sentence


@pytest.mark.parametrize("seeds", [8, 11])
def test_few_placebos_change_no_verdict(tmp_path, seeds):
    found = claimed(tmp_path, lambda kind, seed: 0.01 + 1e-6 * seed, seeds)
    assert found.verdict == "supported" and math.isnan(found.severity) and found.severity_n == seeds
    assert f"false passes not measured, {seeds} placebos are too few: aa=12 measures them" in found.note


def test_placebos_without_the_metric_measure_nothing(tmp_path):
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    found = claimed(tmp_path, gaussian, less=sides, metric="val/loss")
    assert found.severity > 0
    found = claimed(tmp_path / "other", gaussian, less=sides, metric="test/bpb")
    assert math.isnan(found.severity)


def test_placebos_that_move_nothing_are_not_too_few(tmp_path):
    found = claimed(tmp_path, lambda kind, seed: 0.0)
    assert found.verdict == "supported" and "false passes not measured: no placebo moved anything" in found.note


@pytest.mark.parametrize(("squares", "levels"), [((1.0,) * 6, 6), ((1.0, 1.0, 1.0, 0.01, 1.0), 5)])
def test_levels_of_noise_rank_as_published_as_often_as_the_claim_s_own_rule_lets_them(monkeypatch, squares, levels):
    """One resample at a time, by the function that judges a claim."""
    monkeypatch.setattr(ranking, "RESAMPLES", 4000)
    published, rng, level, times = PUBLISHED[:levels], np.random.default_rng(0), 0.2, 600
    pool = np.random.default_rng(9).standard_t(3, 14)
    passed = 0
    for _ in range(times):
        noise = rng.choice(np.concatenate([pool, -pool]), (8, levels)) * np.sqrt(squares)
        found = ranking.rank_correlation(noise, published, rng)
        passed += found.mean > 0 and max(found.p_seeds, found.p_orders) <= level
    measured = ranking.false_passes(pool, squares, [8], level, published, np.random.default_rng(1))
    assert 0.02 < measured == pytest.approx(passed / times, abs=3 * math.sqrt(measured / times))
    often = ranking.false_passes(pool, squares, [5, 8], level, published, np.random.default_rng(1))
    few = ranking.false_passes(pool, squares, [4, 8], level, published, np.random.default_rng(1))
    assert often > 1.2 * measured and few == measured, "each look may pass, but none of fewer than five seeds"


def pairs_of(both: int, one: int, none: int) -> np.ndarray:
    """Placebos and plain runs, of which both, one or none diverged."""
    return np.repeat([[1, 1], [1, 0], [0, 0]], [both, one, none], axis=0)


def test_pairs_of_placebos_diverge_more_on_one_side_as_often_as_mcnemars_test_says():
    n, pairs, level = 12, pairs_of(3, 8, 9), 0.3
    expected = sum(
        stats.binom.pmf(k, n, 8 / 20) * stats.binom.pmf(wins, k, 0.5)
        for k in range(1, n + 1)
        for wins in range(k // 2 + 1, k + 1)
        if stats.binomtest(wins, k).pvalue <= level
    )
    measured = false_passes(pairs, (1, 1), True, [n], level, np.random.default_rng(0))
    assert 0.05 < measured == pytest.approx(expected, abs=3 * math.sqrt(expected / RESAMPLES))
    looks = false_passes(pairs, (1, 1), True, [8, n], level, np.random.default_rng(0))
    assert looks > measured


def test_runs_of_placebos_on_other_batches_diverge_more_as_often_as_fishers_test_says():
    n, pairs, level = 10, pairs_of(2, 8, 10), 0.3
    expected = sum(
        stats.binom.pmf(a, n, 0.3) * stats.binom.pmf(b, n, 0.3)
        for a in range(n + 1)
        for b in range(a)
        if stats.fisher_exact([[a, n - a], [b, n - b]]).pvalue <= level
    )
    measured = false_passes(pairs, (1, 1), False, [n], level, np.random.default_rng(0))
    assert 0.03 < measured == pytest.approx(expected, abs=3 * math.sqrt(expected / RESAMPLES))


@pytest.mark.parametrize("cells", [(2, 2), (1, 3)])
def test_placebos_of_sides_of_several_cells_pass_no_more_often_than_the_level_says(cells):
    pairs = pairs_of(2, 10, 8)
    measured = false_passes(pairs, cells, True, [8], 0.1, np.random.default_rng(0))
    assert 0.005 < measured < 0.05 + 3 * math.sqrt(0.05 / RESAMPLES)


def lost_by(folder: Path, seeds: int, status: Ending) -> Any:
    """The verdict on a claim that mlp diverges more, which its own runs support, beside placebos."""
    placebos(folder, gaussian, seeds, status=status)
    claim = {"a": entry({"diverges_more": [{"ffn": "mlp"}, {"ffn": "swiglu"}]})}
    name = fabricate(
        folder,
        {"ffn": ["mlp", "swiglu"]},
        range(8),
        status=lambda levels, seed: "diverged" if levels["ffn"] == "mlp" else "done",
        study="x",
        claims=claim,
        placebos="x-aa",
    )
    return row(evidence.claims(load_study(folder, name)), "a")


def test_a_claim_about_divergence_is_judged_on_placebos_that_diverge(tmp_path):
    some = lambda levels, seed: "diverged" if (levels["seed.placebo"], seed % 3) == ("ffn", 1) else "done"  # noqa: E731
    found = lost_by(tmp_path / "some", 12, some)
    k = stats.binom.pmf(np.arange(9), 8, 1 / 3)
    assert found.verdict == "supported" and found.severity_n == 12
    assert found.severity == pytest.approx(sum(k[6:] / 2.0 ** np.arange(6, 9)), abs=0.002)
    none = lost_by(tmp_path / "none", 12, always_done)
    assert none.verdict == "supported" and none.severity == 0
    assert "false passes on placebos .0 % (12 of ffn drawn anew, of which none diverged)" in none.sentence
    few = lost_by(tmp_path / "few", 8, always_done)
    assert math.isnan(few.severity) and "not measured, 8 placebos are too few: aa=12 measures them" in few.note


def test_a_claim_about_a_ranking_is_judged_on_placebos(tmp_path):
    def judged(folder: Path, seeds: int) -> Any:
        if seeds:
            placebos(folder, gaussian, seeds)
        name = fabricate(
            folder, {"ffn": FFN}, range(8), stairs(1.0), study="x", claims={"a": entry(ranked())}, placebos="x-aa"
        )
        return row(evidence.claims(load_study(folder, name)), "a")

    found = judged(tmp_path / "all", 12)
    assert found.verdict == "supported" and 0 < found.severity < 0.03 and found.severity_n == 12
    assert "12 of ffn drawn anew" in found.sentence
    assert "not measured, 8 placebos are too few" in judged(tmp_path / "few", 8).note
    assert "false passes not measured: aa=12 measures them" in judged(tmp_path / "none", 0).note


def test_severity_is_the_same_every_time_and_its_own_for_each_claim(tmp_path):
    assert claimed(tmp_path / "a", gaussian).severity == claimed(tmp_path / "b", gaussian).severity
