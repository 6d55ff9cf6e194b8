"""When a claim counts as written before its results, and what is remembered of earlier ones."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from claimed_cells import CELLS, LENGTHS, LESS, RANKED, typed

from ablate.planning.earlier_runs import register
from ablate.runs.records import ClaimEntry, ClaimText

GREATER = {"greater": LESS["less"]}
ALONE = {"not_greater": [{"ffn": "mlp"}, {"ffn": "mlp"}], "metric": LENGTHS, "margin": 0.02}
ONE_SIDE = {"mlp-ln-0.001", "gelu-ln-0.001"}
BOTH_SIDES = {0: {"mlp-ln-0.001", "swiglu-ln-0.001"}}


def entries(claims: dict[str, Any], earlier: Any, scored: dict[int, set[str]], when: str) -> Any:
    """The entries of a manifest with these claims, given an earlier one's and the cells that are scored, by seed."""
    before = earlier.withdrawn | earlier.claims if earlier else {}
    typed_claims = {name: typed(claim) for name, claim in claims.items()}
    return SimpleNamespace(**register(typed_claims, before, CELLS, scored, when))


@pytest.mark.parametrize(
    ("claim", "scored", "is_registered"),
    [
        (LESS, {}, True),
        (LESS, {0: ONE_SIDE}, True),
        (LESS, {0: ONE_SIDE, 1: {"swiglu-ln-0.001"}}, True),
        (LESS, {0: ONE_SIDE, 1: {"mlp-ln-0.001", "swiglu-rms-0.002"}}, False),
        (LESS | {"at": {"norm": "ln"}}, {1: {"mlp-ln-0.001", "swiglu-rms-0.002"}}, True),
        (ALONE, {0: {"swiglu-ln-0.001"}}, True),
        (ALONE, {0: ONE_SIDE}, False),  # a run has both numbers
        (RANKED, {0: ONE_SIDE}, False),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else str(value),
)
def test_a_claim_is_registered_while_no_seed_has_both_sides_scored(claim, scored, is_registered):
    assert entries({"a": claim}, None, scored, "t").claims["a"].registered == is_registered


def test_an_unchanged_claim_stays_registered():
    first = entries({"a": LESS}, None, {}, "monday")
    later = entries({"a": LESS}, first, BOTH_SIDES, "tuesday")
    assert later.claims["a"] == ClaimEntry(claim=typed(LESS), written="monday", registered=True)


def test_an_edited_claim_is_written_anew_and_keeps_its_earlier_texts():
    first = entries({"a": LESS}, None, {}, "monday")
    second = entries({"a": GREATER}, first, BOTH_SIDES, "tuesday")
    assert second.claims["a"].written == "tuesday"
    assert not second.claims["a"].registered
    assert second.claims["a"].earlier == [ClaimText(claim=typed(LESS), written="monday", registered=True)]
    third = entries({"a": LESS}, second, BOTH_SIDES, "wednesday")
    assert [text.written for text in third.claims["a"].earlier] == ["monday", "tuesday"]
    assert not third.claims["a"].registered


def test_a_claim_that_is_taken_out_is_remembered():
    first = entries({"a": LESS}, None, {}, "monday")
    second = entries({}, first, {}, "tuesday")
    assert second.claims == {}
    assert second.claims_hash is None
    assert second.withdrawn == {"a": replace(first.claims["a"], withdrawn="tuesday", seen=False)}
    assert entries({}, second, BOTH_SIDES, "wednesday").withdrawn == second.withdrawn


def test_a_claim_that_is_taken_out_after_its_results_is_remembered_as_seen():
    first = entries({"a": LESS}, None, {}, "monday")
    assert entries({}, first, BOTH_SIDES, "tuesday").withdrawn["a"].seen


def test_a_claim_that_was_taken_out_may_come_back():
    first = entries({"a": LESS}, None, {}, "monday")
    second = entries({}, first, {}, "tuesday")
    assert entries({"a": LESS}, second, BOTH_SIDES, "wednesday") == first
