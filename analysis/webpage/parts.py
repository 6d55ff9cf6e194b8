"""The parts of the page, each a question that a reader has, and which sections of the report answer it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ablate import evidence, formatting
from ablate.results import naming
from analysis.case import Case
from analysis.figures.stamp import source_hash
from analysis.webpage import page
from analysis.webpage.blocks import Block, Curves, Facts, Findings, Heading, Listing, Part, Runs, Table, Text
from analysis.webpage.curve_data import series
from analysis.webpage.figures import pictures
from analysis.writing.sections import ALONE, Section, common, noise, sections
from analysis.writing.sheet import Sheet

QUESTIONS = {
    "help": "Does it help?",
    "compared": "What was compared?",
    "training": "How did training go?",
    "figures": "What else do the figures show?",
    "trust": "Can I trust it?",
    "wrong": "What went wrong, and what was left out?",
    "runs": "Every run",
    "made": "How was this made?",
}
# Where each section, sheet and figure belongs; one that is not named helps to judge the result.
SECTIONS = {"verdicts": "help", "claims": "help", "plan": "compared", "differences": "compared", "left-out": "wrong"}
SECTIONS |= {"runs": "runs", "methods": "made", "provenance": "made"}
SHEETS = {"effects": "help", "claims": "help", "cells": "compared"}
FIGURES = {"claims": "help", "effects": "help", "curves": "training", "seeds": "training", "placebos": "trust"}
UNTITLED = ("verdicts", "plan", "left-out", "runs")  # the question above says it already
FEW = 8  # sentences that are read one by one
LONG = 40  # rows beyond which a table is folded


def parts(case: Case, folder: Path) -> list[Part]:
    """All parts that have something to say."""
    found: dict[str, list[Block]] = {name: [] for name in QUESTIONS}
    said = set(warnings(case))
    found["training"] += _curves(case)
    for section in [*sections(case), noise(case)]:
        if section.name not in ("question", "figures"):
            found[SECTIONS.get(section.name, "trust")] += _blocks(case, section, said)
            for sheet in section.sheets:
                place = SHEETS.get(sheet.name, SECTIONS.get(section.name, "trust"))
                found[place] += [_runs(case, sheet)] if sheet.name == "runs" else _sheet(sheet, said)
    found["compared"] += _sheet(common(case.study.manifest), said, folded=True)
    sums = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.glob("*.csv"))}
    hashes = {f"SHA-256 of {name}": digest for name, digest in sums.items()}
    hashes["hash of the analysis"] = f"{source_hash()} (also in the metadata of every figure)"
    found["made"] += [Facts(list(hashes.items()))]
    for name, figure in pictures(case, folder).items():
        found[FIGURES.get(name, "figures")].append(figure)
    found["help"].sort(key=lambda block: isinstance(block, Table))  # what is said and drawn comes before the numbers
    return [Part(name, QUESTIONS[name], blocks) for name, blocks in found.items() if blocks]


def warnings(case: Case) -> list[str]:
    """What a reader must know before anything else."""
    manifest, runs = case.study.manifest, case.study.runs
    said = [naming.role(manifest), evidence.unadjusted(manifest)]
    if len(manifest.seeds) == 1:
        said.append(ALONE)
    if not (runs["status"] == "done").any():
        said.append("No run ended with a result: there is nothing to compare.")
    return [line for line in said if line]


def _blocks(case: Case, section: Section, said: set[str]) -> Iterator[Block]:
    """What a section says, but for its sheets and for what was said before."""
    text = [line for line in section.text if line not in said]
    said.update(section.text)
    if section.name not in UNTITLED and (text or section.items or section.facts):
        yield Heading(section.title)
    if section.name == "verdicts":
        yield from [Heading("Effects")] * bool(section.items and len(case.claims))
        yield from _findings(case, section)
    yield from map(Text, text)
    if section.facts:
        yield Facts(section.facts)
    if section.name == "claims":
        judged = set(case.claims.loc[case.claims["verdict"] != "undecided", "sentence"])
        yield from [Findings([(line, line in judged) for line in section.items], [])] * bool(section.items)
    elif section.items and section.name != "verdicts":
        yield Listing(section.items)


def _findings(case: Case, section: Section) -> Iterator[Block]:
    """The sentences of the verdicts; where they are many a count, and first those that decide something."""
    verdicts = evidence.headline(case.effects)["verdict"].tolist()
    told = [(line, verdict in evidence.DECIDED) for line, verdict in zip(section.items, verdicts, strict=True)]
    if len(told) <= FEW:
        yield from [Findings(told, [])] * bool(told)
        return
    order = dict.fromkeys([*evidence.DECIDED, *verdicts])
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in order if name in verdicts)
    yield Text(f"{len(told)} effects: {counts}.")
    first = [each for each in told if each[1]][:FEW] or told[:FEW]
    yield Findings(first, [each for each in told if each not in first])


def _sheet(sheet: Sheet, said: set[str], folded: bool = False) -> Iterator[Block]:
    notes = [note for note in sheet.notes if note not in said]
    said.update(notes)
    if sheet.name == "claims":  # the sentences above it say what was found, and a column of them is all that is seen
        place = sheet.head.index("found")
        head, *rows = ([*row[:place], *row[place + 1 :]] for row in (sheet.head, *sheet.rows))
        sheet = sheet._replace(head=head, rows=rows)
    if sheet.rows:
        yield Table(sheet, notes, folded or (len(sheet.rows) > LONG and sheet.name != "losses"))


def _runs(case: Case, sheet: Sheet) -> Runs:
    """Every run, with its error where any has one."""
    errors = [error if isinstance(error, str) else "" for error in case.study.runs["error"]]
    if any(errors):
        rows = [[*row, error] for row, error in zip(sheet.rows, errors, strict=True)]
        sheet = sheet._replace(head=[*sheet.head, "error"], rows=rows)
    status = sheet.head.index("status")
    return Runs(sheet, status, list(dict.fromkeys(row[status] for row in sheet.rows)))


def _curves(case: Case) -> list[Block]:
    found = series(case)
    if not found:
        return [Text("No learning curves: no run logged the metric while it trained.")]
    note = "Press a name to hide or show its curve, twice to see it alone; drag to enlarge, double-click to go back."
    note += " Long curves are thinned to what pixels show." * found["thinned"]
    note += " × marks where a diverged run ended." * bool((case.study.runs["status"] == "diverged").any())
    alt = f"Interactive learning curves of {formatting.counted(len(found['cells']), 'cell')}: {found['label']}"
    return [Curves(page.data(found), list(found["axes"]), alt, note)]
