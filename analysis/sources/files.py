"""Runs from a table, or from a folder of logs of other programs, a file per run (or of tables with several runs each).

Settings are those in a file beside the log (`hparams.yaml`, `config.yaml`, `config.json`), and those that a program
prints.  A run's name is the path of its file, or of its folder if all files have one name.
"""

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from ablate.config.errors import Corrupt, Refused
from ablate.formatting import visible
from ablate.runs.logs import Log
from ablate.runs.readers import FAULTS, READERS, SETTINGS, is_named, read_settings, read_table, read_table_log
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.logged import Logged, Run, as_table, logged, note, typed
from analysis.sources.roles import NAMES, choose_step, plain, seed_columns
from analysis.sources.study import study_of

CHART = r"(.+) - (.+?)(?:__MIN|__MAX)?"  # a column of a chart that W&B exported: run, metric
RECENT = 120  # seconds since its last line in which a run is taken to go on


def read_runs(path: Path, request: Request) -> Study:
    """The study of a table of runs, or of a folder with a log per run.  Raises `Refused`, with one line."""
    request = request._replace(source=("--runs", str(path)))
    try:
        name = path.resolve().name if path.is_dir() else path.stem
        changed = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
        runs = read_folder(path, request) if path.is_dir() else read_file(path)
        return study_of(runs, request, name, path.name, changed)
    except OSError as error:
        raise Refused(f"{path}: it cannot be read ({error.strerror})") from None
    except (Refused, Corrupt) as error:
        raise Refused(f"{path}: {error}") from None


def read_file(file: Path) -> Logged:
    """The runs of a table, or of a chart that W&B exported.  Raises `Refused`."""
    if file.name == "trainer_state.json" or file.suffix in (".log", ".out"):
        raise Refused("this is the log of one run; name the folder with those of all runs")
    rows = read_table(file)
    table = as_table([*rows.values()], [*rows])
    chart = read_chart(table)
    if chart:
        return logged([Run(name, {}, rows) for name, rows in chart.items()], [])
    if {"Created", "State"} <= set(table):  # W&B's table of runs, which has the newest first
        table = table.sort_values("Created", kind="stable")
    names = [name for name in table if plain(name) in NAMES]
    return Logged(typed(table), table, table[names[0]].tolist() if names else [], [], is_table=True)


def read_chart(table: pandas.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The rows of each run in a chart that W&B exported, which has a column per run and two more for its extremes, left
    out here.  Empty if the table is no such chart."""
    step = table.columns[0]
    columns = pandas.Series(table.columns[1:])
    if columns.empty or not columns.str.fullmatch(CHART).all():
        return {}
    columns = columns[~columns.str.contains("__MIN$|__MAX$")]
    points = table.melt(step, columns)
    points[["run", "metric"]] = points["variable"].str.extract(f"^{CHART}$")
    points = points[points["value"] != ""]
    rows = points.pivot_table("value", ["run", step], "metric", "last").fillna("").reset_index(step)
    return {str(run): rows.loc[[run]].to_dict("records") for run in points["run"].unique()}


def read_folder(folder: Path, request: Request) -> Logged:
    """The runs whose logs are in a folder, at any depth.  The first kind of log that holds anything is read, files of
    other kinds are named in a note.  Raises `Refused` at the first log that cannot be read."""
    files = [file for file in sorted(folder.rglob("*")) if not file.is_dir() and file.name not in SETTINGS]
    for patterns, read in READERS.items():
        logs = read_logs(folder, [file for file in files if is_named(file, patterns)], read)
        if not any(log.rows for log in logs.values()):
            continue
        notes = notes_on_files(folder, files, logs)
        if read is read_table_log and has_row_per_run(logs, request):
            return tables_of(folder, logs, notes)
        return runs_of(logs, notes)
    names = ", ".join(pattern for patterns in READERS for pattern in patterns)
    raise Refused(f"there are no logs, a file per run; known are {names} (as programs print them)")


def read_logs(folder: Path, files: list[Path], read: Callable[[Path], Log]) -> dict[Path, Log]:
    """The logs in these files of a folder.  Raises `Refused` at the first one that cannot be read."""
    logs = {}
    for file in files:
        try:
            logs[file] = read(file)
        except FAULTS as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Refused(f"{file.relative_to(folder)}: it cannot be read ({reason})") from None
    return logs


def has_row_per_run(logs: dict[Path, Log], request: Request) -> bool:
    """Whether each row of these tables is a run: they have seeds, or no steps where runs need no seeds."""
    first_rows = pandas.DataFrame([row for log in logs.values() for row in log.rows[:1]])
    if request.seed_from in first_rows or seed_columns(first_rows):
        return True
    return request.unpaired and not choose_step(first_rows, request)


def notes_on_files(folder: Path, files: list[Path], logs: dict[Path, Log]) -> list[str]:
    """Notes on files that are not read, on last lines that are not, and on runs that seem to go on."""
    unread = [visible(str(file.relative_to(folder))) for file in files if file not in logs]
    unfinished = [visible(str(file.relative_to(folder))) for file, log in logs.items() if log.unfinished]
    notes = note(unread, "not read", "file")
    notes += note(unfinished, "with a last line that has no end, which is not read", "file")
    newest = max(file.stat().st_mtime for file in logs)
    if time.time() - newest < RECENT:
        again = "a verdict on runs that go on is one more look at them, and errs more often"
        notes.append(f"the newest log is less than {RECENT} s old: analyse the runs when all have ended, as {again}")
    return notes


def tables_of(folder: Path, logs: dict[Path, Log], notes: list[str]) -> Logged:
    """The rows of tables that have several runs each; the column `file` says of which table a row is."""
    parts = []
    for file, log in logs.items():
        name = visible(str(file.relative_to(folder).with_suffix("")))
        index = [f"{name}, row {number}" for number in range(1, len(log.rows) + 1)]
        parts.append(pandas.DataFrame(log.rows, index, dtype=object).assign(file=name))
    table = pandas.concat(parts).fillna("")
    return Logged(typed(table), table, [], notes, is_table=True)


def runs_of(logs: dict[Path, Log], notes: list[str]) -> Logged:
    """The runs of these files; of a run's checkpoints the one that logged most, so the last, counts."""
    last: dict[Path, Path] = {}
    for file in sorted(logs, key=lambda file: len(logs[file].rows)):
        folder = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
        last[folder / file.stem] = file
    if len({path.name for path in last}) == 1 < len(last):  # such as metrics.csv in a folder of each run
        last = {path.parent: file for path, file in last.items()}
    above = os.path.commonpath([path.parent for path in last])
    runs = []
    for path, file in sorted(last.items()):
        log = logs[file]
        facts = {"status": "failed"} if log.crashed or not log.rows else {}
        runs.append(Run(str(path.relative_to(above)), read_settings(file.parent) | log.settings, log.rows, facts))
    silent = [run.name for run in runs if not run.rows]
    runs.sort(key=lambda run: not run.rows)  # the first level of a factor is proposed as the reference
    return logged(runs, [*notes, *note(silent, "without a line that was read (with a step, or a metric), failed")])
