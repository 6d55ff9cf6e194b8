"""Claims that a difference stays below a margin, and claims that compare two metrics, against SciPy's own tests."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from claimed_studies import NOISE, SIDES, TRAINED, entry, made, row, scores_of
from fake_studies import TASK, Levels, with_manifest
from scipy import stats

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claim_relations import Criterion
from ablate.planning.registration import registered_criterion
from ablate.results.records import CriterionEntry, CriterionText
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


TRUE, FALSE = {"less": SIDES}, {"greater": SIDES}

OPEN = {"less": [{"ffn": "glu"}, {"ffn": "reglu"}]}

ALIKE = {"equivalent": OPEN["less"], "margin": 0.02}

CLAIMS = {"yes": entry(TRUE), "too": entry(TRUE | {"at": {"norm": "ln"}}), "no": entry(FALSE), "open": entry(OPEN)}

CLAIMS |= {"alike": entry(ALIKE)}


def found(folder: Any, of: list[str], claims: dict[str, Any] = CLAIMS, **more: Any) -> Any:
    study = made(folder, claims, replicated={"value": {"of": of}, "written": "t", "registered": True} | more)
    return evidence.replication(study.manifest, evidence.claims(study))


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Any:
    """A study and the verdicts on its claims, which no criterion changes."""
    study = made(tmp_path_factory.mktemp("judged"), CLAIMS)
    return study, evidence.claims(study)


@pytest.mark.parametrize(
    ("of", "least", "verdict", "why"),
    [
        (["yes", "too"], None, "met", "of the 2 claims that it rests on 2 are supported"),
        (["yes", "no"], None, "partly met", "of the 2 claims that it rests on 1 is supported; contradicted: no"),
        (["no", "open"], None, "not met",
         "of the 2 claims that it rests on none is supported; contradicted: no; undecided: open"),
        (["yes", "no", "open"], 1, "met",
         "of the 3 claims that it rests on 1 is supported, and 1 is enough; contradicted: no; undecided: open"),
        (["yes", "no", "open"], 2, "partly met",
         "of the 3 claims that it rests on 1 is supported, and 2 are enough; contradicted: no; undecided: open"),
        (["alike"], None, "met", "the claim that it rests on, alike, is supported among seeds that trained"),
        (["open"], None, "not met", "the claim that it rests on, open, is undecided"),
        (["yes", "alike"], None, "met",
         "of the 2 claims that it rests on 2 are supported; alike among seeds that trained only"),
    ],
)  # fmt: skip
def test_a_criterion_is_met_partly_met_or_not_met_and_says_why(judged, of, least, verdict, why) -> None:
    study, table = judged
    value = Criterion(of=of, at_least=least)
    criterion = CriterionEntry(value=value, written="t", registered=True)
    made_of = evidence.replication(with_manifest(study, replicated=criterion).manifest, table)
    assert (made_of.verdict, made_of.why) == (verdict, why)
    assert made_of.sentence.startswith(f"replicated (registered): {verdict}. {why[0].upper()}{why[1:]}")


def test_a_criterion_or_a_claim_of_it_written_after_results_is_exploratory(tmp_path) -> None:
    late = found(tmp_path / "late", ["yes"], registered=False)
    assert late.verdict == "looks met" and late.sentence.startswith("replicated (post hoc): looks met")
    claims = CLAIMS | {"yes": entry(TRUE, registered=False)}
    assert found(tmp_path / "claim", ["yes", "too"], claims=claims).verdict == "looks met"
    earlier = [{"value": {"of": ["no"]}, "written": "2025-01-01", "registered": True}]
    edited = found(tmp_path / "edited", ["yes"], registered=False, earlier=earlier).sentence
    assert edited.startswith("replicated (post hoc, edited after results): looks met")
    assert edited.endswith("; from 2025-01-01 on (registered) it rested on 1 of no.")


def test_the_summary_says_it_before_the_claims_and_how_else_it_was_registered(tmp_path) -> None:
    criterion = {"value": {"of": ["yes"]}, "registered": True, "remark": "in words"}
    study = made(tmp_path, CLAIMS, replicated=criterion)
    lines = summary(study).splitlines()
    said = "replicated (registered): met. The claim that it rests on, yes, is supported (in words)."
    assert lines.index(said) + 1 == next(i for i, line in enumerate(lines) if line.startswith("yes (registered)"))
    assert evidence.replication(made(tmp_path / "none", CLAIMS).manifest, evidence.claims(study)) is None


def test_a_criterion_is_registered_like_a_margin_and_keeps_what_it_said() -> None:
    one, other = Criterion(of=["a"]), Criterion(of=["a", "b"], at_least=1)
    seen = {0: {"x", "y"}}
    first = registered_criterion(one, None, {}, "t1")
    assert first == CriterionEntry(value=one, written="t1", registered=True)
    assert registered_criterion(one, first, seen, "t2") == first
    edited = registered_criterion(other, first, seen, "t2")
    assert not edited.registered and edited.earlier == [CriterionText(value=one, written="t1", registered=True)]
    gone = registered_criterion(None, edited, seen, "t3")
    assert gone.value is None and len(gone.earlier) == 2


def test_a_criterion_that_was_withdrawn_is_still_named(tmp_path) -> None:
    earlier = [{"value": {"of": ["no"]}, "written": "t1", "registered": True}]
    study = made(tmp_path, CLAIMS, replicated={"value": None, "written": "t2", "registered": False, "earlier": earlier})
    told = evidence.replication(study.manifest, evidence.claims(study))
    assert told and told.sentence == "replicated: withdrawn t2; from t1 on (registered) it rested on 1 of no."
