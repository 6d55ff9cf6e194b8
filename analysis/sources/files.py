"""Runs from a table, or from a folder of logs of other programs, a file per run (or of tables with several runs each).

Settings are those in a file beside the log (`hparams.yaml`, `config.yaml`, `config.json`), and those that a program
prints.  A run's name is the path of its file, or of its folder if all files have one name.
"""

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pandas

from ablate.config.errors import Corrupt, Refused
from ablate.formatting import visible
from ablate.runs.records import STATUSES
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.columns import (
    KEYS,
    NAMES,
    NUMBER,
    SHAPE,
    note,
    number,
    plain,
    read_column,
    seed_columns,
    some,
    step_columns,
)
from analysis.sources.logged import STATUS_OF, Logged, Run, logged, study_of
from analysis.sources.readers import FAULTS, READERS, SETTINGS, Log, direction, read_settings, read_table, runs_of_chart

TEXTS = ("batches", "path", "error")


def read_runs(path: Path, request: Request) -> Study:
    """The study of a table of runs, or of a folder with a log per run.  Raises `Refused`, with one line."""
    try:
        name = request.described.study or (path.resolve().name if path.is_dir() else path.stem)
        changed = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
        request = request.with_study_file()
        runs = read_folder(path, request) if path.is_dir() else read_file(path)
        return study_of(runs, request, name, path.name, changed, ("--runs", str(path)))
    except OSError as error:
        raise Refused(f"{path}: it cannot be read ({error.strerror})") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None


def read_file(file: Path) -> Logged:
    """The runs of a table, or of a chart that W&B exported.  Raises `Refused`."""
    if file.name == "trainer_state.json" or file.suffix in (".log", ".out"):
        raise Refused("this is the log of one run; name the folder with those of all runs")
    table = read_table(file)
    chart = runs_of_chart(table)
    if chart:
        return logged([Run(visible(name), {}, rows) for name, rows in chart.items()], [])
    return tidy_table(table)


def tidy_table(table: pandas.DataFrame, names: list[str] | None = None) -> Logged:
    """The rows of a table as both runs and steps, with status and sizes as numbers.  Rows of W&B's table of runs, which
    has the newest first, are put in the order in which they began.  Raises `Refused`."""
    if "Created" in table and "State" in table:
        table = table.sort_values("Created", kind="stable")
    where = pandas.Series(table.index)
    table = table.reset_index(drop=True)
    empty = [name for name in table if (table[name] == "").all()]
    unused = [name for name in empty if name not in KEYS and direction(name) is not None]
    notes = [f"columns without a value, left out: {some(unused)}"] if unused else []
    table = table.drop(columns=empty)
    state = [name for name in table if plain(name) == "state" and {*table[name].str.lower()} <= STATUS_OF.keys()]
    if state and "status" not in table:
        table = table.rename(columns={state[0]: "status"})
    if "status" in table:
        texts = table["status"].str.lower()
        table["status"] = read_column(texts, where, STATUS_OF.__getitem__, f"one of {', '.join(STATUSES)}")
    for name in table.columns.intersection(SHAPE):
        table[name] = read_column(table[name], where, number, NUMBER)
    for name in table.columns.intersection(TEXTS):
        table[name] = table[name].where(table[name] != "", None)
    named = [name for name in table if plain(name) in NAMES]
    if names is None:
        names = table[named[0]].tolist() if named else []
    return Logged(table, table, where, names, notes, tidy=True)


def read_folder(folder: Path, request: Request) -> Logged:
    """The runs whose logs are in a folder, at any depth; other files are named.  Raises `Refused` at the first log that
    cannot be read."""
    files = sorted(file for file in folder.rglob("*") if not file.is_dir())
    for patterns, read in READERS.items():
        logs: dict[Path, Log] = {}
        for file in files:
            if any(file.match(pattern) for pattern in patterns.split()) and file.name not in SETTINGS:
                try:
                    logs[file] = read(file)
                except json.JSONDecodeError:
                    why = "this is not all of a JSON file; take the run away, or write it anew"
                    raise Refused(f"{file.relative_to(folder)}: {why}") from None
                except FAULTS as error:
                    reason = error.strerror if isinstance(error, OSError) else None
                    why = reason or " ".join(str(error).split())
                    raise Refused(f"{file.relative_to(folder)}: {why}") from None
        if any(rows for _, rows in logs.values()):
            left = [file for file in files if file not in logs and file.name not in SETTINGS]
            notes = _not_read(folder, left, patterns)
            tables = [rows for _, rows in logs.values() if rows]
            if "csv" in patterns or "json" in patterns:
                columns = [name for rows in tables for name in rows[0]]
                per_row = request.unpaired and not step_columns(pandas.DataFrame(columns=list(dict.fromkeys(columns))))
                if request.seed_from in columns or seed_columns(columns) or per_row:
                    return _tables(folder, logs, notes)
            return _runs(folder, logs, notes)
    raise Refused(f"there are no logs, a file per run; known are {', '.join(READERS)} (as programs print them)")


def _not_read(folder: Path, files: list[Path], patterns: str) -> list[str]:
    """Notes on the files of a folder that are not read, by the reason."""
    reasons: dict[str, list[str]] = {}
    for file in files:
        is_log = any(file.match(pattern) for other in READERS for pattern in other.split())
        why = f"not read beside {patterns}" if is_log else "not read, as they are no logs"
        reasons.setdefault(why, []).append(visible(str(file.relative_to(folder))))
    notes = []
    for why, names in reasons.items():
        notes += [line.replace("run", "file", 1) for line in note(names, why)]
    return notes


def _tables(folder: Path, logs: dict[Path, Log], notes: list[str]) -> Logged:
    """The rows of tables that have several runs each; the column `file` says of which table a row is."""
    parts = []
    for file, (_, rows) in logs.items():
        name = visible(str(file.relative_to(folder).with_suffix("")))
        part = pandas.DataFrame(rows)
        part.index = pandas.Index([f"{name}, row {i}" for i in range(1, len(rows) + 1)])
        parts.append(part.assign(file=name))
    table = pandas.concat(parts).fillna("")
    tidy = tidy_table(table, table["file"].tolist())
    return tidy._replace(notes=[*notes, *tidy.notes])


def _runs(folder: Path, logs: dict[Path, Log], notes: list[str]) -> Logged:
    """The runs of these files; of a run's checkpoints the one that logged most, so the last, counts."""
    last: dict[Path, tuple[Path, Log]] = {}
    for file, log in sorted(logs.items(), key=lambda pair: len(pair[1][1])):
        whose = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
        last[whose / file.stem] = (file, log)
    if len({whose.name for whose in last}) == 1 < len(last):
        last = {whose.parent: log for whose, log in last.items()}
    above = os.path.commonpath([whose.parent for whose in last])
    runs = []
    silent = []
    for whose, (file, (settings, rows)) in sorted(last.items()):
        try:
            beside = read_settings(file.parent)
        except Corrupt as error:
            raise Refused(str(error)) from None
        facts: dict[str, Any] = {"stopped_at": settings.get("stopped_at")} if "stopped_at" in settings else {}
        printed = {name: value for name, value in settings.items() if name != "stopped_at"}
        name = str(whose.relative_to(above))
        if not rows:
            silent.append(name)
            facts["status"] = "failed"
        runs.append(Run(name, {**beside, **printed}, rows, facts))
    runs.sort(key=lambda run: not run.rows)  # the first of a factor is proposed as its reference
    return logged(runs, [*notes, *note(silent, "without a line that was read (with a step, or a metric), failed")])
