"""Two families: the effects of a design keep their 5 % whatever is claimed, and what is exploratory has other words."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import fabricate, study_of
from simulate import error, paired_intervals, with_scores

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.typed_json import parse
from ablate.results.records import ClaimEntry, MarginEntry
from ablate.results.study import Study, load_study
from analysis.case import Case, case_of
from analysis.cli.main import _lines
from analysis.gallery import pages
from analysis.writing import methods, tables

CASES: dict[str, tuple[dict[str, list[Any]], dict[str, str]]] = {
    "3x3x2": ({"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "glu", "swiglu"], "residual": ["pre", "post"]}, {}),
    "1x8": ({"ffn": ["mlp", "gelu", "silu", "glu", "reglu", "geglu", "swiglu", "bilinear"]}, {}),
}
REAL = {"3x3x2": "residual", "1x8": "ffn"}  # the factor whose last level has an effect
CLAIM = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}
WRITTEN = "2025-01-02T00:00:00+00:00"


ALL = {"value": "all", "written": WRITTEN, "registered": True}  # a study file's `effects: all`


def claimed(registered: bool) -> dict[str, Any]:
    return {"a": {"claim": CLAIM, "written": WRITTEN, "registered": registered, "earlier": []}}


def typed(claims: dict[str, Any]) -> dict[str, ClaimEntry]:
    """Claims as a manifest that was read has them."""
    return {name: parse(ClaimEntry, each) for name, each in claims.items()}


def design(name: str, n: int = 5, **manifest: Any) -> Study:
    return study_of(CASES[name][0], range(n), study=f"s{name}", **manifest)


@pytest.mark.parametrize("name", list(CASES))
def test_false_verdicts_stay_within_5_per_cent_with_and_without_claims(name: str) -> None:
    """In 10,000 studies with one real factor, rows without an effect that are called better or worse in any of them."""
    study, rng, studies = design(name), np.random.default_rng(3), 10_000
    cells, found = study.manifest.cells, [each for each in evidence.contrasts(study.manifest) if each.kind != "cell"]
    weights = np.array([[each.weights.get(cell.id, 0.0) for each in found] for cell in cells])
    truth = np.array([20.0 * (cell.levels[REAL[name]] == study.manifest.factors[REAL[name]][-1]) for cell in cells])
    drawn = truth + rng.normal(size=(studies, 5, len(cells)))
    low, high = paired_intervals(drawn @ weights, 0.05 / len(found))
    wrong = ((low > 0) | (high < 0))[:, np.abs(truth @ weights) < 1e-9]
    assert 0.02 < wrong.any(1).mean() <= 0.05 + error(0.05, studies)
    for claims in ({}, claimed(True), claimed(False)):
        for i in (0, 1):
            more = {"claims": typed(claims), "effects": MarginEntry(**ALL)}
            family = evidence.effects(with_scores(study, drawn[i], **more)).query("family")
            expected = np.where(high[i] < 0, "better", np.where(low[i] > 0, "worse", "undecided"))
            assert list(family["verdict"]) == list(expected)


def test_effects_are_the_same_to_the_last_column_whatever_is_claimed() -> None:
    study, rng = design("3x3x2"), np.random.default_rng(0)
    drawn = rng.normal(size=(5, len(study.manifest.cells)))
    before, after = typed(claimed(True)), typed(claimed(False))
    everything = {"claims": before, "effects": MarginEntry(**ALL)}
    asked: list[dict[str, Any]] = [{}, everything, {"claims": after}, {"claims": before}]
    first, *same, last = [evidence.effects(with_scores(study, drawn, **more)) for more in asked]
    for other in same:
        pandas.testing.assert_frame_equal(first, other)
    judged = ["verdict", "note", "assumes"]
    assert set(last["verdict"]) == {"descriptive"} != set(first["verdict"])
    pandas.testing.assert_frame_equal(first.drop(columns=judged), last.drop(columns=judged))


@pytest.mark.parametrize(
    ("claims", "more", "descriptive"),
    [
        (claimed(True), {}, True),
        (claimed(False), {}, False),
        (claimed(True), {"effects": ALL}, False),
        (claimed(True), {"effects": ALL | {"registered": False}}, True),
        ({}, {"withdrawn": {"a": claimed(True)["a"] | {"withdrawn": WRITTEN, "seen": True}}}, True),
        ({}, {"withdrawn": {"a": claimed(True)["a"] | {"withdrawn": WRITTEN, "seen": False}}}, False),
    ],
    ids=["claims", "post hoc", "effects: all", "effects: all, late", "taken back late", "taken back before"],
)
def test_registered_claims_leave_effects_descriptive_unless_they_were_asked_for(tmp_path, claims, more, descriptive):
    study = study_of(GRID, range(5), shifted, claims=claims, **more)
    table = evidence.effects(study)
    assert table["verdict"].eq("descriptive").tolist() == [descriptive] * len(table)
    assert table["low"].notna().all() and table["mean"].notna().all(), "nothing that is known is lost"
    given = case_of(study, tmp_path)
    counts = {kind for each in pages._judged(given) for kind in each["kind"]}
    assert ("effects" in counts) == (not descriptive)
    assert ("claims" in counts) == any(entry["registered"] for entry in claims.values())
    said = "effects are descriptive: what is judged are the registered claims"
    outputs = [summary(study, tmp_path), "\n".join(_lines(given)), " ".join(methods.methods(given))]
    assert all((said.removeprefix("e") in text) == descriptive for text in outputs)
    assert all("better (" not in text for text in outputs) == descriptive


def shifted(levels: dict[str, Any], seed: int) -> float:
    """swiglu and rms both help; noise of each run's own."""
    own = np.random.default_rng([seed, *str(levels).encode()]).normal(0, 0.002)
    return float(2 - 0.05 * (levels["ffn"] == "swiglu") - 0.05 * (levels["norm"] == "rms") + own)


GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def case(folder: Path, seeds: int = 5, registered: bool = False, **manifest: Any) -> Case:
    claims = claimed(registered)
    study = fabricate(folder, GRID, range(seeds), shifted, claims=claims, **manifest)
    return case_of(load_study(folder, study), folder)


@pytest.mark.parametrize("registered", [True, False])
def test_claims_and_effects_are_said_to_be_families_of_their_own(tmp_path: Path, registered: bool) -> None:
    given = case(tmp_path, registered=registered, effects=ALL)
    said = "1 registered claim and 3 effects are two families, each with its own 5 % of false verdicts"
    said = said if registered else "laims written after results are exploratory; the 5 % of false verdicts are those"
    outputs = [summary(given.study, tmp_path), "\n".join(_lines(given)), " ".join(methods.methods(given))]
    outputs += ["\n".join(sheet.notes) for sheet in tables.sheets(given) if sheet.name in ("claims", "effects")]
    assert len(outputs) == 5 and all(said in text for text in outputs)


@pytest.mark.parametrize(("n", "verdict"), [(2, "undecided"), (3, "better")])
def test_paired_differences_have_no_verdict_below_three_seeds(tmp_path: Path, n: int, verdict: str) -> None:
    study = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, range(n), lambda v, s: shifted({"norm": "ln"} | v, s) + s)
    (row,) = evidence.effects(load_study(tmp_path, study)).itertuples()
    assert row.verdict == verdict and row.paired and np.isnan(row.p) == (n < 3)
    assert ("fewer than 3 seeds have both sides" in row.note) == (n < 3)


@pytest.mark.parametrize(("n", "verdict"), [(2, "undecided"), (3, "supported")])
def test_two_seeds_judge_no_claim(n: int, verdict: str) -> None:
    """Nor that one side diverges more often, which many cells of two seeds would pass the exact test for."""
    sides = [{"ffn": "glu"}, {"ffn": ["mlp", "swiglu"]}]
    entries = {
        name: claimed(True)["a"] | {"claim": claim}
        for name, claim in (("less", CLAIM), ("often", {"diverges_more": sides}))
    }
    lost = lambda levels, seed: "diverged" if levels["ffn"] == "glu" else "done"  # noqa: E731
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu", "glu"]}
    study = study_of(factors, range(n), shifted, lost, claims=entries)
    assert set(evidence.claims(study)["verdict"]) == {verdict}
