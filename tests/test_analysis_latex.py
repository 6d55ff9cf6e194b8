"""LaTeX: every character that means something to TeX is escaped, tables have as many columns as they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fabricate import fabricate

from ablate.results import load_study
from analysis import latex, sheet, tables
from analysis.case import case_of
from analysis.sheet import Sheet

SPECIAL = r"\ _ % & # $ { } ~ ^ < > | ' ` " + '"'
# What TeX understands in our texts: named commands, escaped characters, formulas of one command, plain characters.
COMMAND = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|textasciigrave"
    r"|textquotesingle|ldots)\{\}|\\[_%&#${}]|\$(?:-|\^2|\\[a-zA-Z]+)\$|\{\}|~|[^\\{}$&#^_%~]"
)


def read(text: str) -> str:
    """What TeX prints of an escaped text; fails on anything that it would take for a command."""
    shown = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<"}
    shown |= {r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textasciigrave{}": "`"}
    shown |= {r"\textquotesingle{}": "'", r"\ldots{}": "…", "{}": "", "~": "\u00a0"}
    shown |= {command: character for character, command in latex.SYMBOLS.items() if "$" in command}
    found, at = "", 0
    while at < len(text):
        match = COMMAND.match(text, at)
        assert match, f"TeX would choke on {text[at:]!r}"
        part = match[0]
        found += shown.get(part, part[1:] if len(part) == 2 and part[0] == "\\" else part)
        at = match.end()
    return found


def cells(row: str) -> list[str]:
    """The cells of a row of a tabular."""
    assert row.endswith(r" \\")
    return re.split(r"(?<!\\)&", row.removesuffix(r" \\"))


def tabular(text: str) -> list[list[str]]:
    """The rows of the one tabular in a text, all as wide as its columns; fails on unbalanced braces."""
    bare = re.sub(r"\\[{}\\]", "", re.sub(r"\\\\", "", text))
    depth = 0
    for character in re.sub(r"(?m)(?<!\\)%.*$", "", bare):
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(r"\begin{tabular}"))
    columns = re.fullmatch(r"\\begin\{tabular\}\{@\{\}([lrp]+)@\{\}\}", lines[begin].replace(r"{.3\linewidth}", ""))
    end = next(i for i, line in enumerate(lines) if line.startswith(r"\end{tabular}"))
    rows = [cells(line) for line in lines[begin + 1 : end] if not line.endswith("rule")]
    assert columns and {len(row) for row in rows} == {len(columns[1])}
    return rows


def test_every_special_character_comes_out_as_it_went_in() -> None:
    for text in (SPECIAL, SPECIAL[::-1], r"\input{/etc/passwd}", "100 % & more_of $x^2$", "a--b---c", "{}" * 3, "~~"):
        assert read(latex.escape(text)) == text
    for text in ("−.053 ± .004 × 2", "α = β² ≤ ε", "naïve Delétang", "≥ … ⊙ √"):
        assert read(latex.escape(text)) == text


def test_nothing_breaks_a_line_or_a_comment() -> None:
    assert latex.escape("a\nb\r\n\x00c\td") == "a b c d"
    assert "--" not in latex.escape("--config-dir") and latex.escape("1–2") == "1--2"


def test_a_cell_cannot_be_taken_for_the_argument_of_the_row_above() -> None:
    text = latex.table(Sheet("x", "T", ["a", "b"], [["[2em]", "1"], ["*", "2"]], []))
    rows = tabular(text)
    assert rows[1][0] == "{[2em]} " and rows[2][0] == "{*} "


def test_a_hostile_sheet_is_a_table_all_the_same() -> None:
    hostile = [SPECIAL, r"\end{tabular}\immediate\write18{rm}", "a & b \\\\ c", "% gone"]
    found = Sheet("x", "50 % & more", hostile, [hostile, hostile[::-1]], ["a note_of #1"])
    rows = tabular(latex.table(found))
    assert [[read(cell.strip()) for cell in row] for row in rows] == [hostile, hostile, hostile[::-1]]
    assert r"\caption{50 \% \& more}" in latex.table(found) and r"a note\_of \#1" in latex.table(found)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"design": "cumulative", "seeds": range(5)},
        {"status": lambda levels, seed: "diverged" if levels["ffn"] == "a_b&c" and seed else "done"},
        {"seeds": [0]},
    ],
)
def test_the_tables_of_studies_parse(tmp_path: Path, options: dict[str, Any]) -> None:
    factors = {"norm": ["ln", "50%{x}"], "ffn": ["mlp", "a_b&c"]}
    found = case_of(tmp_path, load_study(tmp_path, fabricate(tmp_path, factors, **options)))
    written = tables.sheets(found)
    assert {each.name for each in written} >= {"effects", "particulars", "cells"}
    for each in written:
        rows = tabular(latex.table(each))
        expected = [[text.replace("–", "--") for text in row] for row in [each.head, *each.rows]]
        assert [[read(cell.strip()) for cell in row] for row in rows] == expected


def test_columns_of_numbers_are_flush_right() -> None:
    found = Sheet("x", "T", ["a", "b", "c"], [["ln", "−.05", "< .001"], ["rms", "1,234", "–"]], [])
    assert found.numeric == [False, True, True]
    assert r"\begin{tabular}{@{}lrr@{}}" in latex.table(found) and "| --- | ---: | ---: |" in sheet.markdown(found)


def test_columns_of_sentences_are_broken_into_lines() -> None:
    text = latex.table(
        Sheet("x", "T", ["a", "b"], [["ln", "a sentence that is a good deal longer than any label is"]], [])
    )
    assert r"\begin{tabular}{@{}lp{.3\linewidth}@{}}" in text and tabular(text)


def test_markdown_shows_texts_as_they_are() -> None:
    hostile = "<script>x</script> *b* _i_ `c` [l](javascript:x) ![p](u)"
    shown = sheet.inline(hostile)
    assert re.sub(r"\\(.)", r"\1", shown) == hostile
    bare = re.sub(r"\\.", "", shown)
    assert not re.search(r"<[a-z/]|\*|`|\]\(|!\[|\b_|_\b", bare), bare
    assert sheet.paragraph("# no head") == r"\# no head" and sheet.paragraph("1. no list") == r"1\. no list"
    assert sheet.paragraph("+ swiglu") == r"\+ swiglu" and sheet.inline("+ swiglu") == "+ swiglu"
    assert sheet.inline("test/loss_batch < .001") == "test/loss_batch < .001"
