"""The sections of a report: effects in words, warnings, claims, ladders."""

import math
import re

import pytest
from analysed_studies import analysed, case
from ladders import climbed
from shown_studies import claim

from ablate.formatting import p_text, p_words
from analysis.case import case_of
from analysis.writing import page, sections


def test_a_decided_effect_has_its_size_and_its_interval(tmp_path):
    found = case(tmp_path, seeds=range(8))
    row = next(found.effects.query("factor == 'ffn'").itertuples())
    shown = re.fullmatch(
        r"SwiGLU lowers test loss by 0\.(\d+) \[0\.(\d+), 0\.(\d+)\] nats per byte: better\.",
        sections.sentences(found)[1],
    )
    assert shown, sections.sentences(found)[1]
    expected = [-row.mean, -row.high, -row.low]  # of a reduction, so that the ends change places
    assert [float(f".{digits}") for digits in shown.groups()] == pytest.approx(expected, abs=6e-5)
    assert "All of this is at 0.12 M parameters, stdlib-3.11, 800 steps." in page.markdown(found)


def test_small_p_keep_a_digit():
    texts = {0.0003: "0.0003", 0.031: "0.031", 1e-9: "< 0.0001", 1.0: "1.000", math.nan: "–"}
    assert {p: p_text(p) for p in texts} == texts
    assert [p_words(p, "Holm") for p in (0.031, 1e-9, math.nan)] == ["Holm p = 0.031", "Holm p < 0.0001", ""]


def test_the_command_writes_the_report_with_links_to_the_figures_beside_it():
    folder = analysed()
    text = (folder / "report.md").read_text()
    assert re.findall(r"!\[(\w+)\]\(([^)]+)\)", text) == [("effects", "effects.png"), ("curves", "curves.png")]
    assert (folder / "methods.md").read_text().strip() in text
    assert not (folder / "references.bib").exists()  # the study names no papers


def test_one_seed_is_a_warning(tmp_path):
    assert sections.ALONE in page.markdown(case(tmp_path, study="one", seeds=[0]))


def test_interim_analyses_and_withdrawn_claims_are_said(tmp_path):
    looks = [{"seeds": [0, 1], "when": "2026-01-02"}, {"seeds": [0, 1, 2], "when": "2026-01-03", "study": "other"}]
    lower = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")
    claims = {"claims": {"lower": lower}, "withdrawn": {"old": lower | {"withdrawn": lower["written"]}}}
    text = page.markdown(case(tmp_path, study="late", seeds=range(5), looks=looks, **claims))
    assert "Unadjusted: intervals do not allow for interim analyses at 2" in text.partition("## ")[0]
    words = text.partition("## In words")[2].partition("## ")[0]
    assert "lower (registered): " in words and "old (registered): withdrawn" in words


def test_a_ladder_has_its_worth_its_cost_and_its_trend(tmp_path):
    found = case_of(climbed(lambda c: 0.3, noise=1e-3, count=3), tmp_path)
    (top,) = (line for line in page.markdown(found).splitlines() if line.startswith("| FFN: SwiGLU − ReLU MLP | 3 | 8"))
    assert "×1.05" in top and " % [+" in top


def test_a_ladder_without_worths_has_the_reason(tmp_path):
    text = page.markdown(case_of(climbed(lambda c: 0.3, other_steps=False), tmp_path))
    assert "its reference was trained for no other numbers of steps" in text
