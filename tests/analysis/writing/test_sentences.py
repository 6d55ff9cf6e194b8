"""Sentences of effects: what was found, what it rests on, and where it holds; the sections of a report."""

import math
import re
from typing import Any

import pytest
from analysed_studies import analysed, case
from ladders import climbed
from shown_studies import claim

from ablate import evidence
from ablate.formatting import p_text, p_words
from analysis.case import Case, case_of
from analysis.writing import latex, page, sections, tables
from analysis.writing.sentences import sentence, sentences


def about(found: Case, label: str, **changed: Any) -> str:
    """The sentence of a row, with some of its numbers changed."""
    row = next(found.effects[found.effects["label"] == label].assign(**changed).itertuples())
    contrasts = {contrast.label: contrast for contrast in evidence.contrasts(found.study.manifest)}
    return sentence(found.study.manifest, row, contrasts[label])


def test_a_decided_effect_has_its_size_interval_grounds_and_scope(tmp_path):
    found = case(tmp_path, seeds=range(8))
    row = next(found.effects.query("factor == 'ffn'").itertuples())
    pattern = (
        r"SwiGLU lowers test loss by 0\.(\d+) \[0\.(\d+), 0\.(\d+)\] nats per byte: better \(8 seeds; "
        r"Bonferroni p < 0\.0001; averaged over norm; \+0\.1 % parameters; 0\.12 M parameters, .*800 steps\)\."
    )
    shown = re.fullmatch(pattern, sentences(found)[1])
    assert shown, sentences(found)[1]
    expected = [-row.mean, -row.high, -row.low]  # of a reduction, so that the ends change places
    assert [float(f".{digits}") for digits in shown.groups()] == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("verdict", "numbers", "words"),
    [
        ("better", (-0.01, -0.015, -0.005), "[−0.0150, −0.0050]: better (lower together than the two alone predict) ("),
        ("undecided", (0.01, -0.01, 0.03), "none seen, +0.010 [−0.010, +0.030]: undecided ("),
    ],
)
def test_an_interaction_says_what_its_verdict_is_about(tmp_path, verdict, numbers, words):
    changed = dict(zip(("mean", "low", "high"), numbers, strict=True))
    text = about(case(tmp_path, seeds=range(5)), "RMSNorm × SwiGLU", verdict=verdict, note="", **changed)
    assert words in text


def test_small_p_keep_a_digit():
    texts = {0.0003: "0.0003", 0.031: "0.031", 1e-9: "< 0.0001", 1.0: "1.000", math.nan: "–"}
    assert {p: p_text(p) for p in texts} == texts
    assert [p_words(p, "Holm") for p in (0.031, 1e-9, math.nan)] == ["Holm p = 0.031", "Holm p < 0.0001", ""]


def by_title(found: Case) -> dict[str, str]:
    """The sections of report.md by their titles."""
    return {part.split("\n")[0]: part for part in re.split(r"(?m)^## ", page.markdown(found))[1:]}


def test_the_command_writes_the_report_with_links_to_the_figures_beside_it():
    folder = analysed()
    text = (folder / "report.md").read_text()
    assert re.findall(r"!\[(\w+)\]\(([^)]+)\)", text) == [("effects", "effects.png"), ("curves", "curves.png")]
    assert (folder / "methods.md").read_text().strip() in text
    assert not (folder / "references.bib").exists()  # the study names no papers


def test_only_columns_that_a_page_shows_are_explained_on_it(tmp_path):
    found = case(tmp_path, seeds=range(5))
    assert "Smallest effect found" not in page.markdown(found)
    effects = tables.effects_table(found)
    assert "Smallest effect found" in tables.markdown(effects)
    assert "Smallest effect found" in latex.full_table(effects)


def test_one_seed_is_a_warning(tmp_path):
    assert sections.ALONE in page.markdown(case(tmp_path, study="one", seeds=[0]))


def test_interim_analyses_and_withdrawn_claims_are_said(tmp_path):
    looks = [{"seeds": [0, 1], "when": "2026-01-02"}, {"seeds": [0, 1, 2], "when": "2026-01-03", "study": "other"}]
    looks.append({"seeds": [0, 1, 2, 3, 4], "when": "2026-01-04"})
    lower = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")
    claims = {"claims": {"lower": lower}, "withdrawn": {"old": lower | {"withdrawn": lower["written"]}}}
    parts = by_title(case(tmp_path, study="late", seeds=range(5), looks=looks, **claims))
    assert "unadjusted" in parts["Interim analyses"] and "- 2026-01-03: 3 seeds, in other" in parts["Interim analyses"]
    assert "2026-01-04" not in parts["Interim analyses"]  # the final one
    assert "lower (registered): " in parts["In words"] and "old (registered): withdrawn" in parts["In words"]


HOSTILE = "<img src=x onerror=alert(1)>[l](javascript:x)*b*`c`"


@pytest.mark.parametrize("factors", [{"ffn": ["mlp", HOSTILE]}, {"norm": ["ln", "_i_"], "ffn": ["mlp", "a|b"]}])
def test_no_value_is_markup(tmp_path, factors):
    text = page.markdown(case(tmp_path, factors))
    bare = re.sub(r"\\.", "", text)
    assert not re.search(r"<[a-z]|\]\(javascript|`|(?<![\w*])\*b\*|\b_i_\b", bare)


def test_a_ladder_has_its_worth_its_cost_and_its_trend(tmp_path):
    found = case_of(climbed(lambda c: 0.3, noise=1e-3, count=3), tmp_path)
    (top,) = (line for line in page.markdown(found).splitlines() if line.startswith("| FFN: SwiGLU − ReLU MLP | 3 | 8"))
    assert "×1.05" in top and " % [+" in top


def test_a_ladder_without_worths_has_the_reason(tmp_path):
    text = page.markdown(case_of(climbed(lambda c: 0.3, other_steps=False), tmp_path))
    assert "its reference was trained for no other numbers of steps" in text
