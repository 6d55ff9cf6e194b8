"""Runs from a tidy CSV, or from a folder of logs of other programs, a file per run: `trainer_state.json` of Hugging
Face's Trainer, `metrics.csv` of Lightning, other CSVs, or the output of nanoGPT.

Settings are those in a file beside the log (`hparams.yaml`, `config.yaml`, `config.json`), and those that nanoGPT
prints.  A run's name is the path of its file, or of its folder if all files have one name.
"""

import datetime
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.errors import Corrupt, Refused
from ablate.config.files import read_plain, read_regular
from ablate.formatting import counted, is_number
from ablate.results.study import Study
from analysis.sources.columns import few
from analysis.sources.csv_file import read_csv, texts
from analysis.sources.logged import Logged, Run, logged, study_of
from analysis.sources.request import Request

SETTINGS = ("hparams.yaml", "config.yaml", "config.json")
OVERRIDE = re.compile(r"Overriding: (\S+) = (.*)")  # of nanoGPT
LINE = re.compile(r"(?:step|iter) (\d+): (.*)")
VALUE = re.compile(r"([a-z][a-z ]*) (-?[\d.]+(?:e[+-]?\d+)?|-?inf|nan)")


class Log(NamedTuple):
    """The content of a file: settings, what was logged, and whether the run stopped before its last step."""

    config: dict[str, Any]
    rows: list[dict[str, Any]]
    short: bool = False


def read_runs(path: Path, request: Request) -> Study:
    """The study of a tidy CSV, or of a folder with a log per run.  Raises `Refused`, with one line."""
    try:
        name = path.resolve().name if path.is_dir() else path.stem
        changed = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC).isoformat(timespec="seconds")
        found, name = read_folder(path) if path.is_dir() else read_csv(path), request.described.study or name
        return study_of(found, request, name, path.name, changed, request.command("--runs", str(path)))
    except OSError as error:
        raise Refused(f"{path}: it cannot be read ({error.strerror})") from None
    except Refused as error:
        raise Refused(f"{path}: {error}") from None


def read_folder(folder: Path) -> Logged:
    """The runs whose logs are in a folder, at any depth.  Raises `Refused` at the first that cannot be read."""
    for patterns, read in PROGRAMS.items():
        files = sorted({file for pattern in patterns.split() for file in folder.rglob(pattern) if file.is_file()})
        if found := {file: log for file in files if (log := _log(file, folder, read)).rows}:
            return _runs(found)
    raise Refused(f"there are no logs, a file per run; known are {', '.join(PROGRAMS)} (as nanoGPT prints it)")


def _log(file: Path, folder: Path, read: Callable[[Path], Log]) -> Log:
    try:
        return read(file)
    except json.JSONDecodeError:
        raise Refused(
            f"{file.relative_to(folder)}: this is not all of a JSON file; take the run away, or write it anew"
        ) from None
    except (OSError, ValueError, Refused, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or " ".join(str(error).split())
        raise Refused(f"{file.relative_to(folder)}: {why}") from None


def _runs(found: dict[Path, Log]) -> Logged:
    """The runs of these files; of a run's checkpoints the one that logged most, so the last, counts."""
    last: dict[Path, tuple[Path, Log]] = {}
    for file, log in sorted(found.items(), key=lambda each: len(each[1].rows)):
        whose = file.parent.parent if file.parent.name.startswith("checkpoint-") else file.parent
        last[whose / file.stem] = (file, log)
    if len({whose.name for whose in last}) == 1 < len(last):
        last = {whose.parent: each for whose, each in last.items()}
    above = os.path.commonpath([whose.parent for whose in last])
    runs = [
        Run(
            str(whose.relative_to(above)),
            _settings(file.parent) | log.config,
            log.rows,
            {"status": "missing" if log.short else "done"},
        )
        for whose, (file, log) in sorted(last.items())
    ]
    early = [run.name for run in runs if run.facts["status"] == "missing"]
    note = f"{counted(len(early), 'run')} stopped before max_steps, counted as missing: {few(early)}"
    return logged(runs, [note] * bool(early))


def _settings(folder: Path) -> dict[str, Any]:
    """The settings in a run's folder.  Raises `Refused`."""
    file = next((folder / name for name in SETTINGS if (folder / name).is_file()), None)
    try:
        found = read_plain(file) if file else {}
    except Corrupt as error:
        raise Refused(str(error)) from None
    return found if isinstance(found, dict) else {}


def _trainer(file: Path) -> Log:
    state = json.loads(read_regular(file))
    rows = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("this is no state of a Trainer that has logged: it has no log_history")
    ended, planned = state.get("global_step"), state.get("max_steps")
    return Log({}, rows, is_number(ended) and is_number(planned) and ended < planned)


def _csv(file: Path) -> Log:
    return Log({}, texts(file).to_dict("records"))


def _output(file: Path) -> Log:
    """What nanoGPT printed, without an unfinished last line; its losses are named as its W&B runs have them."""
    lines = [line.strip() for line in read_regular(file).decode(errors="replace").split("\n")[:-1]]
    config = {found[1]: found[2] for line in lines if (found := OVERRIDE.fullmatch(line))}
    logged = [found.groups() for line in lines if (found := LINE.fullmatch(line))]
    return Log(config, [{"iter": at} | {k.replace(" ", "/"): v for k, v in VALUE.findall(rest)} for at, rest in logged])


PROGRAMS: dict[str, Callable[[Path], Log]] = {
    "trainer_state.json": _trainer,
    "metrics.csv": _csv,
    "*.csv": _csv,
    "*.log *.txt *.out": _output,
}
