"""LaTeX from texts: every character that TeX would read as a command is escaped, tables are booktabs'."""

from __future__ import annotations

import re
from collections.abc import Iterable

from analysis.sheet import Sheet

SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    **{character: f"\\{character}" for character in "_%&#${}"},
}
# What pdfTeX has no letter for; letters of European languages it has.
SYMBOLS = {
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≠": r"$\neq$",
    "√": r"$\surd$",
    "⊙": r"$\odot$",
    "∞": r"$\infty$",
    "‖": r"$\Vert$",
    "→": r"$\rightarrow$",
    "²": r"$^2$",
    "χ": r"$\chi$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "Δ": r"$\Delta$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "\u00a0": "~",
}
LONG = 48  # characters of a text that is broken into lines
CHARACTERS = str.maketrans(SPECIAL | SYMBOLS | {"\0": "{}"})


def escape(text: str) -> str:
    """Text that LaTeX sets as it is, on one line.  Two minus signs or angles in a row make no ligature."""
    text = re.sub(r"[\x00-\x1f\x7f\s]+", " ", text)
    return re.sub(r"-(?=-)", "-\0", text).translate(CHARACTERS)


def table(sheet: Sheet) -> str:
    """A sheet as a table of booktabs, as wide as its text, with its notes below; \\input it where the table belongs."""
    columns = "".join(map(_column, sheet.numeric, zip(sheet.head, *sheet.rows, strict=True)))
    rows = [" & ".join(_cell(text) for text in row) + r" \\" for row in sheet.rows]
    notes = [rf"\par\smallskip\footnotesize {escape(note)}" for note in sheet.notes]
    lines = [
        "% needs \\usepackage{booktabs,graphicx,textcomp} and \\usepackage[T1]{fontenc}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(sheet.title)}}}",
        rf"\label{{tab:{sheet.name}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"\toprule",
        " & ".join(_cell(text) for text in sheet.head) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}",
        *notes,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _column(right: bool, texts: Iterable[str]) -> str:
    """How a column is set: numbers flush right, sentences in lines."""
    return "r" if right else r"p{.3\linewidth}" if max(map(len, texts)) > LONG else "l"


def _cell(text: str) -> str:
    """An escaped text; in braces where a row would take its bracket for an argument of the row above."""
    escaped = escape(text)
    return f"{{{escaped}}}" if escaped.startswith("[") or escaped.startswith("*") else escaped
