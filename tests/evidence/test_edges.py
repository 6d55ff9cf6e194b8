"""What formulas give at the edges of their ranges: two seeds, all ranks tied, a share of exactly zero."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from fake_studies import fabricate, plain_score

from ablate import evidence
from ablate.evidence import noise_floor, sequential
from ablate.evidence.claims.rank_correlation import rank_correlation
from ablate.evidence.statistics import detectable, detectable_factor, paired
from ablate.evidence.step_equivalents import worth_words
from ablate.results.study import load_study


def test_two_seeds_find_a_difference_and_one_finds_none() -> None:
    two = paired(np.array([0.1, 0.3]))
    assert detectable(two, 0.05) == pytest.approx(0.1 * detectable_factor(1, 0.05))
    assert math.isnan(detectable(paired(np.array([0.1])), 0.05))


def test_one_placebo_has_no_spread_and_warns_of_nothing(tmp_path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"seed.placebo": [None, "chaos"]}, seeds=[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [floor] = noise_floor.floors(study)
    assert floor.n == 1 and math.isnan(floor.sd) and math.isnan(floor.upper)


def test_what_is_out_of_reach_is_said_with_its_bound(tmp_path) -> None:
    kinds = {None: 0.0, "chaos": 0.5}

    def score(levels: dict, seed: int) -> float:
        return 2.0 + kinds[levels["seed.placebo"]] * (-1) ** seed

    placebos = load_study(tmp_path, fabricate(tmp_path, {"seed.placebo": [*kinds]}, seeds=range(4), score=score))
    tiny = lambda levels, seed: 2.0 + 1e-4 * (levels["norm"] == "rms") * (1 + seed / 10)  # noqa: E731
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}, range(4), tiny, study="tiny"))
    lines = noise_floor.placebo_lines(evidence.effects(study), placebos)
    assert "more than 10,000" in lines[-1]


def test_looks_with_one_seed_left_are_none() -> None:
    looks = SimpleNamespace(looks=[2, 5, 8], at=5)
    manifest = SimpleNamespace(sequential=looks, seeds=range(5))
    assert sequential.sizes(manifest, [[0, 2, 3, 4]]) == (4, 7)


@pytest.mark.parametrize("looks", [(5, 8), (5, 8, 12, 20)])
def test_repeated_p_values_are_chances(looks: tuple[int, ...]) -> None:
    found = [sequential.overall(looks, p) for p in (0.5, 0.9, 0.99, 1.0)]
    assert found == sorted(found) and found[-1] == 1.0


def test_a_seed_that_ties_all_levels_ranks_nothing() -> None:
    values = np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [7.0] * 5])
    found = rank_correlation(values, np.arange(5.0), np.random.default_rng(0))
    assert found.by_seed == pytest.approx([1.0, 0.0])


def test_no_worth_at_all_is_no_steps_fewer() -> None:
    row = SimpleNamespace(worth=0.0, worth_low=-0.03, worth_high=0.05)
    assert worth_words(row) == "worth 0 % [−3, 5] more training steps"


def test_a_claim_about_ranks_says_what_it_assumes(tmp_path) -> None:
    ffn, slope = ["mlp", "gelu", "silu", "relu2", "swiglu", "geglu"], 0.1
    ranks = {"written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    ranks["claim"] = {"rank_correlates": [{"ffn": ffn}, [*range(6)]]}
    score = lambda levels, seed: plain_score(levels, seed) + slope * ffn.index(levels["ffn"])  # noqa: E731
    study = load_study(tmp_path, fabricate(tmp_path, {"ffn": ffn}, range(6), score, claims={"order": ranks}))
    row = evidence.claims(study).iloc[0]
    assert row.verdict == "supported" and row.assumes == "if correlations over seeds are roughly normal"


def test_a_study_that_was_not_tuned_has_no_common_values(tmp_path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, {"norm": ["ln", "rms"]}))
    assert evidence.common(study.manifest) == {}
