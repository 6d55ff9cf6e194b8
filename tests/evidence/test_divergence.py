"""Divergence between variants: counts, exact tests and verdicts."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import fabricate
from scipy import stats

from ablate import evidence
from ablate.evidence.divergence import redealt, reshuffled, sign_flips
from ablate.results.study import Study, load_study

GRID = {"norm": ["ln", "none"], "ffn": ["mlp", "swiglu"]}


def made(results: Path, lost: set[tuple[str, int]], seeds: int, **options: Any) -> Study:
    """A study whose runs of these cells and seeds diverged; cells are called as in none+mlp."""
    factors = options.pop("factors", GRID)

    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if ("+".join(map(str, levels.values())), seed) in lost else "done"

    return load_study(results, fabricate(results, factors, range(seeds), status=status, **options))


@pytest.mark.parametrize(("up", "down"), [(5, 0), (6, 0), (7, 2), (3, 3), (0, 9)])
def test_single_runs_are_mcnemars_exact_test(up: int, down: int) -> None:
    found = sign_flips([1] * up + [-1] * down + [0] * 4)
    assert found == pytest.approx(stats.binomtest(up, up + down, 0.5).pvalue)


def test_differences_of_several_runs_by_all_signs() -> None:
    differences = [2, 1, 0, -1, 2, 1]
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product((1, -1), repeat=6)
    ]
    assert sign_flips(differences) == pytest.approx(np.mean(np.abs(sums) >= sum(differences)))


@pytest.mark.parametrize(("one", "other"), [(5, 0), (8, 3), (4, 4)])
def test_unpaired_single_runs_of_equal_numbers_are_fishers_exact_test(one: int, other: int) -> None:
    found = reshuffled([1] * one + [0] * (8 - one), [1] * other + [0] * (8 - other))
    assert found == pytest.approx(stats.fisher_exact([[one, 8 - one], [other, 8 - other]]).pvalue)


def test_unpaired_counts_by_all_choices() -> None:
    one, other = [2, 1, 2, 0], [0, 0, 1, 0, 0]
    expected = stats.permutation_test((one, other), lambda a, b: abs(np.mean(a) - np.mean(b)), alternative="greater")
    assert reshuffled(one, other) == pytest.approx(expected.pvalue)


def test_more_seeds_than_64_bits_can_count_ways_for() -> None:
    one, other = [1] * 30 + [0] * 10, [1] * 70 + [0] * 90
    expected = stats.fisher_exact([[30, 10], [70, 90]]).pvalue
    assert reshuffled(one, other) == pytest.approx(expected) and reshuffled(other, one) == pytest.approx(expected)


def test_exact_tests_err_no_more_often_than_they_say() -> None:
    """Over every outcome of 7 seeds, with shared and own causes of divergence, P(p <= 0.05) stays below 0.05."""
    chance = {(0, 0): 0.1, (1, 1): 0.1, (1, 0): 0.4, (0, 1): 0.4}
    wrong = 0.0
    for pairs in itertools.product(chance, repeat=7):
        if sign_flips([a - b for a, b in pairs]) <= 0.05:
            wrong += float(np.prod([chance[pair] for pair in pairs]))
    assert 0.001 < wrong <= 0.05


def test_a_variant_that_diverges_more_is_found_and_counted(tmp_path: Path) -> None:
    lost = {(f"none + {ffn}".replace(" + ", "+"), seed) for ffn in ("mlp", "swiglu") for seed in range(7)}
    table = evidence.divergence(made(tmp_path, lost | {("ln+mlp", 0)}, 8))
    assert table.index.equals(pandas.RangeIndex(len(table))), "contrasts without a diverged run leave no gap"
    table = table.set_index("label")
    found = table.loc["norm: none − ln"]
    assert (found["diverged"], found["ended"], found["diverged_reference"], found["ended_reference"]) == (14, 16, 1, 16)
    assert (found["low"], found["high"]) == pytest.approx(evidence.wilson(14, 16))
    # Differences: one seed of 2 − 1, six of 2, one of 0; only all signs alike come as far.
    assert found["p"] == pytest.approx(2 / 2**7) and found["p_holm"] == pytest.approx(2 * 2 / 2**7)
    assert found["verdict"] == "more" and found["paired"] and found["n"] == 8
    assert table.loc["ffn: swiglu − mlp", "verdict"] == "undecided"
    assert not table["kind"].eq("interaction").any()
    assert "ln + swiglu against ln + mlp" in table.index  # the reference lost one


def test_few_seeds_prove_nothing(tmp_path: Path) -> None:
    lost = {("none+mlp", seed) for seed in range(3)} | {("none+swiglu", seed) for seed in range(3)}
    table = evidence.divergence(made(tmp_path, lost, 3))
    assert set(table["verdict"]) == {"undecided"} and table["p"].min() == pytest.approx(2 / 2**3)


def test_nothing_diverged_has_no_rows(tmp_path: Path) -> None:
    table = evidence.divergence(made(tmp_path, set(), 3))
    assert table.empty and {"p", "p_holm", "verdict", "diverged_reference"} <= set(table)


def test_other_batches_are_no_pairs(tmp_path: Path) -> None:
    factors, lost = {"train.batch_size": [16, 32]}, {("32", seed) for seed in range(6)}
    table = evidence.divergence(made(tmp_path, lost, 6, factors=factors, batches=str))
    (found,) = table.itertuples()
    assert not found.paired and found.p == pytest.approx(stats.fisher_exact([[6, 0], [0, 6]]).pvalue)


def test_runs_that_did_not_end_are_in_no_count(tmp_path: Path) -> None:
    study = made(tmp_path, {("none+mlp", seed) for seed in range(5)}, 6)
    cells = {cell.label: cell.id for cell in study.manifest.cells}
    out = study.runs["cell"].eq(cells["ln + mlp"]) & study.runs["seed"].isin([0, 1])
    study.runs.loc[out, "status"] = "missing"
    found = evidence.divergence_of(study, [cells["none + mlp"]], [cells["ln + mlp"]])
    assert (found["diverged"], found["ended"], found["ended_reference"], found["n"]) == (5, 6, 4, 4)
    assert found["p"] == pytest.approx(2 / 2**3)


def test_sides_of_different_sizes_deal_a_seeds_diverged_runs_anew(tmp_path: Path) -> None:
    study = made(tmp_path, {("none+mlp", 0), ("none+swiglu", 0), ("none+mlp", 1)}, 4)
    cells = {cell.label: cell.id for cell in study.manifest.cells}
    found = evidence.divergence_of(study, [cells["none + mlp"], cells["none + swiglu"]], [cells["ln + mlp"]])
    # Of the first seed's two all fall on two of three cells once in three deals, of the second's one in two of three.
    assert found["p"] == pytest.approx(2 * 1 / 3 * 2 / 3)


def test_an_interaction_with_a_norm_that_alone_diverged_has_no_estimate_of_survivors(tmp_path: Path) -> None:
    both = {(f"none+{ffn}", seed) for ffn in ("mlp", "swiglu") for seed in range(2)}
    crossed = evidence.effects(made(tmp_path / "one", both, 8)).set_index("kind").loc["interaction"]
    assert (crossed["diverged"], crossed["diverged_reference"]) == (2, 2)
    assert crossed["verdict"] == "withheld" and np.isnan([crossed["mean"], crossed["low"]]).all()
    assert crossed["note"] == "2 runs diverged against 2, unequally often at the levels that it crosses"
    everywhere = both | {(f"ln+{ffn}", seed) for ffn in ("mlp", "swiglu") for seed in range(2)}
    even = evidence.effects(made(tmp_path / "all", everywhere, 8)).set_index("kind").loc["interaction"]
    assert even["verdict"] != "withheld" and np.isfinite(even["low"])


def test_a_trend_goes_by_the_levels_that_it_crosses(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms"], "train.batch_size": [8, 16, 32]}
    table = evidence.effects(made(tmp_path, {("ln+8", 0), ("rms+8", 0)}, 8, factors=factors)).set_index("kind")
    found = table.loc["trend"]
    assert (found["diverged"], found["diverged_reference"], found["verdict"]) == (1, 1, "withheld")


def test_without_runs_there_is_no_p() -> None:
    none = np.zeros(0, int)
    assert all(map(math.isnan, (sign_flips([]), redealt(none, none, 1, 2), reshuffled([], [1]), reshuffled([1], []))))
