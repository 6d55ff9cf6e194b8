"""macros.tex: a LaTeX command for every number of a study, so that no number of a paper has to be typed by hand.

\\ablFfnSwigluMlpDelta is the effect "ffn: swiglu − mlp", \\ablCellLnSwigluMean the score of the cell ln + swiglu.
Command names have only letters, so digits and signs are spelled out.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from ablate import evidence, formatting
from ablate.evidence.claim_text import claim_label
from ablate.formatting import decimals, number, p_text, visible
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.writing.latex import escape
from analysis.writing.tables import cautions, unadjusted_verdict

DIGITS = ["Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"]
HEAD = """% Numbers of the study {study}, written by ablate analyse.
% \\input this file, then write \\NAME{{}} in the text.  Values are rounded as in the tables.
% Before each group: what it is about.
"""
Texts = dict[str, str]


def page(case: Case) -> str:
    """Every number of the study, its effects, its configurations and its claims as a command of LaTeX."""
    lines = [HEAD.format(study=" ".join(case.study.manifest.study.split()))]
    lines += [f"% {text}" for text in cautions(case.study)]
    names = set[str]()
    for stem, about, texts in groups(case):
        while any(stem + field in names for field in texts):
            stem += "X"  # names that differ in their signs alone
        lines.append(f"% {visible(' '.join(about.split()))}")
        for field, text in texts.items():
            names.add(stem + field)
            lines.append(rf"\newcommand{{\{stem}{field}}}{{{either_mode(text)}}}")
    return "\n".join(lines) + "\n"


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


def groups(case: Case) -> Iterator[tuple[str, str, Texts]]:
    """Per group: the start of the command names, the comment, and the texts by field.  Names come from the keys, so
    that a new label does not change them."""
    plain = case.plain or case
    study = {"Seeds": len(case.study.manifest.seeds), "Cells": len(case.cells), "Runs": len(case.study.runs)}
    yield "ablStudy", "the study", {name: str(count) for name, count in study.items()}
    for row, key in zip(named_rows(case.effects), named_rows(plain.effects), strict=True):
        role = "main comparison" if row.family else "estimate only"
        worth = evidence.worth_words(row, "").removeprefix("worth ").strip()
        smallest = number(row.smallest, decimals([row.smallest]))
        more = {"Smallest": smallest, "Worth": worth or "–"}
        yield f"abl{spelled(key.label)}", f"{row.label}, {role}", difference(row, row.p_bonferroni) | more
    places = decimals([case.cells["sd"].max()])
    for row, key in zip(named_rows(case.cells), named_rows(plain.cells), strict=True):
        texts = {"Mean": number(row.mean, places), "Sd": number(row.sd, places), "N": str(row.n)}
        if formatting.known(getattr(row, "params", None)):
            texts["Params"] = f"{int(row.params):,}"
        where = f" at {key.stratum}" if key.stratum else ""
        yield f"ablCell{spelled(key.label + where)}", f"configuration {row.label}", texts
    for row in named_rows(case.claims):
        yield (
            f"ablClaim{spelled(row.name)}",
            f"claim {claim_label(case.study.manifest, row.name)}",
            difference(row, row.p_holm),
        )


def difference(row: Any, p: float) -> Texts:
    """The texts of an effect or a claim by field, rounded as in tables."""
    places = decimals([(row.high - row.low) / 2])
    low, high = formatting.ends(row.low, row.high, places, signed=True).split(", ")
    texts = {"Delta": number(row.mean, places, signed=True), "Low": low, "High": high, "P": p_text(p)}
    return texts | {
        "N": str(row.n),
        "Sd": number(row.sd, decimals([row.sd])),
        "Verdict": unadjusted_verdict(row, row.verdict),
    }
