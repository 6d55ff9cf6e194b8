"""Runs on disk that differ from planned ones in code, versions or data only: reused, or reported as trained again."""

import dataclasses
import functools
import json
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.formatting import counted, first_of
from ablate.planning.earlier_runs import Earlier
from ablate.results.naming import TAKEN
from ablate.results.records import Cell, PlannedRun, Provenance
from ablate.results.run import Run, noted
from ablate.results.run_key import provenance, run_key, settings
from ablate.results.tables import as_planned

EQUAL = ("versions", "data", "study")  # fields that are equal if runs differ in code only
SHOWN = 3  # definitions that are named


def refuse_replacing(earlier: Earlier, rows: list[Cell]) -> None:
    """Raise PlanError if cells would be replaced, if the data have changed, or if a timed study gets more cells."""
    before = earlier.manifest
    if not before:
        return
    new = {row.id for row in rows}
    gone = [cell for cell in before.cells if cell.id not in new]
    message = f"{earlier.name} holds {counted(len(gone), 'other cell')}; add to its cells, or write another name"
    if gone:
        known = {_settings(row): row for row in rows}
        now = [known.get(_settings(cell), cell).task for cell in gone]
        if all(task != cell.task for cell, task in zip(gone, now, strict=True)):
            old = gone[0].task
            changed = f"{before.tasks[old].title or 'the text'} is no longer {old[:8]} but {now[0][:8]}"
            message = f"{earlier.name} was trained on other data: {changed}; write another name, or restore the data"
        raise PlanError([Problem("study", message)])
    if before.timing and len(rows) > len(before.cells):
        message = f"{earlier.name} is timed: runs of further cells would not be trained in turn with those that ended"
        raise PlanError([Problem("study", f"{message}; write another name, which trains all of them")])


def _settings(cell: Cell) -> str:
    """All that a cell's numbers depend on, except its data."""
    return json.dumps([cell.name, settings(cell.config)], sort_keys=True)


def timing_notes(results: Path, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on how timed runs are trained, and on finished runs that are trained again because they were not timed."""
    cells, ended = {row.id: row for row in rows}, 0
    if rows[0].config.timing != "isolated":
        return []
    for run in runs:
        cell = as_planned(cells[run.cell], run)
        key = run_key(cell.config.with_value("timing", "shared"), run.seed, cell.task)
        ended += statuses[run.path] == "missing" and Run(results, f"{cell.name}/{key}").result_file.exists()
    notes = ["timing=isolated: one run at a time, a seed's cells in turn, on a machine that nothing else should use"]
    why = "with shared timing, which leaves their losses as they are and says nothing about speed; trained again"
    return notes + [f"{_counted(ended, 'of these')} trained {why}"] * bool(ended)


class ProvenanceIndex:
    """The provenance of the runs on disk; each cell's folder is read once."""

    def __init__(self, results: Path):
        self.results, self.read = results, functools.cache(self.read_folder)

    def like(self, cell: Cell, seed: int) -> tuple[Provenance, list[tuple[Run, Provenance]]]:
        """The provenance of a planned run, and the runs on disk of its cell with the same seed and settings."""
        planned = provenance(cell.config, seed, cell.task)
        return planned, self.read(cell.name).get((seed, planned.numbers), [])

    def read_folder(self, name: str) -> dict[tuple[int, str], list[tuple[Run, Provenance]]]:
        """The runs of a folder by seed and settings."""
        found: dict[tuple[int, str], list[tuple[Run, Provenance]]] = {}
        for file in (self.results / "runs" / name).glob("s*-*/provenance.json"):
            run = Run(self.results, f"{name}/{file.parent.name}")
            seed = file.parent.name[1:].partition("-")[0]
            origin = noted(run.provenance)[0]
            if origin and seed.isdigit():
                found.setdefault((int(seed), origin.numbers), []).append((run, origin))
        return found


def take_others(results: Path, runs: list[PlannedRun], rows: list[Cell]) -> tuple[list[PlannedRun], list[Cell]]:
    """Runs and noted cells of reuse=any: the newest run that differs in code only replaces one that has not ended."""
    cells, index = {row.id: row for row in rows}, ProvenanceIndex(results)
    chosen: list[PlannedRun] = []
    taken: dict[str, list[set[str]]] = {}
    for run in runs:
        if not _ended(Run(results, run.path)):
            planned, similar = index.like(as_planned(cells[run.cell], run), run.seed)
            others = [
                (ended, other.path, changed_names(origin, planned))
                for other, origin in similar
                if all(getattr(origin, key) == getattr(planned, key) for key in EQUAL) and (ended := _ended(other))
            ]
            if others:
                _, path, names = max(others)
                taken.setdefault(run.cell, []).append(names)
                run = dataclasses.replace(run, path=path)
        chosen.append(run)
    notes = {}
    for cell, found in taken.items():
        how = _by(set().union(*found), " changed")
        notes[cell] = [f"{_counted(len(found), f'of {cells[cell].label}')} trained {how}, {TAKEN}"]
    return chosen, [dataclasses.replace(row, notes=row.notes + notes.get(row.id, [])) for row in rows]


def _ended(run: Run) -> str | None:
    """When a run ended as done or diverged; None if it did not."""
    result, _ = noted(run.result)
    return result.ended or "some time" if result and result.status in ("done", "diverged") else None


def changed_names(old: Provenance, new: Provenance) -> set[str]:
    """The definitions whose content occurs on one side only, even under another name."""
    one, other = old.definitions, new.definitions
    unique = set(one.values()) ^ set(other.values())
    return {name for side in (one, other) for name, digest in side.items() if digest in unique}


def _by(names: set[str], end: str = "") -> str:
    return f"with other code ({first_of(sorted(names), SHOWN)}{end})" if names else "with other code"


def _counted(count: int, what: str) -> str:
    return f"{counted(count, 'run')} {what} {'were' if count != 1 else 'was'}"


def trained_again(earlier: Earlier, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str]) -> list[str]:
    """Notes on runs that are trained again, one per reason: this study had them, or their data have changed."""
    results, paths, cells = earlier.results, {run.path for run in runs}, {row.id: row for row in rows}
    index = ProvenanceIndex(results)
    had = {(run.cell, run.seed): run.path for run in earlier.runs if run.path not in paths}
    reasons: dict[str, list[set[str]]] = {}
    moved = 0
    for run in runs:
        if statuses[run.path] != "missing" or Run(results, run.path).provenance_file.exists():
            continue  # it has ended, or will resume
        planned, similar = index.like(as_planned(cells[run.cell], run), run.seed)
        old = Run(results, had.get((run.cell, run.seed), "none"))
        if old.provenance_file.exists() or old.result_file.exists():
            origin = noted(old.provenance)[0]
            names = changed_names(origin, planned) if origin else set()
            reasons.setdefault(_reason(origin, planned), []).append(names)
        else:  # runs on data of the same path, but none on its present content
            origins = [origin for _, origin in similar]
            present = any(origin.data == planned.data for origin in origins)
            moved += not present and any(origin.source == planned.source for origin in origins)
    notes = []
    for reason, found in reasons.items():
        names = set().union(*found)
        how = [reason] * bool(reason) + [_by(names)] * bool(names or not reason)
        hint = "; reuse=any takes those that ended as they are" if rows[0].config.reuse == "same" and not reason else ""
        notes.append(f"{_counted(len(found), 'of this study')} trained {' and '.join(how)}; trained again{hint}")
    return notes + [f"{_counted(moved, 'of these cells')} trained before the data changed; trained again"] * (moved > 0)


def _reason(old: Provenance | None, new: Provenance) -> str:
    """Why a run is not reused, apart from its code; "" if it differs in code only."""
    if old is None:
        return "with a provenance.json that is gone or damaged"
    if old.study != new.study:
        return f"under reuse={'none' if old.study else 'same'}"
    differ = {key: now for key, now in new.versions.items() if old.versions.get(key) != now}
    versions = ", ".join(f"{key} {old.versions.get(key)} (now {now})" for key, now in differ.items())
    return f"with {versions}" if differ else ""
