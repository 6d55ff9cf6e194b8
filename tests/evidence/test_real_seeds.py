"""Promises kept on real seeds: studies of 3, 5 and 8 seeds drawn from the recorded ones, whose mean is the truth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas
import pytest
from simulate import DESIGNS, design_of, error, paired_intervals, verdicts, welch_intervals, with_scores

from ablate import evidence

FILE = Path(__file__).parents[1] / "recorded" / "norm_ffn_tiny.csv"
DRAWS = 4000
# Real differences are no Gaussian ones, at least not quite: their intervals may miss the truth by this much more often.
SLACK = 0.012
SEEDS = (3, 5, 8)


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


def test_effects_of_the_record_are_those_of_the_draws(losses: np.ndarray, grid) -> None:
    table = evidence.effects(with_scores(grid.study, losses[:8])).query("family")
    low, high = paired_intervals((losses[:8] @ grid.weights)[None], 0.05 / 3)
    assert table[["low", "high"]].to_numpy(float) == pytest.approx(np.stack([low[0], high[0]], axis=1), abs=1e-9)
    assert table.set_index("label").loc["ffn: swiglu − mlp", "verdict"] == "better"
