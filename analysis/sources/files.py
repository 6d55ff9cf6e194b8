"""Runs from a tidy CSV, or from a folder of logs of other programs, a file per run: `trainer_state.json` of Hugging
Face's Trainer, `metrics.csv` of Lightning, other CSVs, or the output of nanoGPT.

Settings are those in a file beside the log (`hparams.yaml`, `config.yaml`, `config.json`), and those that nanoGPT
prints.  A run's name is the path of its file, or of its folder if all files have one name.
"""

import csv
import datetime
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from ablate.config.errors import Corrupt, Refused
from ablate.config.files import parse_json, read_plain, read_regular
from ablate.formatting import is_number, unquoted, visible
from ablate.runs.records import STATUSES
from ablate.runs.study import Study
from analysis.sources import Request
from analysis.sources.columns import KEYS, NUMBER, SHAPE, TIDY, direction, note, number, read_column, some
from analysis.sources.logged import Logged, Run, logged, study_of

SETTINGS = ("hparams.yaml", "config.yaml", "config.json")
OVERRIDE = re.compile(r"Overriding: (\S+) = (.*)")  # of nanoGPT
LINE = re.compile(r"(?:step|iter) (\d+): (.*)")
VALUE = re.compile(r"([a-z][a-z ]*) (-?[\d.]+(?:e[+-]?\d+)?|-?inf|nan)")
TEXTS = ("batches", "path", "error")
NAMES = ("name", "Name", "run", "run_name", "run_id")  # columns that name a run
STATUS_OF = {"": "done", **dict(zip(STATUSES, STATUSES, strict=True))}


def read_runs(path: Path, request: Request) -> Study:
    """The study of a tidy CSV, or of a folder with a log per run.  Raises `Refused`, with one line."""
    try:
        name = request.described.study or (path.resolve().name if path.is_dir() else path.stem)
        changed = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
        found = read_folder(path) if path.is_dir() else read_csv(path)
        return study_of(found, request, name, path.name, changed, request.command("--runs", str(path)))
    except OSError as error:
        raise Refused(f"{path}: it cannot be read ({error.strerror})") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None


def read_csv(file: Path) -> Logged:
    """The rows of a CSV as both runs and steps, with status and sizes as numbers.  Raises `Refused`."""
    table = texts(file)
    where = pandas.Series(table.index)
    table = table.reset_index(drop=True)
    empty = [name for name in table if (table[name] == "").all()]
    unused = [name for name in empty if name not in KEYS and direction(name) is not None]
    notes = [f"columns without a value, left out: {some(unused)}"] * bool(unused)
    table = table.drop(columns=empty)
    if "status" in table:
        wanted = f"one of {', '.join(STATUSES)}"
        table["status"] = read_column(table["status"], where, STATUS_OF.__getitem__, wanted)
    for name in table.columns.intersection(SHAPE):
        table[name] = read_column(table[name], where, number, NUMBER)
    for name in table.columns.intersection(TEXTS):
        table[name] = table[name].where(table[name] != "", None)
    names: list[str] = next((table[name].tolist() for name in NAMES if name in table), [])
    return Logged(table, table, where, names, notes, tidy=True)


def texts(file: Path) -> pandas.DataFrame:
    """The table of a CSV as texts, indexed by line.  Raises `Refused`."""
    form: dict[str, Any] = {"sep": None, "engine": "python", "encoding": "utf-8-sig", "header": None}
    as_texts: dict[str, Any] = {"dtype": str, "keep_default_na": False, "index_col": False}
    try:
        table = pandas.read_csv(io.BytesIO(read_regular(file)), skip_blank_lines=False, **form, **as_texts).fillna("")
    except UnicodeDecodeError:
        raise Refused("this is no CSV: it is not text in UTF-8") from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error) as error:
        raise Refused(f"this is no tidy CSV ({error}); {TIDY}") from None
    table = table.map(lambda text: unquoted(visible(" ".join(text.split()))))
    names = list(table.iloc[0])
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refused(f"two columns are called {twice[0] or '(unnamed)'}")
    table = table.iloc[1:].set_axis(names, axis=1)
    table.index = pandas.Index([f"line {row + 1}" for row in table.index])
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return table


def read_folder(folder: Path) -> Logged:
    """The runs whose logs are in a folder, at any depth.  Raises `Refused` at the first that cannot be read."""
    for patterns, read in PROGRAMS.items():
        files = sorted({file for pattern in patterns.split() for file in folder.rglob(pattern) if file.is_file()})
        found: dict[Path, Run] = {}
        for file in files:
            beside = (file.parent / name for name in SETTINGS)
            try:
                if (run := read(file)).rows:
                    settings: Any = next((read_plain(each) for each in beside if each.is_file()), {})
                    config = settings if isinstance(settings, dict) else {}
                    found[file] = run._replace(config={**config, **run.config})
            except Corrupt as error:
                raise Refused(str(error)) from None
            except json.JSONDecodeError:
                why = "this is not all of a JSON file; take the run away, or write it anew"
                raise Refused(f"{file.relative_to(folder)}: {why}") from None
            except (OSError, ValueError, Refused) as error:
                why = (error.strerror if isinstance(error, OSError) else "") or " ".join(str(error).split())
                raise Refused(f"{file.relative_to(folder)}: {why}") from None
        if found:
            return _runs(found)
    raise Refused(f"there are no logs, a file per run; known are {', '.join(PROGRAMS)} (as nanoGPT prints it)")


def _runs(found: dict[Path, Run]) -> Logged:
    """The runs of these files; of a run's checkpoints the one that logged most, so the last, counts."""
    last: dict[Path, Run] = {}
    for file, run in sorted(found.items(), key=lambda each: len(each[1].rows)):
        whose = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
        last[whose / file.stem] = run
    if len({whose.name for whose in last}) == 1 < len(last):
        last = {whose.parent: run for whose, run in last.items()}
    above = os.path.commonpath([whose.parent for whose in last])
    runs = [run._replace(name=str(whose.relative_to(above))) for whose, run in sorted(last.items())]
    early = [run.name for run in runs if run.facts.get("status") == "missing"]
    return logged(runs, note(early, "stopped before max_steps, counted as missing"))


def _trainer(file: Path) -> Run:
    state = parse_json(read_regular(file))
    rows = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("this is no state of a Trainer that has logged: it has no log_history")
    ended, planned = state.get("global_step"), state.get("max_steps")
    short = is_number(ended) and is_number(planned) and ended < planned
    return Run("", {}, rows, {"status": "missing" if short else "done"})


def _output(file: Path) -> Run:
    """What nanoGPT printed, without an unfinished last line; its losses are named as its W&B runs have them."""
    lines = [line.strip() for line in read_regular(file).decode(errors="replace").split("\n")[:-1]]
    config = {found[1]: found[2] for line in lines if (found := OVERRIDE.fullmatch(line))}
    logged = [found.groups() for line in lines if (found := LINE.fullmatch(line))]
    rows = [{"iter": at} | {k.replace(" ", "/"): v for k, v in VALUE.findall(rest)} for at, rest in logged]
    return Run("", config, rows)


PROGRAMS: dict[str, Callable[[Path], Run]] = {
    "trainer_state.json": _trainer,
    "metrics.csv": lambda file: Run("", {}, texts(file).to_dict("records")),
    "*.csv": lambda file: Run("", {}, texts(file).to_dict("records")),
    "*.log *.txt *.out": _output,
}
