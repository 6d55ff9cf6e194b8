"""LaTeX output: text with every special character escaped, tables with booktabs, figures."""

import functools
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas

from analysis.writing.sheet import Sheet

# Characters with a meaning in TeX, and those without a letter in pdfTeX.
TABLE = (Path(__file__).parents[1] / "templates" / "characters.txt").read_text(encoding="utf-8")
SYMBOLS = dict(line.split(" ", 1) for line in TABLE.splitlines())
CHARACTERS = str.maketrans(SYMBOLS | {"\0": "{}", "\1": r"\allowbreak{}"})
# Other characters that pdfTeX has, with T1 fonts and textcomp.
LETTERS = {*map(chr, range(0xA1, 0x180)), *"ȘșȚț€™†‡•‰„‚‹›‘’“”"} - {*"ĦħĸĿŀŉŦŧſ\u00ad", *SYMBOLS}
WORD = 24  # characters from which on a word may be broken
PIECE = 6  # characters between possible breaks
LONG = 48  # characters from which on a text is wrapped
LINE = 28  # characters per wrapped line
MOST = 240  # characters of a table cell; NAME.md has the full text
NARROW = 64  # characters per row of a table that fits into one of two columns
LINES = 40  # lines of rows per page
NOTES = 12  # notes below a table, each cut like a cell
FLOATS = 12  # floats before a \clearpage; TeX fails with more than 52 pending ones


def escape(text: str) -> str:
    """Text escaped for LaTeX, without ligatures of signs, and with possible line breaks in very long words."""
    text = re.sub(r"[\x00-\x1f\x7f\s]+", " ", unicodedata.normalize("NFC", text))
    breaks = re.compile(rf"(.{{{PIECE}}})(?=.)")
    text = re.sub(rf"\S{{{WORD},}}", lambda word: breaks.sub("\\1\1", word[0]), "".join(map(_written, text)))
    return re.sub(r"([-,'])(?=\1)", "\\1\0", text).translate(CHARACTERS)


@functools.cache
def _written(character: str) -> str:
    """A character, its parts if it has no letter (the ligature fi as f and i), or else its code."""
    parts = character if _settable(character) else unicodedata.normalize("NFKD", character)
    return parts if all(map(_settable, parts)) else f"[U+{ord(character):04X}]"


def _settable(character: str) -> bool:
    return character.isascii() or character in LETTERS or character in SYMBOLS


def table(sheet: Sheet) -> str:
    """A sheet as a booktabs table to \\input, no wider than its column, with its notes below.

    A table with too many rows for a page is split into parts with the same number.
    """
    parts = list(_parts(sheet.rows))
    lines = [r"% needs \usepackage{array,booktabs,graphicx,textcomp} and \usepackage[T1]{fontenc}"]
    for number, rows in enumerate(parts, 1):
        lines += [r"\clearpage"] * (number > 1 and number % FLOATS == 1)
        lines += _part(sheet, rows, number, len(parts))
    return "\n".join(lines) + "\n"


def figure(name: str, caption: str) -> str:
    """The figure NAME.pdf as a float with its caption."""
    lines = [r"\begin{figure}", r"\centering", rf"\includegraphics[width=\linewidth]{{{name}.pdf}}"]
    return "\n".join([*lines, rf"\caption{{{escape(caption)}}}", rf"\label{{fig:{name}}}", r"\end{figure}", ""])


def _parts(rows: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    """The rows, split into pages."""
    part: list[list[str]] = []
    height = 0
    wrapped = [max(map(len, texts)) > LONG for texts in zip(*rows, strict=True)]
    for row in rows:
        texts = ["".join(map(_written, _cut(text))) for text, long in zip(row, wrapped, strict=True) if long]
        lines = max([1, *(len(textwrap.wrap(text, LINE)) for text in texts)])
        if part and height + lines > LINES:
            yield part
            part, height = [], 0
        part, height = [*part, row], height + lines
    yield part


def _part(sheet: Sheet, rows: list[list[str]], number: int, count: int) -> list[str]:
    widths = [max(map(len, texts)) for texts in zip(*sheet.rows, strict=True)] or [0] * len(sheet.head)
    last, later, more = number == count, number > 1, len(sheet.notes) - NOTES
    notes = [*map(_cut, sheet.notes[:NOTES]), *[f"{more} more in {sheet.name}.md"] * (more > 0)]
    star = "*" * (sum(min(max(width, 10), LINE) + 2 for width in widths) > NARROW)  # no effect in one-column documents
    lines = ["l" if width <= LONG else r">{\raggedright\arraybackslash}p{15em}" for width in widths]
    columns = "".join("r" if right else line for right, line in zip(sheet.numeric, lines, strict=True))
    heads = list(map(_head, sheet.head, sheet.numeric, widths))
    styler = pandas.DataFrame(rows, columns=range(len(heads))).style.hide(axis="index").format(_cell)
    styler = styler.format_index(heads.__getitem__, axis="columns")
    return [
        rf"\begin{{table{star}}}",
        *[r"\addtocounter{table}{-1}"] * later,
        r"\centering\small",
        rf"\caption{{{escape(_cut(sheet.title) + f' ({number} of {count})' * (count > 1))}}}",
        rf"\label{{tab:{sheet.name}{f'-{number}' * later}}}",
        r"\medskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        styler.to_latex(column_format=f"@{{}}{columns}@{{}}", hrules=True).rstrip() + "}",
        *[rf"\par\smallskip{{\footnotesize\raggedright {escape(note)}\par}}" for note in notes if last],
        rf"\end{{table{star}}}",
    ]


def _head(text: str, right: bool, width: int) -> str:
    """A column heading, wrapped to the width of its column."""
    lines = textwrap.wrap(_cut(text), min(max(width, 10), LINE), break_long_words=False, break_on_hyphens=False)
    if len(lines) < 2:
        return _cell(text)
    stacked = r" \\ ".join(map(_cell, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}{'r' if right else 'l'}@{{}}}}{stacked}\end{{tabular}}"


def _cell(text: str) -> str:
    """An escaped text, in braces if it starts with [ or *, which TeX would read as an argument of \\\\."""
    escaped = escape(_cut(text))
    return f"{{{escaped}}}" if escaped.startswith("[") or escaped.startswith("*") else escaped


def _cut(text: str) -> str:
    written = "".join(map(_written, text))
    return text if len(written) <= MOST else f"{written[: MOST - 1].rstrip()}…"
