"""macros.tex: a LaTeX command for every number of a study, so that no number of a paper has to be typed by hand.

\\ablFfnSwigluDelta is the effect of ffn=swiglu, \\ablCellLnSwigluMean the score of the cell ln + swiglu.  Command names
have only letters, so digits and signs are spelled out.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from string import ascii_uppercase
from typing import Any

from ablate import formatting
from ablate.formatting import visible
from ablate.runs import naming
from ablate.runs.records import STATUSES
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.prose import fields, macros
from analysis.writing import tables
from analysis.writing.latex import escape

PREFIX = "abl"
DIGITS = ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"]
HEAD = """% Numbers of the study {study}, written by ablate analyse.
% \\input this file, then write \\{first}{{}} in the text.  Values are rounded as in the tables.
% Before each group: what it is about.
"""


def page(case: Case) -> str:
    """Every number of the study, its effects, its cells and its claims as a command of LaTeX with a unique name, each
    group below its comment."""
    taken, lines, last = dict[str, None](), list[str](), None
    for stem, about, texts in _groups(case):
        # Equal names are told apart by the suffixes "", B, C, … Z, BB, …
        ends = (letter * length for length in range(1, 99) for letter in ascii_uppercase[1:])
        stem += next(end for end in ("", *ends) if not any(stem + end + field in taken for field in texts))
        taken |= dict.fromkeys(stem + field for field in texts)
        lines += ["", f"% {visible(' '.join(about.split()))}"] * (about != last)
        lines += [rf"\newcommand{{\{stem}{field}}}{{{either_mode(text)}}}" for field, text in texts.items()]
        last = about
    first = next((name for name in taken if name.endswith("Delta")), next(iter(taken)))
    return HEAD.format(study=" ".join(case.study.manifest.study.split()), first=first) + "\n".join(lines) + "\n"


def either_mode(text: str) -> str:
    """A text as LaTeX that works in text and in math mode, where words and dashes need a box."""
    escaped = escape(text).replace("$-$", r"\ensuremath{-}").replace(r"\textless{}", r"\ensuremath{<}")
    escaped = re.sub(r"\$([^$]*[^$\\])\$", r"\\ensuremath{\1}", escaped)
    return rf"\mbox{{{escaped}}}" if re.search(r"[^\W\d_]|–", text) else escaped


def spelled(text: str) -> str:
    """A label as letters: "swiglu" is Swiglu, "optim.lr=0.001" is OptimLrZeroPointZeroZeroOne, "ln + rms" is LnRms."""
    plain = unicodedata.normalize("NFKD", text.replace(formatting.MINUS, "-")).encode("ascii", "ignore").decode()
    plain = re.sub(r"(?<=\d)\.(?=\d)", " Point ", plain)
    plain = re.sub(r"(?<![A-Za-z0-9])-(?=\d)|(?<=\de)-(?=\d)", " Minus ", plain)
    plain = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", plain)
    return "".join(part[0].upper() + part[1:] for part in re.findall(r"[A-Za-z]+", plain))


def _groups(case: Case) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Per group: the start of the command names, the comment, and the texts by field."""
    counts = case.study.runs["status"].value_counts()
    study = {"Seeds": len(case.study.manifest.seeds), "Cells": len(case.cells), "Runs": len(case.study.runs)}
    study |= {name.title(): int(counts.get(name, 0)) for name in STATUSES}
    yield f"{PREFIX}Study", "the study", {name: str(count) for name, count in study.items()}
    metric_name = partial(naming.metric_name, case.study.manifest)
    plain = case.plain or case  # a new label must not change the names of commands
    for row, key in zip(named_rows(case.effects), named_rows(plain.effects), strict=True):
        about = f"{row.label}, {metric_name(row.metric)}, {'main comparison' if row.family else 'estimate only'}"
        yield PREFIX + effect_name(key), about, difference(row)
    cells, keys = tables.scored_cells(case), plain.cells[["label", "stratum"]]
    places = formatting.decimals([cells["sd"].max()])
    others = [name for name in cells if "/" in name]
    for row, key, *also in zip(named_rows(cells), named_rows(keys), *(cells[name] for name in others), strict=True):
        about = f"cell {_with_stratum(row)}, {metric_name(row.metric)}"
        texts = fields("macros/cell.txt", row=row, places=places, others=zip(map(spelled, others), also, strict=True))
        yield f"{PREFIX}Cell{spelled(_with_stratum(key))}", about, texts
    for row in named_rows(case.claims):
        yield f"{PREFIX}Claim{spelled(row.name)}", f"claim {row.name}", difference(row, claimed=True)


def difference(row: Any, claimed: bool = False) -> dict[str, str]:
    """The texts of an effect or a claim by field, rounded as in tables."""
    return fields("macros/difference.txt", row=row, claimed=claimed, worth=worth, **macros("rows/shared.txt"))


def _with_stratum(row: Any) -> str:
    return row.label + f" at {row.stratum}" * bool(row.stratum)


def effect_name(row: Any) -> str:
    """The start of an effect's command names."""
    where = f"At{spelled(row.stratum)}" if row.stratum else ""
    if row.kind in formatting.CROSSED:
        pairs = zip(row.factor.split(" x "), formatting.levels_of(row), strict=False)
        return "By".join(spelled(factor) + spelled(level) for factor, level in pairs) + where
    if row.kind == "cell":
        return f"{spelled(row.level)}Against{spelled(row.reference)}{where}"
    return "Step" * (row.kind == "step") + spelled(row.factor) + spelled(row.level) + where


def worth(value: Any, places: int = 0) -> str:
    """A worth in per cent; "not bounded" at an end beyond the numbers of steps that were trained."""
    if math.isnan(value):
        return formatting.number(value, places)
    if not -1 < value < math.inf:
        return "not bounded"
    return f"{formatting.plus(100 * value, f'.{places}f')} %"
