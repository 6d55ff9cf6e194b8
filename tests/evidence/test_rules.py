"""Rules of evidence, each against numbers worked out here: signs, levels, and which loss of runs is uneven."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_studies import TASK, fabricate
from scipy import stats

from ablate import evidence
from ablate.results.study import Study, load_study

SEEDS = 8
NOISE = np.random.default_rng(44).normal(0, 0.01, (SEEDS, 60))
# What each level adds to a loss of 2; signs, and which of two levels is better, differ between factors.
SHIFT = {"mlp": 0.0, "gelu": 0.001, "swiglu": -0.05, "ln": 0.0, "rms": 0.03, "none": 0.008, "pre": 0.0, "post": 0.012}
DESIGNS = {
    "grid": {"norm": ["ln", "rms"], "ffn": ["mlp", "gelu", "swiglu"]},
    "one_at_a_time": {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "residual": ["pre", "post"]},
    "leave_one_out": {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "residual": ["pre", "post"]},
    "cumulative": {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "residual": ["pre", "post"]},
}


def loss(levels: dict[str, Any], seed: int) -> float:
    """Shifts of the levels, and noise of each cell's own."""
    place = sum(3**i * list(SHIFT).index(level) for i, level in enumerate(levels.values())) % 60
    return float(2 + sum(SHIFT[level] for level in levels.values()) + NOISE[seed, place])


def made(results: Path, design: str = "grid", factors: dict[str, list[Any]] | None = None, **options: Any) -> Study:
    options = {"score": loss, "seeds": range(SEEDS)} | options
    return load_study(results, fabricate(results, factors or DESIGNS[design], design=design, **options))


def by_label(study: Study) -> dict[str, np.ndarray]:
    """The losses of each cell by seed, under its label."""
    labels = {cell.id: cell.label for cell in study.manifest.cells}
    runs = study.runs.sort_values("seed")
    return {label: runs[runs["cell"] == cell]["test/loss"].to_numpy() for cell, label in labels.items()}


def student(differences: np.ndarray, alpha: float) -> tuple[float, float]:
    """The 1 − alpha interval of a mean, by Student's t."""
    n = len(differences)
    half = stats.t.ppf(1 - alpha / 2, n - 1) * differences.std(ddof=1) / math.sqrt(n)
    return differences.mean() - half, differences.mean() + half


def test_a_cell_against_the_reference_is_the_cell_minus_the_reference(tmp_path: Path) -> None:
    study = made(tmp_path)
    losses, table = by_label(study), evidence.effects(study)
    cells = table[table["kind"] == "cell"]
    assert len(cells) == 5
    for row in cells.itertuples():
        difference = losses[row.level] - losses[row.reference]
        assert row.reference == "ln + mlp" and row.label == f"{row.level} against ln + mlp"
        assert row.mean == pytest.approx(difference.mean()) and row.sd == pytest.approx(difference.std(ddof=1))
        assert (row.low, row.high) == pytest.approx(student(difference, row.alpha))
        assert (row.lower, row.higher) == ((difference < 0).sum(), (difference > 0).sum())
        assert row.d_z == pytest.approx(difference.mean() / difference.std(ddof=1))
    assert {"better", "worse"} <= {verdict.split()[-1] for verdict in cells["verdict"]}
    for row in cells.itertuples():
        if row.low > 0 or row.high < 0:
            assert row.verdict.endswith("better" if row.mean < 0 else "worse")


@pytest.mark.parametrize("design", ["one_at_a_time", "leave_one_out"])
def test_a_changed_cell_is_the_change_minus_the_reference(design: str, tmp_path: Path) -> None:
    study = made(tmp_path, design)
    losses, cells = by_label(study), study.manifest.cells
    base = next(cell for cell in cells if cell.reference)
    changed = [cell for cell in cells if cell is not base]
    table = evidence.effects(study)
    assert len(table) == len(changed) == 3
    for row, cell in zip(table.itertuples(), changed, strict=True):
        ((name, level),) = [(n, v) for n, v in cell.levels.items() if base.levels[n] != v]
        assert (row.factor, row.level, row.reference) == (name, level, base.levels[name])
        difference = losses[cell.label] - losses[base.label]
        assert row.mean == pytest.approx(difference.mean())
        assert (row.low, row.high) == pytest.approx(student(difference, 0.05 / 3))


def test_a_step_is_the_cell_minus_the_one_before_it(tmp_path: Path) -> None:
    study = made(tmp_path, "cumulative")
    losses = list(by_label(study).values())
    table = evidence.effects(study)
    steps, whole = table[table["kind"] == "step"], table[table["kind"] == "cell"]
    assert len(steps) == 3 and len(whole) == 1
    for row, (before, after) in zip(steps.itertuples(), itertools.pairwise(losses), strict=True):
        assert row.mean == pytest.approx((after - before).mean())
        assert (row.low, row.high) == pytest.approx(student(after - before, 0.05 / 3))
    assert whole["mean"].item() == pytest.approx((losses[-1] - losses[0]).mean())


def test_the_family_counts_rows_that_have_no_p(tmp_path: Path) -> None:
    """A diverged run leaves one of three comparisons without a number: the others keep their 0.05/3."""

    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if levels["residual"] == "post" and seed == 0 else "done"

    study = made(tmp_path, "one_at_a_time", status=status)
    losses, table = by_label(study), evidence.effects(study)
    assert table["family"].all() and list(table["p"].isna()) == [False, False, True]
    assert table["alpha"].to_numpy() == pytest.approx([0.05 / 3] * 3)
    for row, cell in zip(list(table.itertuples())[:2], ("norm=rms", "ffn=swiglu"), strict=True):
        label = next(label for label in losses if cell.partition("=")[2] in label)
        difference = losses[label] - next(iter(losses.values()))
        assert row.p == pytest.approx(stats.ttest_1samp(difference, 0).pvalue)
        assert (row.low, row.high) == pytest.approx(student(difference, 0.05 / 3))
    least = table["p"].idxmin()
    assert table.loc[least, "p_holm"] == pytest.approx(3 * table.loc[least, "p"])


def test_a_pooled_spread_weighs_each_effect_by_its_degrees_of_freedom(tmp_path: Path) -> None:
    """Two effects over 8 seeds and one, of more spread, over 3: √(Σ (n − 1) sd² / Σ (n − 1))."""

    def status(levels: dict[str, Any], seed: int) -> str:
        return "failed" if levels["residual"] == "post" and seed > 2 else "done"

    def score(levels: dict[str, Any], seed: int) -> float:
        return loss(levels, seed) + (levels["residual"] == "post") * (0.1, -0.2, 0.1, 0, 0, 0, 0, 0)[seed]

    study = made(tmp_path, "one_at_a_time", status=status, score=score)
    reference, *changed = by_label(study).values()
    squares = [(np.nanvar(cell - reference, ddof=1), np.isfinite(cell).sum() - 1) for cell in changed]
    assert [n for _, n in squares] == [7, 7, 2]
    (noise,) = evidence.noise(evidence.effects(study))
    assert noise.sd == pytest.approx(math.sqrt(sum(square * n for square, n in squares) / 16)) and noise.n == 3
    spreads = [math.sqrt(square) for square, _ in squares]
    assert noise.kind == "main" and noise.spread == pytest.approx((min(spreads), max(spreads)))


@pytest.mark.parametrize("lost", [False, True])
def test_exploratory_rows_have_a_false_coverage_rate_of_one_in_twenty(lost: bool, tmp_path: Path) -> None:
    """Level 1 − 0.05·R/k of k rows, R of them with p ≤ 0.05 after Benjamini & Hochberg; rows without a p count in k."""

    def status(levels: dict[str, Any], seed: int) -> str:
        here = levels == {"norm": "rms", "ffn": "gelu"}
        return "diverged" if lost and here and seed == 0 else "done"

    study = made(tmp_path, status=status)
    losses, table = by_label(study), evidence.effects(study)
    cells = table[table["kind"] == "cell"]
    assert len(cells) == 5 and not cells["family"].any() and cells["p"].isna().sum() == lost
    differences = {row.label: losses[row.level] - losses[row.reference] for row in cells.itertuples()}
    p = np.array([stats.ttest_1samp(each, 0).pvalue for each in differences.values()])
    p[cells["p"].isna().to_numpy()] = 1.0
    order = np.argsort(p)
    ranked = 5 * p[order] / np.arange(1, 6)
    adjusted = np.empty(5)
    adjusted[order] = np.minimum.accumulate(ranked[::-1])[::-1]
    rejected = int((adjusted <= 0.05).sum())
    assert 1 < rejected < 5, "neither all nor none, or the level would show nothing"
    known = cells["p"].notna().to_numpy()
    assert cells["p_holm"].isna().all() and cells["p_bh"].to_numpy()[known] == pytest.approx(adjusted[known])
    excluded = (cells["low"] > 0) | (cells["high"] < 0)
    assert (excluded == (cells["p_bh"] <= 0.05)).all()
    assert cells["alpha"].to_numpy() == pytest.approx([0.05 * rejected / 5] * 5)
    for row in cells.itertuples():
        if not math.isnan(row.p):
            assert (row.low, row.high) == pytest.approx(student(differences[row.label], 0.05 * rejected / 5))


def claimed(tmp_path: Path, lost: dict[str, int], level: Any, reference: Any) -> Any:
    """A claim about sides that lost some runs, as `claims` has it."""
    sides = [{"ffn": level}, {"ffn": reference}]
    entry = {"claim": {"less": sides}, "written": "2025-01-02T00:00:00+00:00", "registered": True, "earlier": []}

    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if seed < lost.get(levels["ffn"], 0) else "done"

    def score(levels: dict[str, Any], seed: int) -> float:
        return float(2 - 0.2 * (levels["ffn"] == "mlp") + NOISE[seed, len(levels["ffn"])])

    study = made(
        tmp_path, "grid", {"ffn": ["mlp", "gelu", "silu"]}, claims={"claim": entry}, status=status, score=score
    )
    (row,) = evidence.claims(study).itertuples()
    return row


@pytest.mark.parametrize(
    ("lost", "uneven"),
    [
        ({"mlp": 1, "gelu": 1, "silu": 1}, False),  # 1 of 8 on one side, 2 of 16 on the other: the same share
        ({"mlp": 1, "gelu": 1}, True),  # 1 of 8 against 1 of 16: the same number
        ({"mlp": 2, "gelu": 3, "silu": 1}, False),
        ({"gelu": 1}, True),
    ],
)
def test_which_loss_of_runs_is_uneven_is_told_by_shares_not_by_counts(lost, uneven, tmp_path):
    row = claimed(tmp_path, lost, "mlp", ["gelu", "silu"])
    assert (row.diverged, row.diverged_reference) == (lost.get("mlp", 0), sum(lost.values()) - lost.get("mlp", 0))
    assert math.isnan(row.low) == uneven
    assert row.verdict == ("undecided" if uneven else "supported")


@pytest.mark.parametrize("metric", ["accuracy", "accuracy@40"])
def test_intervals_of_shares_end_at_one_at_every_length(metric: str, tmp_path: Path) -> None:
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}}}
    factors = {"ffn": ["mlp", "swiglu"]}

    def score(levels: dict[str, Any], seed: int) -> float:
        return (0.1, 0.9)[levels["ffn"] == "swiglu"] + 0.1 * (-1) ** seed * (levels["ffn"] == "mlp")

    study = made(tmp_path, factors=factors, tasks=tasks, score=score, seeds=range(2))
    study.runs["test/accuracy@40"] = study.runs["test/accuracy"]
    (row,) = evidence.effects(study, f"test/{metric}").itertuples()
    assert row.metric == f"test/{metric}" and row.mean == pytest.approx(0.8) and row.high == 1 and row.low < 0.5


def test_a_crossing_whose_cells_are_not_all_there_is_left_out(tmp_path: Path) -> None:
    whole = made(tmp_path, factors={"norm": ["ln", "rms"], "optim.warmup": [0, 40]}, score=lambda v, s: NOISE[s, 0])
    crossed = [each for each in evidence.contrasts(whole.manifest) if "optim.warmup" in each.factor]
    assert crossed and all(each.weights for each in crossed)
    torn = replace(whole.manifest, cells=whole.manifest.cells[:-1])
    assert not [each for each in evidence.contrasts(torn) if "optim.warmup" in each.factor or not each.weights]
