"""Claims that a difference stays below a margin, and claims that compare two metrics, against SciPy's own tests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from claimed_studies import NOISE, SIDES, TRAINED, entry, made, row, scores_of
from fake_studies import TASK, Levels
from scipy import stats

from ablate import evidence
from ablate.results.study import Study

HALVES = ("equivalent", "not_greater", "not_less")
PAIR = {"metric": ["test/loss@512", "test/loss@64"]}


def test_a_difference_may_be_claimed_to_stay_below_a_margin(tmp_path):
    """Against SciPy's one-sided tests at the margin, at half the level; those of `equivalent` are these two."""
    sides = [{"norm": "rms"}, {"norm": "ln"}]
    margins = {"wide": 0.01, "narrow": 1e-4}
    claims = {f"{rule} {name}": {rule: sides, "margin": m} for rule in HALVES for name, m in margins.items()}
    claims |= {"lower": {"not_greater": SIDES, "margin": 0.01}, "lost": {"not_less": SIDES, "margin": 0.01}}
    study = made(tmp_path, {name: entry(claim) for name, claim in claims.items()})
    table = evidence.claims(study)
    difference = scores_of(study, norm="rms") - scores_of(study, norm="ln")
    for name, margin in margins.items():
        above = stats.ttest_1samp(difference, margin, alternative="less").pvalue
        below = stats.ttest_1samp(difference, -margin, alternative="greater").pvalue
        for rule, p in zip(HALVES, (max(above, below), above, below), strict=True):
            found = row(table, f"{rule} {name}")
            assert found.p == pytest.approx(2 * min(p, 1 - p))
            assert found.verdict == (TRAINED if 2 * p < 0.05 / len(claims) else "undecided")
    others = (scores_of(study, ffn="mlp") + scores_of(study, ffn="gelu")) / 2
    lost = stats.ttest_1samp(scores_of(study, ffn="swiglu") - others, -0.01, alternative="less").pvalue
    assert row(table, "lost").p == pytest.approx(2 * lost) and row(table, "lost").verdict == "contradicted"
    assert "not so at this scale: " in row(table, "lost").sentence
    assert "(criterion < 0.01)" in row(table, "lost").sentence
    assert "(criterion < +0.01)" in row(table, "not_greater wide").sentence
    assert "(criterion > −0.01)" in row(table, "not_less wide").sentence
    few = evidence.claims(made(tmp_path / "few", {"a": entry(claims["lower"])}, seeds=range(4)))
    assert row(few, "a").verdict == "undecided" and row(few, "a").p == 1
    assert "fewer than 5 seeds cannot show that it is not greater" in row(few, "a").note


def test_what_stays_below_a_margin_allows_for_collapses(tmp_path):
    """Of an accuracy: what the interval leaves below the margin must pay for as many collapses as there may be."""
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {"chance": math.log(2)}}}
    claim = {"not_less": [{"norm": "rms"}, {"norm": "ln"}], "margin": 0.1}
    turned = {"not_greater": claim["not_less"][::-1], "margin": 0.1}  # type: ignore[index]

    def judged(name: str, n: int, gain: float = 0, fallen: str = "") -> list[Any]:
        def score(levels: Levels, seed: int) -> float:
            rms = levels["norm"] == "rms"
            return 0.5 if levels["norm"] == fallen and seed == 3 else 0.9 + gain * rms + NOISE[seed, 2 * rms]

        options: dict[str, Any] = {"factors": {"norm": ["ln", "rms"]}, "seeds": range(n), "tasks": tasks}
        table = evidence.claims(made(tmp_path / name, {"a": entry(claim), "b": entry(turned)}, score=score, **options))
        return [row(table, "a"), row(table, "b")]

    for found in judged("better", 20, gain=0.06):
        assert found.verdict == "supported", "an interval on the good side leaves more than the margin for collapses"
    for found in judged("level", 8):
        assert found.verdict == "supported among solved seeds" and found.note == "8 of 8 solved, failure rate < 37 %"
    for fallen in ("ln", "rms"):
        for found in judged(fallen, 8, fallen=fallen):
            assert found.verdict == "undecided", "of a difference that holds a collapsed run nothing is small"
            assert "collapsed in 1 of 8 seeds" in found.note
    few = judged("few", 4)
    assert "criterion > −0.1" in few[0].says and "criterion < +0.1" in few[1].says
    assert judged("one", 1)[1].says.endswith(" (criterion < +0.1)")


def by_length(study: Study) -> Study:
    """The study with a loss at length 64, its own, and at 512, 0.004 above it and noise; a seed of swiglu lacks it."""
    runs = study.runs
    added = 0.004 + NOISE[runs["seed"], 3] / 4
    runs = runs.assign(**{"test/loss@64": runs["test/loss"], "test/loss@512": runs["test/loss"] + added})
    runs.loc[(runs["seed"] == 7) & (runs["ffn"] == "swiglu"), "test/loss@512"] = math.nan
    return replace(study, runs=runs)


def test_two_metrics_of_the_same_cells_are_compared_within_seeds(tmp_path):
    """Against SciPy's test of one number minus the other of the same runs; one run lacks one of them."""
    alone: list[Any] = [{"ffn": "swiglu", "norm": "ln"}] * 2
    claims = {
        "holds": {"not_greater": alone, "margin": 0.02},
        "less": {"less": alone},
        "rises": {"greater": alone},
        "between": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]},
    }
    study = by_length(made(tmp_path, {name: entry(claim | PAIR) for name, claim in claims.items()}))
    runs, table = study.runs[study.runs["seed"] < 7], evidence.claims(study)
    one = runs[(runs["ffn"] == "swiglu") & (runs["norm"] == "ln")]
    difference = (one["test/loss@512"] - one["test/loss@64"]).to_numpy()
    holds = row(table, "holds")
    assert holds.n == 7 and holds.paired and holds["mean"] == pytest.approx(difference.mean())
    assert holds.p == pytest.approx(2 * stats.ttest_1samp(difference, 0.02, alternative="less").pvalue)
    span = stats.ttest_1samp(difference, 0).confidence_interval(1 - 0.05 / 4)
    assert (holds.low, holds.high) == pytest.approx((span.low, span.high)) and holds.verdict == TRAINED
    whose = "of ffn=swiglu with norm=ln"
    assert f"{whose.removeprefix('of ')}: test loss, length 512 − length 64: +0.00" in holds.sentence
    assert "(criterion < +0.02)" in holds.sentence
    assert [row(table, name).verdict for name in ("less", "rises")] == ["contradicted", "supported"]
    means = runs.groupby(["ffn", "seed"])[["test/loss@512", "test/loss@64"]].mean()
    apart = means.loc["swiglu", "test/loss@512"] - means.loc["mlp", "test/loss@64"]
    between = row(table, "between")
    assert between["mean"] == pytest.approx(apart.mean()) and between.n == 7
    assert between.p == pytest.approx(stats.ttest_1samp(apart, 0).pvalue)


def test_runs_that_diverged_count_alike_in_both_metrics_of_a_cell(tmp_path):
    claim = {"less": [{"ffn": "mlp"}] * 2} | PAIR
    lost: Any = {"status": lambda levels, seed: "diverged" if levels["ffn"] == "mlp" and seed < 2 else "done"}
    study = made(tmp_path, {"a": entry(claim)}, **lost)
    runs = study.runs.assign(**{"test/loss@64": study.runs["test/loss"]})
    found = row(evidence.claims(replace(study, runs=runs)), "a")
    assert found.verdict == "undecided" and found.note.startswith("no seed has every run it needs")
    runs["test/loss@512"] = runs["test/loss"] - 0.1 - NOISE[runs["seed"], 0]
    found = row(evidence.claims(replace(study, runs=runs)), "a")
    assert found.n == 6 and found.verdict == "supported" and "4 runs diverged on side one" in found.note
