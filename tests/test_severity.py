"""False passes of claims on placebos: how often noise alone would have been called a finding."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fabricate import Levels, fabricate
from test_claim_verdicts import NOISE, entry, row

from ablate import evidence
from ablate.evidence.findings import rule_of
from ablate.evidence.severity import Noisy, severity
from ablate.results import Study, load_study

Placebo = Callable[[str | None, int], float]


def placebos(folder: Path, value: Placebo, seeds: int = 12, kinds: tuple[str, ...] = ("ffn", "data", "chaos")) -> Study:
    """A study of placebos whose differences to the plain runs are `value`."""
    name = fabricate(
        folder,
        {"seed.placebo": [None, *kinds]},
        seeds=range(seeds),
        score=lambda levels, seed: 2.0 + (levels["seed.placebo"] is not None) * value(levels["seed.placebo"], seed),
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
    found = claimed(tmp_path / "other", gaussian, less=sides, metric="test/loss@128")
    assert math.isnan(found.severity)


def test_severity_is_the_same_every_time_and_its_own_for_each_claim(tmp_path):
    assert claimed(tmp_path / "a", gaussian).severity == claimed(tmp_path / "b", gaussian).severity
