"""LaTeX: every character that means something to TeX is escaped, tables have as many columns as they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_studies import fabricate

from ablate.results.study import load_study
from analysis.case import case_of
from analysis.writing import latex, sheet, tables
from analysis.writing.sections import captioned
from analysis.writing.sheet import Sheet

SPECIAL = r"\ _ % & # $ { } ~ ^ < > | ' ` " + '"'
# What TeX understands in our texts: named commands, escaped characters, formulas of one command, plain characters.
COMMAND = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textquotedbl|textasciigrave"
    r"|ldots|allowbreak)\{\}|\\[_%&#${}]|\$(?:-|[_^][\d-]|\\[a-zA-Z]+)\$|\{\}|[^\\{}$&#^_%~]"
)


def read(text: str) -> str:
    """What TeX prints of an escaped text; fails on anything that it would take for a command."""
    shown = {r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<"}
    shown |= {r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textasciigrave{}": "`"}
    shown |= {r"\ldots{}": "…", r"\allowbreak{}": "", "{}": ""}
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
    """The cells of a row of a tabular, those of several lines as one."""
    assert row.endswith(r" \\")
    stacked = re.compile(r"\\begin\{tabular\}\[b\]\{@\{\}[lr]@\{\}\}(.*?)\\end\{tabular\}")
    row = stacked.sub(lambda found: " ".join(map(bare, found[1].split(r" \\ "))), row.removesuffix(r" \\"))
    return [bare(cell) for cell in re.split(r"(?<!\\)&", row)]


def bare(cell: str) -> str:
    """A cell without the braces that keep its bracket from the row above."""
    return re.sub(r"^\{([\[*].*)\}$", r"\1", cell.strip())


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
    plain = lines[begin].replace(r">{\raggedright\arraybackslash}p{15em}", "p")
    columns = re.fullmatch(r"\\begin\{tabular\}\{@\{\}([lrp]+)@\{\}\}", plain)
    end = next(i for i, line in enumerate(lines) if line.startswith(r"\end{tabular}"))
    rows = [cells(line) for line in lines[begin + 1 : end] if not line.endswith("rule")]
    assert columns and {len(row) for row in rows} == {len(columns[1])}
    return rows


def test_every_special_character_comes_out_as_it_went_in() -> None:
    plain = ["d'a ''b'' ,,c", "l'été", r"\input{/etc/passwd}", "100 % & more_of $x^2$", "a--b---c", "{}" * 3, "~~"]
    for text in (SPECIAL, SPECIAL[::-1], *plain):
        assert read(latex.escape(text)) == text
    for text in ("−0.053 ± 0.004 × 2", "α = β² ≤ ε", "naïve Delétang", "≥ … ⊙ √"):
        assert read(latex.escape(text)) == text


def test_nothing_breaks_a_line_or_a_comment() -> None:
    assert latex.escape("a\nb\r\n\x00c\td") == "a b c d"
    assert "--" not in latex.escape("--config-dir") and latex.escape("1–2") == "1--2"


def test_a_cell_cannot_be_taken_for_the_argument_of_the_row_above() -> None:
    text = latex.table(Sheet("x", "T", ["a", "b"], [["[2em]", "1"], ["*", "2"]], []))
    assert "\n{[2em]} & 1" in text and "\n{*} & 2" in text and tabular(text)


def test_what_has_no_letter_is_its_parts_or_its_code() -> None:
    assert latex.escape("ﬁn naïve Škoda €") == "fin naïve Škoda €" and latex.escape("e\u0301") == "é"
    assert latex.escape("中x☃") == "[U+4E2D]x[U+2603]" and latex.escape("a\u200bb") == "a[U+200B]b"
    assert latex.escape("10⁻³ h₂ μ") == "10$^-$$^3$ h$_2$ $\\mu$"


def test_endless_words_have_places_to_break() -> None:
    assert "allowbreak" not in latex.escape("x" * 23) and read(latex.escape("_" * 99)) == "_" * 99
    assert max(map(len, latex.escape("x" * 99).split(r"\allowbreak{}"))) == 6


def test_a_hostile_sheet_is_a_table_all_the_same() -> None:
    hostile = [SPECIAL, r"\end{tabular}\immediate\write18{rm}", "a & b \\\\ c", "% gone"]
    found = Sheet("x", "50 % & more", hostile, [hostile, hostile[::-1]], ["a note_of #1"])
    rows = tabular(latex.table(found))
    assert [list(map(read, row)) for row in rows] == [hostile, hostile, hostile[::-1]]
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
    found = case_of(load_study(tmp_path, fabricate(tmp_path, factors, **options)), tmp_path)
    written = tables.sheets(found)
    assert {each.name for each in written} >= {"effects", "particulars", "cells"}
    for each in written:
        rows = tabular(latex.table(each))
        expected = [[text.replace("–", "--") for text in row] for row in [each.head, *each.rows]]
        assert [list(map(read, row)) for row in rows] == expected


def test_columns_of_numbers_are_flush_right() -> None:
    found = Sheet("x", "T", ["a", "b", "c"], [["ln", "−0.05", "< 0.001"], ["rms", "1,234", "–"]], [])
    assert found.numeric == [False, True, True]
    assert r"\begin{tabular}{@{}lrr@{}}" in latex.table(found) and "| --- | ---: | ---: |" in sheet.markdown(found)


def test_columns_of_sentences_are_broken_into_lines() -> None:
    text = latex.table(
        Sheet("x", "T", ["a", "b"], [["ln", "a sentence that is a good deal longer than any label is"]], [])
    )
    assert r"\begin{tabular}{@{}l>{\raggedright\arraybackslash}p{15em}@{}}" in text and tabular(text)


def test_a_head_is_no_wider_than_its_column() -> None:
    text = latex.table(Sheet("x", "T", ["a", "p (Holm; exploratory: BH)"], [["ln", "0.001"]], []))
    assert r"\begin{tabular}[b]{@{}r@{}}p (Holm; \\ exploratory: \\ BH)\end{tabular} \\" in text
    assert tabular(text)[0] == ["a", "p (Holm; exploratory: BH)"]


def test_a_table_of_more_rows_than_a_page_takes_comes_in_parts_under_one_number() -> None:
    rows = [[f"cell {number}", "1"] for number in range(600)]
    text = latex.table(Sheet("x", "T", ["cell", "n"], rows, ["a note"]))
    parts = text.split(r"\begin{table}")[1:]
    assert [row for part in parts for row in tabular(part)[1:]] == rows and len(parts) == 15
    assert max(len(tabular(part)) for part in parts) <= 41 and all(tabular(part)[0] == ["cell", "n"] for part in parts)
    assert [part.count(r"\addtocounter{table}{-1}") for part in parts] == [0] + [1] * 14
    assert r"\label{tab:x}" in parts[0] and r"\label{tab:x-15}" in parts[14] and "T (2 of 15)" in parts[1]
    assert [("a note" in part) for part in parts] == [False] * 14 + [True] and text.count(r"\clearpage") == 1
    tall = latex.table(Sheet("x", "T", ["cell"], [["a long reason, " * 16] for _ in range(20)], []))
    assert tall.count(r"\begin{table}") == 5


def test_wide_tables_span_both_columns_of_a_paper() -> None:
    narrow = latex.table(Sheet("x", "T", ["a", "b"], [["ln", "1"]], []))
    wide = latex.table(Sheet("x", "T", list("abcdefgh"), [["12345678"] * 8], []))
    assert r"\begin{table}" in narrow and r"\begin{table*}" in wide and r"\end{table*}" in wide


def test_what_is_too_much_for_a_page_is_cut_and_said() -> None:
    text = latex.table(Sheet("x", "T", ["a"], [["y " * 500]], [f"note {number}." for number in range(20)]))
    assert read(tabular(text)[1][0]).endswith("…") and len(read(tabular(text)[1][0])) <= latex.MOST
    assert "note 11." in text and "note 12." not in text and "8 more in x.md" in text


def test_markdown_shows_texts_as_they_are() -> None:
    hostile = "<script>x</script> *b* _i_ `c` [l](javascript:x) ![p](u)"
    shown = sheet.inline(hostile)
    assert re.sub(r"\\(.)", r"\1", shown) == hostile
    bare = re.sub(r"\\.", "", shown)
    assert not re.search(r"<[a-z/]|\*|`|\]\(|!\[|\b_|_\b", bare), bare
    assert sheet.paragraph("# no head") == r"\# no head" and sheet.paragraph("1. no list") == r"1\. no list"
    assert sheet.paragraph("+ swiglu") == r"\+ swiglu" and sheet.inline("+ swiglu") == "+ swiglu"
    assert sheet.inline("test/loss_batch < 0.001") == "test/loss_batch < 0.001"


def test_a_figure_is_a_float_whose_caption_is_one_escaped_sentence() -> None:
    text = latex.figure("effects", captioned("every effect", ["95 % intervals.", "", "n_1"]))
    assert r"\caption{Every effect: 95 \% intervals; n\_1.}" in text
    assert r"\includegraphics[width=\linewidth]{effects.pdf}" in text and r"\label{fig:effects}" in text
