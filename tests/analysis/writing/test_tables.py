"""Tables: CSV with every digit, texts for reading, Markdown in which no value is markup."""

import re

import pandas
import pytest
from analysed_studies import case
from fake_studies import fabricate
from shown_studies import claim

from ablate import evidence
from ablate.formatting import quoted, unquoted
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.cli.main import lines
from analysis.writing import latex, methods, page, tables

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def test_csv_keeps_every_digit_and_the_keys(tmp_path):
    study = load_study(tmp_path, fabricate(tmp_path, GRID))
    tables.write(case_of(study, tmp_path), tmp_path)
    for name, expected in {"effects": evidence.effects(study), "cells": evidence.cells(study)}.items():
        read = pandas.read_csv(tmp_path / f"{name}.csv", float_precision="round_trip")
        assert list(read) == list(expected)
        assert read["label"].tolist() == expected["label"].tolist()
        assert read[["mean", "sd"]].equals(expected[["mean", "sd"]])
    assert len(pandas.read_csv(tmp_path / "runs.csv")) == 12


def test_a_column_that_says_nothing_is_left_out(tmp_path):
    rows = tables.effects_table(case(tmp_path)).rows
    assert "also differs in" not in rows and "runs without result" not in rows
    status = lambda levels, seed: ["failed", "diverged", "done"][seed]  # noqa: E731
    lost = tables.effects_table(case(tmp_path / "lost", status=status)).rows
    assert set(lost["runs without result"]) == {"8", "4"}


def test_a_paper_reads_what_each_claim_says_and_how_it_is_judged(tmp_path):
    sides = [{"ffn": "swiglu"}, {"ffn": "mlp"}]
    claims = {
        "gated": claim(less=sides),
        "near": claim(equivalent=[{"norm": "rms"}, {"norm": "ln"}], margin=0.02),
        "no_worse": claim(not_greater=sides, margin=0.01),
        "later": claim(False, less=sides),
        "safe": claim(diverges_more=sides),
    }
    claims["later"]["earlier"] = [claims["gated"] | {"earlier": []}]
    gone = claim(less=[{"norm": "rms"}, {"norm": "ln"}]) | {"withdrawn": "2025-01-03T00:00:00+00:00"}
    looks = [{"seeds": [0, 1], "when": ""}]
    withdrawn = {"gone": gone | {"seen": True}, "early": gone | {"seen": False}}
    name = fabricate(tmp_path, GRID, seeds=range(6), claims=claims, withdrawn=withdrawn, looks=looks)
    (tmp_path / "figures.yaml").write_text("labels: {gated: Gates help}")
    table = tables.claims_table(case_of(load_study(tmp_path, name), tmp_path))
    assert table.paper is not None
    paper = table.paper.set_index("claim")
    assert paper["says"].to_dict() == {
        "Gates help": "SwiGLU < ReLU MLP",
        "near": "RMSNorm = LayerNorm ± 0.02",
        "no_worse": "SwiGLU < ReLU MLP + 0.01",
        "later": "SwiGLU < ReLU MLP",
        "safe": "SwiGLU diverges more than ReLU MLP (share of diverged runs)",
    }
    assert paper.at["Gates help", "verdict"] == "supported, unadjusted"
    caption = latex.paper_table(table)
    for sentence in (
        "Differences are in test loss (nats per byte) where no other quantity is named. n = 6 seeds.",
        "Of the registered claims, 1 was withdrawn after results could be seen, 1 was edited after results and "
        "1 was withdrawn before any result; p is corrected",
        "Unadjusted: intervals do not allow for",
        "or leave the margin, where the claim is decided",
    ):
        assert sentence in caption


def test_a_study_that_is_not_finished_says_so_above_its_verdicts(tmp_path):
    status = lambda levels, seed: "missing" if (levels["norm"], seed) == ("rms", 5) else "done"  # noqa: E731
    unfinished = case(tmp_path, GRID, seeds=range(6), status=status)
    said = "ot finished: 2 runs missing or running; an interim look"
    for text in (
        page.markdown(unfinished),
        methods.markdown(unfinished),
        latex.paper_table(tables.effects_table(unfinished)),
        lines(unfinished)[0],
    ):
        assert said in text
    assert "ot finished" not in page.markdown(case(tmp_path / "done", GRID, seeds=range(6)))


def test_lost_runs_are_listed_with_their_reasons(tmp_path):
    status = lambda levels, seed: "failed" if (levels["norm"], seed) == ("rms", 2) else "done"  # noqa: E731
    lost = tables.lost_table(case(tmp_path, {"norm": ["ln", "rms"]}, status=status).study).rows
    assert lost[["configuration", "seed", "status"]].to_numpy().tolist() == [["RMSNorm", "2", "failed"]]
    assert "shapes do not fit" in lost["error"].item()


def test_columns_of_numbers_are_aligned_on_the_right():
    rows = pandas.DataFrame({"a": ["ln", "rms"], "b": ["−0.05", "1,234"], "c": ["< 0.001", "–"]})
    assert tables.numeric_columns(rows) == [False, True, True]
    assert "| --- | ---: | ---: |" in tables.markdown_rows(rows)


def test_no_value_is_markup():
    hostile = "<script>x</script> *b* _i_ `c` [l](javascript:x) ![p](u)"
    shown = tables.inline(hostile)
    assert re.sub(r"\\(.)", r"\1", shown) == hostile
    bare = re.sub(r"\\.", "", shown)
    assert not re.search(r"<[a-z/]|\*|`|\]\(|!\[|\b_|_\b", bare), bare
    table = tables.markdown_rows(pandas.DataFrame({"a|b": [hostile, "x|y"]}))
    assert len({re.sub(r"\\\|", "", line).count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("text", "paragraph"),
    [("# no head", r"\# no head"), ("1. no list", r"1\. no list"), ("+ swiglu", r"\+ swiglu"), ("a < 1", "a < 1")],
)
def test_the_start_of_a_paragraph_is_no_markup(text, paragraph):
    assert tables.paragraph(text) == paragraph


def test_no_text_is_a_formula_and_every_number_stays_one(tmp_path):
    texts = ["=1+1", "+ swiglu", "-x", "@SUM(A1)", "\t=1", "'=1", "ln", "", "−.05", "1=2"]
    numbers = [-1 / 3, 3, -2e-5, 0, 1, 2, 3, 4, 5, 6]
    frame = pandas.DataFrame({"=head": texts, "number": numbers})
    read = pandas.read_csv(tables.write_csv(frame, tmp_path / "x.csv"), keep_default_na=False)
    assert list(read) == ["'=head", "number"]
    assert read["number"].tolist() == numbers
    assert not read["'=head"].str.match(r"[=+\-@\t]").any()
    assert [unquoted(text) for text in read["'=head"]] == texts
    assert [quoted(text) for text in ("-1.5", "+2", "1e-5", "-.5")] == ["-1.5", "+2", "1e-5", "-.5"]
