"""The sections of the report, each a question that a reader has, in the order in which it is asked."""

from __future__ import annotations

from pathlib import Path

from ablate import evidence, words
from analysis import tables
from analysis.case import Case
from analysis.report import page, settings
from analysis.report.blocks import Block, Curves, Facts, Heading, Listing, Section, Table, Text
from analysis.report.pictures import pictures
from analysis.report.provenance import provenance
from analysis.report.runs import runs
from analysis.report.series import series
from analysis.sentences import scope, sentences
from analysis.sheet import Sheet


def sections(case: Case, folder: Path) -> list[Section]:
    """All sections that have something to say."""
    drawn = pictures(case, folder)
    found = [
        Section("help", "Does it help?", _verdicts(case) + [drawn[name] for name in ("effects",) if name in drawn]),
        Section("compared", "What was compared?", _compared(case)),
        Section(
            "curves-section",
            "How did training go?",
            _curves(case) + [drawn[n] for n in ("curves", "seeds") if n in drawn],
        ),
        Section("trust", "Can I trust it?", _trust(case)),
        Section("wrong", "What went wrong, and what was left out?", _wrong(case)),
        Section("runs", "Every run", [runs(case)]),
        Section("made", "How was this made?", [Facts(provenance(case, folder))]),
    ]
    return [section for section in found if section.blocks]


def warnings(case: Case) -> list[str]:
    """What a reader must know before anything else."""
    manifest = case.study.manifest
    said = [words.role(manifest), evidence.unadjusted(manifest) or ""]
    if len(manifest["seeds"]) == 1:
        said.append("One seed: no interval and no verdict. A single seed can conclude nothing.")
    if not (case.study.runs["status"] == "done").any():
        said.append("No run ended with a result: there is nothing to compare.")
    return [line for line in said if line]


def _verdicts(case: Case) -> list[Block]:
    said = sentences(case)
    return [Listing(said, strong=True)] if said else [Text("One cell: there is nothing to compare it with.")]


def _compared(case: Case) -> list[Block]:
    manifest = case.study.manifest
    found = settings.differences(manifest)
    same = settings.common(manifest)
    cells = case.cells
    places = words.decimals([cells["sd"].max()])
    rows = [
        [row.name, words.number(row.mean, places), words.number(row.sd, places), str(row.n), f"{row.params:,}"]
        for row in cells.itertuples()
    ]
    blocks: list[Block] = [Text(f"Scope: {scope(manifest)}.")]
    blocks.append(Table(Sheet("cells", "Cells", ["cell", "mean", "SD", "n", "parameters"], rows, [])))
    if found:
        head = ["cell", "setting", "reference", "cell's own"]
        blocks.append(Table(Sheet("settings", "Settings in which a cell differs from its reference", head, found, [])))
    if same:
        blocks.append(
            Table(
                Sheet("same", f"Settings that all cells share ({len(same)})", ["setting", "value"], same, []),
                folded=True,
            )
        )
    return blocks


def _curves(case: Case) -> list[Block]:
    found = series(case)
    if not found:
        return [Text("No learning curves: no run logged the metric while it trained.")]
    note = "Press a name to hide or show its curve, twice to see it alone; drag to enlarge, double-click to go back."
    note += " Lines of single runs are thinned to what pixels show." * found["thinned"]
    note += " × marks where a diverged run ended." * bool((case.study.runs["status"] == "diverged").any())
    alt = f"Interactive learning curves of {words.counted(len(found['cells']), 'cell')}: {found['label']}"
    return [Curves(page.data(found), found["axes"], alt, note)]


def _trust(case: Case) -> list[Block]:
    said = tables.remarks(case.study)
    return [Listing(said)] if said else []


def _wrong(case: Case) -> list[Block]:
    runs_ = case.study.runs
    lost = runs_[runs_["status"] != "done"]
    if lost.empty and not case.study.notes:
        return [Text("Nothing: every run ended with a result, and every file could be read.")]
    rows = [[run.label, str(run.seed), run.status, str(run.error or "")] for run in lost.itertuples()]
    blocks: list[Block] = (
        [Table(Sheet("lost", "Runs without a number", ["cell", "seed", "status", "why"], rows, []))] if rows else []
    )
    return blocks + ([Heading("Damaged or missing files"), Listing(case.study.notes)] if case.study.notes else [])
