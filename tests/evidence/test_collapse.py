"""Scores that sometimes collapse: what may be called equal, by the exact bound, in the software and by simulation."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from claimed_studies import entry
from fake_studies import TASK, study_of

from ablate import evidence
from ablate.evidence.collapse import score_of_a_guess
from ablate.runs.records import TaskFacts
from ablate.runs.study import Study

COPY = TASK | {"metrics": {"accuracy": "max", "loss": "min"}, "yardsticks": {"chance": math.log(2)}}
MARGIN = {"value": 0.02, "written": "2026-01-01", "registered": True, "earlier": []}
NOISE = np.random.default_rng(4).normal(size=(90, 2))
PAIR = {"norm": ["ln", "rms"]}


def solved(levels: dict[str, Any], seed: int) -> float:
    """0.999 ± 0.0003, whatever the norm."""
    return float(0.999 + 0.0003 * NOISE[seed, int(levels.get("norm") == "rms")])


def but(*fallen: tuple[str, int], score: Any = solved, low: float = 0.5) -> Any:
    """Scores of which those of (norm, seed) collapsed."""
    return lambda levels, seed: low if (levels["norm"], seed) in fallen else score(levels, seed)


def study(n: int, score: Any = solved, task: dict[str, Any] = COPY, **options: Any) -> Study:
    options = {"margin": MARGIN, "tasks": {"f0": task}} | options
    return study_of(PAIR, range(n), score, **options)


def row(found: Study) -> Any:
    return next(evidence.effects(found).itertuples())


def test_what_a_guess_scores():
    copy = TaskFacts(**COPY)
    text = TaskFacts(**TASK)
    bare = TaskFacts(metrics={"loss": "min"})
    assert (
        score_of_a_guess(copy, "test/accuracy@30") == pytest.approx(0.5) and score_of_a_guess(copy, "test/exact") == 0
    )
    assert score_of_a_guess(text, "test/loss@128") == 5.5452 and score_of_a_guess(bare, "accuracy") == 0
    assert math.isnan(score_of_a_guess(bare, "loss")) and math.isnan(score_of_a_guess(text, "test/bpb"))


def test_a_seed_at_a_guess_collapsed_and_bars_equivalence():
    found = row(study(8, but(("rms", 3))))
    assert found.verdict == "undecided" and found.note == "1 of 8 seeds collapsed"
    assert row(study(8)).verdict == "equivalent" and row(study(8)).note == ""


def test_a_variant_that_never_learns_is_worse_and_its_collapses_are_named():
    found = row(study(8, lambda levels, seed: solved(levels, seed) - 0.5 * (levels["norm"] == "rms")))
    assert found.verdict == "worse" and found.note == "8 of 8 seeds collapsed"


def test_a_share_near_one_is_no_collapse():
    """All runs of one norm reach 1, those of the other 0.9996."""
    found = study(6, lambda levels, seed: 1.0 - 0.0004 * (levels["norm"] == "rms") - 1e-5 * abs(NOISE[seed, 0]))
    assert "collapsed" not in row(found).note


def test_poor_scores_side_by_side_are_no_collapse():
    """Five losses from 2.78 to 2.90, where the other norm reaches 1.9 and byte frequencies have 3.14."""
    losses = [2.78, 2.81, 2.84, 2.87, 2.90]
    found = row(study(5, lambda levels, seed: losses[seed] if levels["norm"] == "rms" else 1.9 + 0.01 * seed, TASK))
    assert found.verdict == "worse" and found.note == ""


def test_a_loss_at_that_of_frequencies_is_a_collapse_where_a_gap_lies_before_it():
    losses = [3.13, 1.92, 1.94, 1.93, 1.91]
    gap = study(5, lambda levels, seed: losses[seed] if levels["norm"] == "rms" else 1.9 + 0.01 * seed, TASK)
    assert row(gap).note == "1 of 5 seeds collapsed"
    steps = [3.13, 2.9, 2.7, 2.5, 1.91]
    none = study(5, lambda levels, seed: steps[seed] if levels["norm"] == "rms" else 1.9 + 0.01 * seed, TASK)
    assert row(none).note == ""


def test_scores_at_other_lengths_are_no_collapse():
    found = study(5, lambda levels, seed: 1.9 + 0.01 * NOISE[seed, int(levels["norm"] == "rms")], TASK)
    far = found.runs["test/loss"] + 1.3 * (found.runs["norm"] == "rms")
    longer = dataclasses.replace(found, runs=found.runs.assign(**{"test/loss@128": far}))
    table = evidence.effects(longer, "test/loss@128")
    assert table["verdict"].tolist() == ["worse"] and table["note"].tolist() == [""]


def test_a_run_that_collapsed_counts_at_other_lengths_too():
    found = study(8, but(("rms", 3), score=lambda v, s: 1.9 + 0.01 * NOISE[s, int(v["norm"] == "rms")], low=3.15), TASK)
    longer = dataclasses.replace(found, runs=found.runs.assign(**{"test/loss@128": found.runs["test/loss"]}))
    assert evidence.effects(longer, "test/loss@128")["note"].tolist() == ["1 of 8 seeds collapsed"]


def test_a_run_that_diverged_counts_as_collapsed():
    lost = lambda levels, seed: "diverged" if seed == 3 else "done"  # noqa: E731
    found = row(study(20, lambda levels, seed: 2.0 + solved(levels, seed), TASK, status=lost))
    assert found.verdict == "undecided" and found.note == "1 run diverged on each side"


def test_a_claim_of_a_small_difference_is_not_supported_where_a_seed_collapsed():
    same = {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "margin": 0.02, "metric": "test/accuracy"}
    found = evidence.claims(study(20, claims={"same": entry(same)})).iloc[0]
    assert found.verdict == "supported" and "collapse" not in found.sentence
    wide = {"same": entry(same | {"margin": 0.9})}
    found = evidence.claims(study(8, but(("rms", 0), ("ln", 0)), claims=wide)).iloc[0]
    assert found.verdict == "undecided" and found.p == 1 and "1 of 8 seeds collapsed" in found.sentence
