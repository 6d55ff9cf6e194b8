"""LaTeX: every character that means something to TeX is escaped, tables have as many columns as they say."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import case
from claimed_studies import entry
from fake_studies import fabricate

from ablate import formatting
from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.writing import latex, latex_macros, sheet, tables
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


def test_texts_are_set_as_they_are() -> None:
    plain = ["d'a ''b'' ,,c", "l'été", r"\input{/etc/passwd}", "100 % & more_of $x^2$", "a--b---c", "{}" * 3, "~~"]
    for text in (SPECIAL, SPECIAL[::-1], *plain):
        assert read(latex.escape(text)) == text
    for text in ("−0.053 ± 0.004 × 2", "α = β² ≤ ε", "naïve Delétang", "≥ … ⊙ √"):
        assert read(latex.escape(text)) == text
    assert latex.escape("a\nb\r\n\x00c\td") == "a b c d"
    assert "--" not in latex.escape("--config-dir") and latex.escape("1–2") == "1--2"
    assert latex.escape("ﬁn naïve Škoda €") == "fin naïve Škoda €" and latex.escape("e\u0301") == "é"
    assert latex.escape("中x☃") == "[U+4E2D]x[U+2603]" and latex.escape("a\u200bb") == "a[U+200B]b"
    assert latex.escape("10⁻³ h₂ μ") == "10$^-$$^3$ h$_2$ $\\mu$"
    assert "allowbreak" not in latex.escape("x" * 23) and read(latex.escape("_" * 99)) == "_" * 99
    assert max(map(len, latex.escape("x" * 99).split(r"\allowbreak{}"))) == 6


def test_hostile_cells_make_a_table_all_the_same() -> None:
    text = latex.table(Sheet("x", "T", ["a", "b"], [["[2em]", "1"], ["*", "2"]], []))
    assert "\n{[2em]} & 1" in text and "\n{*} & 2" in text and tabular(text)
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
    found = case_of(load_study(tmp_path, fabricate(tmp_path, factors, every=400, **options)), tmp_path)
    written = tables.sheets(found)
    assert {each.name for each in written} >= {"effects", "particulars", "cells"}
    for each in written:
        rows = tabular(latex.table(each))
        expected = [[text.replace("–", "--") for text in row] for row in [each.head, *each.rows]]
        assert [list(map(read, row)) for row in rows] == expected


def test_columns_and_heads_are_as_wide_as_what_they_hold() -> None:
    found = Sheet("x", "T", ["a", "b", "c"], [["ln", "−0.05", "< 0.001"], ["rms", "1,234", "–"]], [])
    assert found.numeric == [False, True, True]
    assert r"\begin{tabular}{@{}lrr@{}}" in latex.table(found) and "| --- | ---: | ---: |" in sheet.markdown(found)
    text = latex.table(
        Sheet("x", "T", ["a", "b"], [["ln", "a sentence that is a good deal longer than any label is"]], [])
    )
    assert r"\begin{tabular}{@{}l>{\raggedright\arraybackslash}p{15em}@{}}" in text and tabular(text)
    text = latex.table(Sheet("x", "T", ["a", "p (ten; exactly: eleven)"], [["ln", "0.001"]], []))
    assert r"\begin{tabular}[b]{@{}r@{}}p (ten; \\ exactly: \\ eleven)\end{tabular} \\" in text
    assert tabular(text)[0] == ["a", "p (ten; exactly: eleven)"]
    narrow = latex.table(Sheet("x", "T", ["a", "b"], [["ln", "1"]], []))
    wide = latex.table(Sheet("x", "T", list("abcdefgh"), [["12345678"] * 8], []))
    assert r"\begin{table}" in narrow and r"\begin{table*}" in wide and r"\end{table*}" in wide


def test_a_table_longer_than_a_page_comes_in_parts_and_what_is_too_much_is_cut() -> None:
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


COMMAND_MACROS = re.compile(r"\\newcommand\{\\([A-Za-z]+)\}\{(.*)\}")


def commands(found: Case) -> dict[str, str]:
    """The commands of the page by name; fails on a line that is neither one nor a comment, and on a name used twice."""
    lines = [line for line in latex_macros.page(found).splitlines() if line and not line.startswith("%")]
    read = [COMMAND_MACROS.fullmatch(line) for line in lines]
    assert all(read), [line for line, match in zip(lines, read, strict=True) if not match]
    assert len({match[1] for match in read if match}) == len(read)
    return {match[1]: unboxed(match[2]) for match in read if match}


def unboxed(text: str) -> str:
    return re.sub(r"^\\mbox\{(.*)\}$", r"\1", text)


STUDIES: list[dict[str, Any]] = [
    {"seeds": range(6)},
    {"seeds": [0]},
    {"design": "cumulative", "seeds": range(5)},
    {"factors": {"norm": ["ln", "rms"], "optim.lr": [0.001, 0.003, 1e-5]}, "seeds": range(3)},
    {"factors": {"model.layers+model.dim": ["2+64", "-4+128"], "ffn": ["mlp", "relu2"]}, "design": "one_at_a_time"},
    {"status": lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed else "done", "seeds": range(4)},
]  # fmt: skip


@pytest.mark.parametrize("options", STUDIES)
def test_names_are_valid_and_every_effect_and_cell_has_its_numbers(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    read = commands(found)
    assert all(re.fullmatch("abl[A-Z][A-Za-z]*", name) for name in read)
    deltas = [name for name in read if name.endswith("Delta")]
    means = [name for name in read if name.startswith("ablCell") and name.endswith("Mean")]
    assert len(deltas) == len(found.effects) and len(means) == len(found.cells)
    for name in deltas:
        stem = name.removesuffix("Delta")
        assert {f"{stem}{field}" for field in ("Low", "High", "P", "N", "Sd", "Verdict", "Lost")} <= read.keys()


def test_steps_beyond_what_was_measured_have_no_number_and_values_are_set_alike_in_text_and_formulas() -> None:
    worths = {0.09: "+9 %", -0.1: "−10 %", 0.41: "+41 %", -1.0: "not bounded", math.inf: "not bounded", math.nan: "–"}
    assert {worth: latex_macros.worth(worth) for worth in worths} == worths
    set_as = {"−1.6 %": r"\ensuremath{-}1.6 \%", "< 0.001": r"\ensuremath{<} 0.001", "undecided": r"\mbox{undecided}"}
    set_as |= {"–": r"\mbox{--}", "3e-3": r"\mbox{3e-3}", "1,234": "1,234"}
    assert {text: latex_macros.either_mode(text) for text in set_as} == set_as


def test_what_is_withheld_has_no_number(tmp_path: Path) -> None:
    read = commands(case(tmp_path, **STUDIES[-1]))
    assert {read[f"ablFfnSwiglu{field}"] for field in ("Delta", "Low", "High", "P", "Sd")} == {"--"}
    assert read["ablFfnSwigluVerdict"] == "withheld" and read["ablFfnSwigluLost"] == "6"


def test_names_that_would_be_equal_are_told_apart_and_a_worth_without_bounds_is_none(tmp_path: Path) -> None:
    factors = {"ffn": ["mlp", "a-b", "a_b", "a b"]}
    found = case(tmp_path, factors)
    names = re.findall(r"newcommand\{\\(\w+)", latex_macros.page(found))
    deltas = [name for name in names if name.endswith("Delta")]
    assert deltas == ["ablFfnABDelta", "ablFfnABBDelta", "ablFfnABCDelta"] and len(set(names)) == len(names)
    found = case(tmp_path, {"ffn": ["mlp", "swiglu"]})
    wild = found.effects.assign(worth=0.1, worth_low=-1.0, worth_high=float("inf"))
    assert commands(found._replace(effects=wild))["ablFfnSwigluWorthHigh"] == "not bounded"


def test_labels_are_spelled_in_letters() -> None:
    names = {"ln_std": "LnStd", "relu2": "ReluTwo", "optim.lr=0.001": "OptimLrZeroPointZeroZeroOne", "∂∞": ""}
    names |= {"1e-05": "OneEMinusZeroFive", "-4+128": "MinusFourOneTwoEight", "Delétang": "Deletang"}
    assert {text: latex_macros.spelled(text) for text in names} == names


@pytest.mark.parametrize("end", ["\n", "\x0b", "\u2028"], ids=ascii)
def test_labels_cannot_leave_their_comment(end: str, tmp_path: Path) -> None:
    found = case(tmp_path, {"ffn": ["mlp", f"x{end}\\input{{y}}"]})
    assert "ablFfnXInputYDelta" in commands(found)
    assert not any(line.startswith("\\input") for line in latex_macros.page(found).splitlines())


def test_p_and_digits_are_those_of_the_tables(tmp_path: Path) -> None:
    """Corrected p, and the digits of half of an interval: four of 0.0075, where the whole, 0.015, takes three."""
    sides = {name: {name: [{"norm": "rms"}, {"norm": "ln"}]} for name in ("less", "greater")}
    claims = {name: entry(claim) for name, claim in sides.items()}
    found = case(tmp_path, seeds=range(5), claims=claims, effects={"value": "all", "registered": True})
    read = commands(found)
    effects, claims = found.effects, found.claims
    corrected = [*effects["p_bonferroni"], *claims["p_holm"]]
    stems = [name.removesuffix("Delta") for name in read if name.endswith("Delta")]
    for stem, p in zip(stems, corrected, strict=True):
        assert read[f"{stem}P"] == unboxed(latex_macros.either_mode(formatting.p_text(p)))
    for table, name in ((effects, "p_bonferroni"), (claims, "p_holm")):
        seen = table[table["family"] & (table[name] > 1.5 * table["p"]) & (table["p"] > 0.01)]
        assert len(seen), "or raw p would do"
    narrow = found.effects.assign(mean=0.0115, low=0.004, high=0.019, sd=0.01, verdict="undecided")
    (row,) = narrow.iloc[[0]].itertuples()
    texts = latex_macros.difference(row)
    assert [texts[name] for name in ("Delta", "Low", "High")] == ["+0.0115", "+0.0040", "+0.0190"]
