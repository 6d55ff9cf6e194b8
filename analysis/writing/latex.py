"""LaTeX output: text with every special character escaped, tables with booktabs, figures as floats."""

import re
import unicodedata
from pathlib import Path

import pandas

from analysis.writing.tables import Table, numeric_columns

UNBROKEN = "\u00a0"  # a space at which no line ends
# Characters with a meaning in TeX, and those without a letter in pdfTeX, each with its command.
CHARACTERS = (Path(__file__).parents[1] / "templates" / "characters.txt").read_text(encoding="utf-8")
COMMANDS = dict(line.split(" ", 1) for line in CHARACTERS.splitlines()) | {"\0": "{}", UNBROKEN: "~"}
# Other characters that pdfTeX has, with T1 fonts and textcomp.
LETTERS = {*map(chr, range(0xA1, 0x180)), *"ȘșȚț€™†‡•‰„‚‹›‘’“”"} - {*"ĦħĸĿŀŉŦŧſ\u00ad"}
WRAPPED = 24  # characters from which on a column is wrapped
WRAPPING = r">{\raggedright\arraybackslash}X"  # a column that shares the width that others leave
LONG_TEXT = 30  # characters from which on a column of a paper's table is one; intervals are shorter
PACKAGES = r"\usepackage[T1]{fontenc}, {array,booktabs,longtable,pdflscape,tabularx,textcomp}"


def escape(text: str) -> str:
    """Text escaped for LaTeX, without ligatures of signs, and without line breaks before % and around ±."""
    text = re.sub(r"[\x00-\x1f\x7f\s]+", " ", unicodedata.normalize("NFC", text))
    text = re.sub(r"(?<=\d) (?=[%±])|(?<=±) (?=\d)", UNBROKEN, text)
    return "".join(map(character, re.sub(r"([-,'])(?=\1)", "\\1\0", text)))


def character(sign: str) -> str:
    """A character as a command, as itself, as its parts (the ligature fi as f and i), or else as its code."""
    if sign in COMMANDS:
        return COMMANDS[sign]
    if sign.isascii() or sign in LETTERS:
        return sign
    parts = unicodedata.normalize("NFKD", sign)
    if all(part.isascii() or part in COMMANDS for part in parts):
        return "".join(map(character, parts))
    return f"[U+{ord(sign):04X}]"


def cell(text: str) -> str:
    """An escaped text that may be broken after _, in braces if it starts with [ or *, which TeX would read as an
    argument of \\\\."""
    escaped = escape(text).replace(r"\_", r"\_\allowbreak{}")
    return f"{{{escaped}}}" if escaped[:1] in ("[", "*") else escaped


def rows_of(rows: pandas.DataFrame) -> list[str]:
    """The lines of a tabular, from the rule on top to that at the bottom."""
    lines = [" & ".join(cell(str(name)) for name in rows.columns)]
    lines += [" & ".join(map(cell, row)) for row in rows.to_numpy()]
    head, *body = [rf"{line} \\" for line in lines]
    return [r"\toprule", head, r"\midrule", *body, r"\bottomrule"]


def paper_table(table: Table) -> str:
    """The columns that a paper shows, in \\small and as wide as the text: also of two columns."""
    rows = table.rows if table.paper is None else table.paper
    columns = [WRAPPING]
    for name, is_numeric in [*zip(rows.columns, numeric_columns(rows), strict=True)][1:]:
        if rows[name].str.len().max() > LONG_TEXT:
            columns.append(WRAPPING)
        else:
            columns.append("r" if is_numeric else "l")
    lines = [
        f"% needs {PACKAGES}",
        r"\begin{table*}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{escape(caption(table.title, table.caption))}}}",
        rf"\label{{tab:{table.name}}}",
        r"\medskip",
        rf"\begin{{tabularx}}{{\textwidth}}{{@{{}}{''.join(columns)}@{{}}}}",
        *rows_of(rows),
        r"\end{tabularx}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def caption(title: str, sentences: list[str]) -> str:
    """A title with the sentences that a paper needs below or above it."""
    return f"{title.rstrip('.')}. {' '.join(sentences)}" if sentences else title


def full_table(table: Table) -> str:
    """All columns, for an appendix in one column: over pages, and across each page."""
    rows = table.rows
    head, *body = rows_of(rows)
    widths = []
    for name in rows:
        words = [word for text in (name, *rows[name]) for word in text.split()]
        widths.append(2 + max(max(map(len, words)), min(WRAPPED, rows[name].str.len().max())))
    share = (1 - 0.01 * len(widths)) / sum(widths)  # of the line, without the space between columns
    columns = [rf">{{\raggedright\arraybackslash}}p{{{share * width:.3f}\linewidth}}" for width in widths]
    lines = [
        f"% needs {PACKAGES}, and \\onecolumn before it",
        r"\begin{landscape}",
        r"\scriptsize\setlength{\tabcolsep}{.005\linewidth}",
        rf"\begin{{longtable}}{{@{{}}{''.join(columns)}@{{}}}}",
        rf"\caption{{{escape(table.title)}}}\label{{tab:{table.name}-full}}\\",
        head,
        *body[:2],
        r"\endhead",
        *body[2:],
        r"\end{longtable}",
        *[rf"\noindent {escape(note)}\par" for note in table.notes],
        r"\end{landscape}",
    ]
    return "\n".join(lines) + "\n"


def figure(name: str, caption: str) -> str:
    """The figure NAME.pdf as a float with its caption."""
    lines = [r"\begin{figure}", r"\centering", rf"\includegraphics[width=\linewidth]{{{name}.pdf}}"]
    return "\n".join([*lines, rf"\caption{{{escape(caption)}}}", rf"\label{{fig:{name}}}", r"\end{figure}", ""])
