"""Worths and their trend over the rungs of design=ladder, against curves that are known."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_studies import with_manifest
from ladders import COST, TOP, climbed
from scipy import stats

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claims import Claim
from ablate.config.typed_json import parse
from ablate.evidence.ladder import trend_of
from ablate.runs.records import ClaimEntry
from ablate.runs.study import Study

DECADE = math.log(10)


@pytest.mark.parametrize(("size", "trend"), [(0.85, 0.1), (1.0, 0.0), (1.2, -0.05), (1.6, 0.1)])
def test_worths_and_their_trend_are_those_of_the_curve(size, trend):
    table = evidence.ladder(climbed(lambda c: math.log(size) + trend * (c - TOP) / DECADE))
    x = np.log(table["compute"].to_numpy(float))
    logs = math.log(size) + trend * (x - TOP) / DECADE
    assert np.diff(x) == pytest.approx([math.log(4)] * 3) and x[-1] == pytest.approx(TOP)
    assert np.log1p(table["worth"].to_numpy(float)) == pytest.approx(logs, abs=0.01)
    assert table["trend"].to_numpy() == pytest.approx([trend] * 4, abs=0.01)
    assert (table["worth_low"] < table["worth"]).all() and (table["worth"] < table["worth_high"]).all()
    assert (table["trend_low"] < table["trend"]).all() and (table["trend"] < table["trend_high"]).all()


def test_a_multiplier_is_the_worth_over_the_cost_in_compute():
    table = evidence.ladder(climbed(lambda c: math.log(1.2)))
    assert table["cost"].to_numpy() == pytest.approx(COST)
    for column, end in (("multiplier", "worth"), ("low", "worth_low"), ("high", "worth_high")):
        assert table[column].to_numpy() == pytest.approx((1 + table[end].to_numpy()) / COST)


def test_intervals_hold_together_for_all_worths_and_trends():
    study = climbed(lambda c: 0.2, noise=0.004, norms=("ln", "rms"))
    table = evidence.ladder(study)
    assert set(table["alpha"]) == {0.05 / (2 * (4 + 1))}


def test_a_trend_has_the_slope_and_the_ends_of_its_points():
    """Symmetric intervals give the usual error of a weighted sum."""
    x, points, half = np.array([0.0, 1.0, 3.0]), np.array([0.1, 0.4, 0.3]), np.array([0.1, 0.2, 0.05])
    slope, low, high = trend_of(x, points, points - half, points + half)
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    assert slope == pytest.approx(np.polyfit(x, points, 1)[0])
    assert [slope - low, high - slope] == pytest.approx([math.sqrt(np.sum((weights * half) ** 2))] * 2)
    _, low, high = trend_of(x, points, points, points + half)
    left = weights < 0  # where higher points make the slope flatter
    assert slope - low == pytest.approx(np.linalg.norm((weights * half)[left]))
    assert high - slope == pytest.approx(np.linalg.norm((weights * half)[~left]))


def ends_badly(ending: str, rate: str, first: int) -> Callable[[dict[str, Any], int], str]:
    """The status of runs: those at another rate end badly from a seed on."""
    return lambda levels, seed: ending if rate in str(levels["rung"]) and seed >= first else "done"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"other_steps": False}, "rung 1: its reference was trained for no other numbers of steps"),
        ({"log": lambda c: math.log(3.0)}, "rung 1: its worth is not bounded"),
        (
            {"law": lambda x: 1 + 0.1 * abs(x + 1) if x < 0 else 1.1 + 0.1 * x},
            "more steps do not improve its reference",
        ),
        ({"seeds": 1}, "one seed"),
    ],
)
def test_a_rung_without_a_bounded_worth_leaves_no_trend(changes, why):
    table = evidence.ladder(climbed(**{"log": lambda c: 0.2} | changes))
    assert table["trend"].isna().all() and why in table["why"].iloc[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"status": ends_badly("diverged", "twice", 0)}, ""),
        ({"status": ends_badly("failed", "half", 2)}, "too few runs at half the rate"),
        ({"rates": lambda ffn, rate: 0.02 - 0.04 * (ffn == "swiglu")}, "swiglu + "),
        ({"rates": lambda ffn, rate: 0.02 - 0.04 * ("half" in rate)}, "at half the rate"),
    ],
)
def test_another_learning_rate_that_is_better_is_named(changes, said):
    study = climbed(lambda c: 0.2, **changes)
    table = evidence.ladder(study)
    assert said in table["rates"].iloc[0] and bool(said) == bool(table["rates"].iloc[0])
    assert table["trend"].notna().all(), "a note, no verdict"
    assert said in summary(study)


def test_a_diverged_run_leaves_its_rung_without_a_worth():
    study = climbed(lambda c: 0.2)
    at = study.runs.index[(study.runs["label"].str.startswith("swiglu")) & (study.runs["seed"] == 3)][0]
    runs = study.runs.copy()
    runs.loc[at, "status"], runs.loc[at, "test/loss"] = "diverged", math.nan
    table = evidence.ladder(replace(study, runs=runs))
    assert math.isnan(table["worth"].iloc[0]) and table["worth_note"].iloc[0] == "1 run diverged against 0"
    assert table["worth"].iloc[1:].notna().all()


def test_a_collapsed_run_of_the_reference_is_named_and_left_out():
    table = evidence.ladder(climbed(lambda c: 0.2, fallen=((2, 800, 3), (2, 1000, 5))))
    assert table["worth"].to_numpy() == pytest.approx(math.expm1(0.2), abs=0.02)
    notes = table["worth_note"].tolist()
    assert "seed 3" in notes[1] and "seed 5" in notes[1] and not notes[0] + notes[2] + notes[3]


def test_the_summary_tells_worths_and_trends():
    study = climbed(lambda c: 0.2, noise=0.001)
    text = summary(study)
    assert "worth in training steps of the reference at each rung, simultaneous 95 % intervals" in text
    assert "  ffn: swiglu − mlp  +2" in text
    assert "trend per tenfold compute" in text
    assert "worth in training steps" not in summary(climbed(lambda c: 0.2, other_steps=False))


def claimed(study: Study, **bound: float) -> Any:
    claim = parse(Claim, {"multiplier": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "at": {"rung": 4}} | bound)
    entry = ClaimEntry(claim=claim, registered=True, written="")
    (row,) = evidence.claims(with_manifest(study, claims={"worth": entry})).itertuples()
    return row


def test_a_claim_about_a_multiplier():
    study = climbed(lambda c: math.log(1.2 * COST))
    for side, limit, verdict in (
        ("above", 1.1, "supported"),
        ("above", 1.3, "contradicted"),
        ("below", 9, "supported"),
    ):
        row = claimed(study, **{side: limit})
        assert row.verdict == verdict and row.low < row.mean < row.high and row.mean == pytest.approx(1.2, abs=0.01)
        assert f"times the compute of mlp, claimed: {side} {limit:g}" in row.says and row.p < 0.001


def test_the_p_of_a_claim_is_that_of_a_t_test_at_its_bound():
    study = climbed(lambda c: math.log(1.2 * COST), noise=0.01)
    row = claimed(study, above=1.15)
    scores = evidence.scores(study)
    (own,) = (cell.id for cell in study.manifest.cells if cell.levels == {"ffn": "swiglu", "rung": 4})
    others = study.beside["exchange"]
    at = {cell.levels["train.steps"]: cell.id for cell in others.manifest.cells if cell.levels["rung"] == 4}
    steps = sorted(at)
    curves = evidence.scores(others)[[at[each] for each in steps]].to_numpy()
    x = np.log(np.array(steps) / 800)
    distances = [
        np.interp(math.log(1.15 * COST), x, curve) - loss for curve, loss in zip(curves, scores[own], strict=True)
    ]
    assert row.p == pytest.approx(stats.ttest_1samp(distances, 0).pvalue, rel=0.01)


def test_a_claim_beyond_the_steps_that_were_trained_is_decided_by_the_bound():
    far = climbed(lambda c: math.log(3.0))
    row = claimed(far, above=1.5)
    assert row.verdict == "supported" and row.mean == math.inf and "at least 1.90 times the compute" in row.says
    assert claimed(far, above=2.5).verdict == "undecided" and claimed(far, below=2.5).verdict == "undecided"


def test_a_claim_without_a_worth_has_no_verdict_and_says_why():
    row = claimed(climbed(lambda c: 0.2, other_steps=False), above=1.1)
    assert row.verdict == "undecided" and "trained for no other numbers of steps" in row.note and not row.waits
    lost = lambda levels, seed: "diverged" if levels == {"ffn": "swiglu", "rung": 4} and seed < 2 else "done"  # noqa: E731
    row = claimed(climbed(lambda c: 0.2, status=lost), above=1.1)
    assert row.verdict == "undecided" and "2 runs diverged against 0" in row.note
    row = claimed(climbed(lambda c: 0.2, rates=lambda ffn, rate: 0.02 - 0.04 * (ffn == "swiglu")), above=1.1)
    assert row.verdict == "supported" and "better at half the rate (optim.lr=" in row.note
