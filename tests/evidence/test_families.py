"""Two families: the effects of a design keep their 5 % whatever is claimed, and what is not tested has no verdict."""

from typing import Any

import numpy as np
import pandas
import pytest
from claimed_studies import entry
from fake_studies import study_of
from simulate import error, paired_intervals, weights_of, with_scores

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.typed_json import parse
from ablate.runs.records import ClaimEntry

CASES: dict[str, dict[str, list[Any]]] = {  # by the factor whose last level has an effect
    "residual": {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "glu", "swiglu"], "residual": ["pre", "post"]},
    "ffn": {"ffn": ["mlp", "gelu", "silu", "glu", "reglu", "geglu", "swiglu", "bilinear"]},
}
CLAIM = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}
WRITTEN = "2025-01-02T00:00:00+00:00"


def typed(claims: dict[str, Any]) -> dict[str, ClaimEntry]:
    """Claims as a manifest that was read has them."""
    return {name: parse(ClaimEntry, each) for name, each in claims.items()}


@pytest.mark.parametrize("real", list(CASES))
def test_false_verdicts_stay_within_5_per_cent_with_and_without_claims(real):
    """In 5,000 studies with one real factor, rows without an effect that are called better or worse in any of them."""
    study, rng, studies = study_of(CASES[real], range(5)), np.random.default_rng(3), 5000
    weights, cells = weights_of(study), study.manifest.cells
    truth = np.array([20.0 * (cell.levels[real] == CASES[real][real][-1]) for cell in cells])
    drawn = truth + rng.normal(size=(studies, 5, len(cells)))
    low, high = paired_intervals(drawn @ weights, 0.05 / weights.shape[1])
    wrong = ((low > 0) | (high < 0))[:, np.abs(truth @ weights) < 1e-9]
    assert 0.02 < wrong.any(1).mean() <= 0.05 + error(0.05, studies)
    for i, claims in enumerate(({}, {"a": entry(CLAIM, False)})):
        family = evidence.effects(with_scores(study, drawn[i], claims=typed(claims))).query("family")
        expected = np.where(high[i] < 0, "better", np.where(low[i] > 0, "worse", "undecided"))
        assert list(family["verdict"]) == list(expected)


def test_effects_are_the_same_to_the_last_column_whatever_is_claimed():
    study, rng = study_of(GRID, range(5)), np.random.default_rng(0)
    drawn = rng.normal(size=(5, len(study.manifest.cells)))
    before, after = typed({"a": entry(CLAIM, True)}), typed({"a": entry(CLAIM, False)})
    asked: list[dict[str, Any]] = [{}, {"claims": after}, {"claims": before}]
    first, *same, last = [evidence.effects(with_scores(study, drawn, **more)) for more in asked]
    for other in same:
        pandas.testing.assert_frame_equal(first, other)
    judged = ["verdict", "note", "waits", "p_bonferroni"]
    assert set(last["verdict"]) == {"estimate only"} != set(first["verdict"])
    pandas.testing.assert_frame_equal(first.drop(columns=judged), last.drop(columns=judged))


@pytest.mark.parametrize(
    ("claims", "more", "untested"),
    [
        ({"a": entry(CLAIM, True)}, {}, True),
        ({"a": entry(CLAIM, False)}, {}, False),
        ({}, {"withdrawn": {"a": entry(CLAIM, True) | {"withdrawn": WRITTEN, "seen": True}}}, True),
        ({}, {"withdrawn": {"a": entry(CLAIM, True) | {"withdrawn": WRITTEN, "seen": False}}}, False),
    ],
    ids=["claims", "post hoc", "taken back late", "taken back before"],
)
def test_registered_claims_leave_effects_untested(claims, more, untested):
    study = study_of(GRID, range(5), shifted, claims=claims, **more)
    table = evidence.effects(study)
    family = table[table["family"]]
    assert family["verdict"].eq("estimate only").tolist() == [untested] * len(family)
    assert family["p_bonferroni"].isna().tolist() == [untested] * len(family)
    assert table["low"].notna().all() and table["mean"].notna().all(), "nothing that is known is lost"
    said = "only the registered claims are tested" if claims else "nothing is tested: its registered claims were edited"
    assert summary(study).count(said) == untested, "once"


def shifted(levels: dict[str, Any], seed: int) -> float:
    """swiglu and rms both help; noise of each run's own."""
    own = np.random.default_rng([seed, *str(levels).encode()]).normal(0, 0.002)
    return float(2 - 0.05 * (levels["ffn"] == "swiglu") - 0.05 * (levels["norm"] == "rms") + own)


GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.mark.parametrize(("n", "verdict"), [(2, "undecided"), (3, "better")])
def test_paired_differences_have_no_verdict_below_three_seeds(n, verdict):
    study = study_of({"ffn": ["mlp", "swiglu"]}, range(n), lambda v, s: shifted({"norm": "ln"} | v, s) + s)
    (row,) = evidence.effects(study).itertuples()
    assert row.verdict == verdict and row.paired and np.isnan(row.p) == np.isnan(row.smallest) == (n < 3)
    assert (row.note == "two seeds give no verdict, three are needed") == (n < 3)


@pytest.mark.parametrize(("n", "verdict"), [(2, "undecided"), (3, "supported")])
def test_two_seeds_judge_no_claim(n, verdict):
    """Nor that one side diverges more often, which many cells of two seeds would pass the exact test for."""
    sides = [{"ffn": "glu"}, {"ffn": ["mlp", "swiglu"]}]
    entries = {"a": entry(CLAIM, True)} | {"often": entry(CLAIM, True) | {"claim": {"diverges_more": sides}}}
    lost = lambda levels, seed: "diverged" if levels["ffn"] == "glu" else "done"  # noqa: E731
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu", "glu"]}
    study = study_of(factors, range(n), shifted, lost, claims=entries)
    assert set(evidence.claims(study)["verdict"]) == {verdict}
