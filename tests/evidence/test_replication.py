"""The overall verdict of a study: its criterion, met, partly met or not met by its claims, and when it was written."""

from __future__ import annotations

from typing import Any

import pytest
from claimed_studies import SIDES, entry, made
from fake_studies import with_manifest

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.claim_relations import Criterion
from ablate.planning.registration import registered_criterion
from ablate.results.records import CriterionEntry, CriterionText

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
