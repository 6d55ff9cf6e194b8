"""Runs on disk that are the planned ones but for their code, versions or data: taken, or said to be trained again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from ablate.config.errors import Corrupt, PlanError, Problem
from ablate.formatting import counted, first_of
from ablate.planning.earlier_runs import Earlier
from ablate.results.naming import TAKEN
from ablate.results.records import Cell, PlannedRun
from ablate.results.result import Provenance
from ablate.results.run import Run
from ablate.results.run_key import provenance, run_key, settings
from ablate.results.tables import as_planned

ALIKE = ("versions", "data", "study")  # of a run that differs in code only
SHOWN = 3  # definitions that are named


def refuse_replacing(earlier: Earlier, rows: list[Cell]) -> None:
    """Raise PlanError for a study whose cells would not be added to but replaced, or whose data have changed."""
    new = {row.id for row in rows}
    gone = [cell for cell in earlier.manifest.cells if cell.id not in new] if earlier.manifest else []
    if not earlier.manifest or not gone:
        return
    known = {_settings(row): row for row in rows}
    now = [known.get(_settings(cell), cell).task for cell in gone]
    if all(task != cell.task for cell, task in zip(gone, now, strict=True)):
        old = gone[0].task
        title = earlier.manifest.tasks[old].title or "the text"
        message = (
            f"{earlier.name} was trained on other data: {title} is no longer {old[:8]} but {now[0][:8]}; "
            "write another name, or restore the data"
        )
    else:
        message = f"{earlier.name} holds {counted(len(gone), 'other cell')}; add to its cells, or write another name"
    raise PlanError([Problem("study", message)])


def refuse_late_cells(earlier: Earlier, rows: list[Cell]) -> None:
    """Raise PlanError for further cells of a study whose runs are timed in turn with their partners."""
    before = earlier.manifest
    if before and before.timing and len(rows) > len(before.cells):
        told = f"{earlier.name} is timed: runs of further cells would not be trained in turn with those that ended"
        raise PlanError([Problem("study", f"{told}; write another name, which trains all of them")])


def about_timing(results: Path, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str]) -> list[str]:
    """How runs are timed, and how many that have ended with shared seconds are trained again for seconds of their own.

    Nothing where none is timed.
    """
    cells, ended = {row.id: row for row in rows}, 0
    if rows[0].config.timing != "isolated":
        return []
    for run in runs:
        cell = as_planned(cells[run.cell], run)
        key = run_key(cell.config.with_value("timing", "shared"), run.seed, cell.task)
        ended += statuses[run.path] == "missing" and Run(results, f"{cell.name}/{key}").result_file.exists()
    told = ["timing=isolated: one run at a time, a seed's cells in turn, on a machine that nothing else should use"]
    why = "with shared timing, which leaves their losses as they are and says nothing about speed; trained again"
    return told + [f"{_counted(ended, 'of these')} trained {why}"] * bool(ended)


def _settings(cell: Cell) -> str:
    """What a cell's numbers depend on beside its data."""
    return json.dumps([cell.name, settings(cell.config)], sort_keys=True)


def kept_apart(name: str, rows: list[Cell]) -> list[Cell]:
    """The cells of a study whose runs are its own, under reuse=none or timed: their keys hold its name."""
    return [dataclasses.replace(row, config=dataclasses.replace(row.config, study=name)) for row in rows]


class Told:
    """What the runs on disk say that they came from, read once for each folder of a cell."""

    def __init__(self, results: Path):
        self.results = results
        self.folders: dict[str, dict[tuple[int, str], list[tuple[Run, Provenance]]]] = {}

    def like(self, cell: Cell, seed: int) -> tuple[Provenance, list[tuple[Run, Provenance]]]:
        """What a planned run comes from, and the runs of its cell's folder with the same seed and settings."""
        if cell.name not in self.folders:
            self.folders[cell.name] = self.read(cell.name)
        planned = provenance(cell.config, seed, cell.task)
        return planned, self.folders[cell.name].get((seed, planned.numbers), [])

    def read(self, name: str) -> dict[tuple[int, str], list[tuple[Run, Provenance]]]:
        """The runs of a folder by seed and settings."""
        found: dict[tuple[int, str], list[tuple[Run, Provenance]]] = {}
        for file in (self.results / "runs" / name).glob("s*-*/provenance.json"):
            run = Run(self.results, f"{name}/{file.parent.name}")
            seed = file.parent.name[1:].partition("-")[0]
            told = read_provenance(run)
            if told and seed.isdigit():
                found.setdefault((int(seed), told.numbers), []).append((run, told))
        return found


def take_others(results: Path, runs: list[PlannedRun], rows: list[Cell]) -> tuple[list[PlannedRun], list[Cell]]:
    """Runs and cells under reuse=any: where a run has not ended, the newest that differs from it in code only.

    Cells of which any run was taken say so in their notes.
    """
    cells, told = {row.id: row for row in rows}, Told(results)
    chosen: list[PlannedRun] = []
    taken: dict[str, list[set[str]]] = {}
    for run in runs:
        other = (
            None if _ended(Run(results, run.path)) else _newest(*told.like(as_planned(cells[run.cell], run), run.seed))
        )
        if other:
            taken.setdefault(run.cell, []).append(other[1])
        chosen.append(dataclasses.replace(run, path=other[0]) if other else run)
    notes = {cell: [_taken(cells[cell].label, found)] for cell, found in taken.items()}
    return chosen, [dataclasses.replace(row, notes=row.notes + notes.get(row.id, [])) for row in rows]


def _newest(planned: Provenance, like: list[tuple[Run, Provenance]]) -> tuple[str, set[str]] | None:
    """Path of the newest run that differs from the planned one in code only, and the definitions that do."""
    found = [
        (ended, run.path, changed_names(told, planned))
        for run, told in like
        if all(getattr(told, key) == getattr(planned, key) for key in ALIKE) and (ended := _ended(run))
    ]
    return max(found)[1:] if found else None


def _ended(run: Run) -> str | None:
    """When a run ended as done or diverged; None where it did not."""
    try:
        result = run.result()
    except Corrupt:
        return None
    return result.ended or "some time" if result and result.status in ("done", "diverged") else None


def read_provenance(run: Run) -> Provenance | None:
    """What a run came from; None where it does not say."""
    try:
        return run.provenance()
    except Corrupt:
        return None


def changed_names(old: Provenance, new: Provenance) -> set[str]:
    """The definitions whose content is not on both sides, wherever it stands, by where they stand."""
    one, other = old.definitions, new.definitions
    alone = set(one.values()) ^ set(other.values())
    return {name for side in (one, other) for name, digest in side.items() if digest in alone}


def _taken(label: str, found: list[set[str]]) -> str:
    return f"{_counted(len(found), f'of {label}')} trained {_by(set().union(*found), ' changed')}, {TAKEN}"


def _by(names: set[str], end: str = "") -> str:
    """Whose code trained runs, by the definitions that are other ones."""
    return f"with other code ({first_of(sorted(names), SHOWN)}{end})" if names else "with other code"


def _counted(count: int, what: str) -> str:
    return f"{counted(count, 'run')} {what} {'were' if count != 1 else 'was'}"


def trained_again(
    earlier: Earlier, runs: list[PlannedRun], rows: list[Cell], statuses: dict[str, str], reuse: str
) -> list[str]:
    """A sentence for each reason that runs are trained again: runs that this study had, or whose data have changed."""
    results, paths, cells = earlier.results, {run.path for run in runs}, {row.id: row for row in rows}
    told = Told(results)
    had = {(run.cell, run.seed): run.path for run in earlier.runs if run.path not in paths}
    reasons: dict[str, list[set[str]]] = {}
    moved = 0
    for run in runs:
        if statuses[run.path] != "missing" or Run(results, run.path).provenance_file.exists():
            continue  # it has ended, or is continued
        planned, like = told.like(as_planned(cells[run.cell], run), run.seed)
        old = Run(results, had.get((run.cell, run.seed), "none"))
        if old.provenance_file.exists() or old.result_file.exists():
            came = read_provenance(old)
            names = changed_names(came, planned) if came else set()
            reasons.setdefault(_reason(came, planned), []).append(names)
        else:
            moved += _data_changed([came for _, came in like], planned)
    again = [_again("of this study", reason, found, reuse) for reason, found in reasons.items()]
    return again + [f"{_counted(moved, 'of these cells')} trained before the data changed; trained again"] * (moved > 0)


def _data_changed(like: list[Provenance], planned: Provenance) -> bool:
    """Whether there is a run on data from the same place, and none on those that are there now."""
    now, source = planned.data, planned.source
    return not any(came.data == now for came in like) and any(came.source == source for came in like)


def _reason(old: Provenance | None, new: Provenance) -> str:
    """Why a run is not taken, but for its code; empty where it differs in code only."""
    if old is None:
        return "with a provenance.json that is gone or damaged"
    if old.study != new.study:
        return f"under reuse={'none' if old.study else 'same'}"
    differ = {key: now for key, now in new.versions.items() if old.versions.get(key) != now}
    versions = ", ".join(f"{key} {old.versions.get(key)} (now {now})" for key, now in differ.items())
    return f"with {versions}" if differ else ""


def _again(whose: str, reason: str, found: list[set[str]], reuse: str) -> str:
    names = set().union(*found)
    how = [reason] * bool(reason) + [_by(names)] * bool(names or not reason)
    hint = "; reuse=any takes those that ended as they are" if reuse == "same" and not reason else ""
    return f"{_counted(len(found), whose)} trained {' and '.join(how)}; trained again{hint}"
