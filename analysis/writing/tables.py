"""Tables of a study: CSV with every column and digit; Markdown and LaTeX with what a paper shows."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.evidence.verdicts import MIN_SEEDS
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import is_timed, named_rows
from analysis.case import Case
from analysis.case.figures_yaml import NONE
from analysis.prose import fields, macros, prose, sentence
from analysis.writing import latex, sheet
from analysis.writing.sheet import Sheet

# Columns of runs.csv: the first, those before and after the metrics, and those that only a report shows.
FIRST = ("cell", "label", "seed", "status")
SHAPE = ("batches", "params", "flops_per_token")
LAST = ("overfits", "seconds", "cpu_seconds", "vectors_seconds", "path", "error")
RUN_FIELDS = {"steps", "device", "torch", "ended", "commit", "dirty"}


def write(case: Case, folder: Path) -> list[Path]:
    """Write every table: NAME.csv with all columns and the original names, NAME.md and NAME.tex for reading."""
    files = [write_csv(frame, folder / f"{name}.csv") for name, frame in frames(case.plain or case).items()]
    for each in sheets(case):
        for suffix, text in (("md", sheet.markdown(each)), ("tex", latex.table(each))):
            files.append(write_atomic(folder / f"{each.name}.{suffix}", text.encode()))
    return files


def write_csv(table: pandas.DataFrame, file: Path) -> Path:
    """Write a table as CSV with every digit of its numbers; returns the file."""
    return write_atomic(file, csv_text(table).encode())


def csv_text(table: pandas.DataFrame) -> str:
    """A table as CSV, with texts that a spreadsheet would run as a formula quoted."""
    safe = table.rename(columns=formatting.quoted)
    for name in safe.columns[[not pandas.api.types.is_numeric_dtype(kind) for kind in safe.dtypes]]:
        safe[name] = safe[name].map(formatting.quoted)
    return str(safe.to_csv(index=False, lineterminator="\n"))


def frames(case: Case) -> dict[str, pandas.DataFrame]:
    """The tables for CSV, by file name."""
    found = {"runs": runs_table(case.study), "cells": scored_cells(case), "effects": case.effects, **case.further}
    return found | ({"claims": case.claims} if len(case.claims) else {})


def runs_table(study: Study) -> pandas.DataFrame:
    """A row per run: cell, seed, status, factors, what was chosen for a matched cell, budget, metrics, path.  Cells are
    in the study's order, so that programs that take the first level as the reference take the study's."""
    runs, factors = study.runs, list(study.manifest.factors)
    chosen = {cell.id: evidence.matched(study.manifest, cell) for cell in study.manifest.cells}
    added = pandas.DataFrame([chosen[cell] for cell in runs["cell"]], index=runs.index)
    metrics = [name for name in runs if name not in {*FIRST, *factors, *SHAPE, *LAST, *RUN_FIELDS}]
    table = runs.join(added)
    return table[[name for name in (*FIRST, *factors, *SHAPE, *added, *metrics, *LAST) if name in table]]


def sheets(case: Case) -> list[Sheet]:
    """The tables for reading: claims, effects, their particulars, cells, runs without a number."""
    found = [claims_sheet(case), effects_sheet(case), particulars_sheet(case), cells_sheet(case), losses_sheet(case)]
    found += further_sheets(case.further)
    return [each for each in found if each is not None]


def _sheet(name: str, rows: list[dict[str, str]], **content: Any) -> Sheet:
    """A sheet whose title and notes are the lines of a template."""
    title, *notes = prose(f"tables/{name}.txt", **content)
    return Sheet(name, title, list(rows[0]) if rows else [], [list(row.values()) for row in rows], notes)


def _filled(name: str, table: pandas.DataFrame, heads: Mapping[str, str] = NONE, **content: Any) -> Sheet:
    """A sheet whose rows are templates, too, filled in with the rows of a table; `heads` replace headings."""
    content |= {"table": table, **macros("rows/shared.txt")}
    filled = (fields(f"rows/{name}.txt", row=row, **content) for row in named_rows(table))
    return _sheet(name, [{heads.get(head, head): text for head, text in row.items()} for row in filled], **content)


def _measured(
    name: str, manifest: Manifest, table: pandas.DataFrame, heads: Mapping[str, str] = NONE, **content: Any
) -> Sheet:
    """The same of rows in the unit of the study's metric, which its heading names unless there are several."""
    metrics = evidence.measures(manifest)
    metric, several = naming.metric_name(manifest, *metrics), len(metrics) > 1
    named = {head: f"{metric}, {head}" for head in ("mean ± SD", "difference [95 %]") if not several}
    return _filled(name, table, {**heads, **named}, m=manifest, metric=metric, several=several, **content)


def scored_cells(case: Case) -> pandas.DataFrame:
    """The cells, with means over done seeds of every other test metric: other lengths, statistics and scores."""
    study, metrics = case.study, evidence.measures(case.study.manifest)
    split = metrics[0].split("/")[0]  # the validation split in tuning studies, whose test scores must stay unseen
    known = [name for name in study.runs if name.startswith(f"{split}/") and study.runs[name].notna().any()]
    means = {name: evidence.scores(study, name).mean() for name in known if metrics != [name]}
    return case.cells.assign(**{name: case.cells["cell"].map(mean) for name, mean in means.items()})


def cells_sheet(case: Case) -> Sheet:
    """The cells with mean ± SD over done seeds, the share of runs that diverged, and the budget."""
    manifest, cells = case.study.manifest, scored_cells(case)
    others = [name for name in cells if "/" in name]
    heads = {str(i): _seen(case.study, name) for i, name in enumerate(others, 1)}
    keys = {name: naming.key_name(manifest, cells[name].iloc[0]) for name in ("chosen", "tuned") if name in cells}
    heads |= {name: key + ", tuned" * (name == "tuned") for name, key in keys.items()}
    facts: dict[str, Any] = {"others": others, "places": formatting.decimals([cells["sd"].max()])}
    facts["notes"] = [*naming.notes(manifest.cells), *remarks(case.study)]
    return _measured("cells", manifest, cells, heads, **facts)


def _seen(study: Study, metric: str) -> str:
    """A metric as a column heading, with the share of its examples that were seen in training."""
    shares = [cell.seen_lengths.get(metric.partition("@")[2], 0.0) for cell in study.manifest.cells]
    seen = f", {formatting.rough(max(shares))} seen in training" * (max(shares) > 0)
    return naming.metric_name(study.manifest, metric) + seen


def effects_sheet(case: Case) -> Sheet:
    """The family's effects with simultaneous intervals, then the other rows."""
    table, manifest = evidence.best_first(case.effects), case.study.manifest
    facts: dict[str, Any] = {"priced": table["worth"].notna().any(), "confounded": table["also"].ne("").any()}
    time = "CPU time" if case.study.time_column == "cpu_seconds" else "time"
    costs = {"flops_ratio": "training FLOPs", "seconds_ratio": time}
    facts |= {"costs": {name: head for name, head in costs.items() if table[name].notna().any()}}
    facts["timed"] = is_timed(manifest)
    facts |= {"sequential": evidence.sequential_state(case.study, table, case.claims), "families": families(case)}
    facts |= {"notes": remarks(case.study), "tried": evidence.common_rows(manifest)}
    return _measured("effects", manifest, table, judged=judged, **facts)


def judged(manifest: Manifest, row: Any) -> str:
    """The verdict of an effect in words."""
    return formatting.verdict(row, partial(naming.assigned, manifest))


def families(case: Case) -> str:
    """A sentence on which verdicts share which 5 %, if there are claims as well as effects."""
    return sentence(evidence.families(case.study.manifest, int(case.effects["family"].sum())))


def particulars_sheet(case: Case) -> Sheet | None:
    """Details of each effect: mean ± SD of the differences, correlation, power, margin."""
    further = ("correlation", "smallest", "margin")
    table = evidence.best_first(case.effects)
    known = [name for name in further if table[name].notna().any()]
    shown = _measured("particulars", case.study.manifest, table, known=known)
    return shown if len(table) else None


def claims_sheet(case: Case) -> Sheet | None:
    """The claims of the study file with their verdicts, corrected for their number."""
    return None if case.claims.empty else _filled("claims", case.claims, families=families(case))


def losses_sheet(case: Case) -> Sheet | None:
    """Cells with lost runs: the share that diverged, the seeds, and the first reason."""
    rows = []
    for row in named_rows(case.cells):
        runs = case.study.runs[case.study.runs["cell"] == row.cell]
        for status in ("diverged", "failed", "missing"):
            if len(lost := runs[runs["status"] == status]):
                reasons = [text for text in lost["error"] if isinstance(text, str) and text]
                about = {"row": row, "status": status, "reason": next(iter(reasons), "–"), **macros("rows/shared.txt")}
                rows.append(fields("rows/losses.txt", lost=lost, every=runs, **about))
    return _sheet("losses", rows) if rows else None


def remarks(study: Study) -> list[str]:
    """Notes for the reader of any table: looks, a single seed, runs without a number, damage."""
    return prose("tables/remarks.txt", study=study, m=study.manifest, runs=study.runs, damage=damage(study))


def damage(study: Study) -> list[str]:
    """What was damaged or lost in a study; of runs of other programs, what was left out."""
    return study.notes if study.manifest.source else [f"note: {note}" for note in study.notes]


def further_sheets(found: Mapping[str, pandas.DataFrame]) -> Iterator[Sheet]:
    """A sheet for each table of `analysis.stats.tables`."""
    for name, table in found.items():
        if name == "ranks":  # whose columns are the study's tasks
            shown = table.rename(columns={"mean_rank": "mean rank"})
            shown = shown.astype({name: float for name in shown if name != "variant"})
            rows = shown.map(lambda value: f"{value:.3g}" if isinstance(value, float) else value).to_dict("records")
            yield _sheet(name, rows)
        else:
            yield _filled(name, table, least=MIN_SEEDS)
