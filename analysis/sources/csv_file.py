"""Runs from a tidy CSV: a row per run, or per run and step.

`seed` (a whole number), `cell` or a column per factor, and metrics; optionally `step`, `status` (done, diverged,
failed, missing), `batches` (equal where two runs saw equal batches), `params`, `flops_per_token`, `tokens`, `seconds`,
`label`, `path`, `error`.  UTF-8, names of columns in the first line; numbers with a decimal point and no other sign.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ablate.config.errors import Refused
from ablate.results.study import Study
from analysis.escape import unquoted, visible
from analysis.sources.columns import SHAPE, asked_factors, choose_metrics, found_factors, is_neither, levels, some
from analysis.sources.manifest import Origin, assemble, command, when
from analysis.sources.request import Asked
from analysis.sources.study_file import claimed_metrics, wanted_factors

TIDY = (
    "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric such as "
    "test/loss, e.g. by pandas: runs.to_csv('runs.csv', index=False); of runs on W&B write --wandb ENTITY/PROJECT"
)
SEED = re.compile(r"([+-]?\d{1,19})(\.0*)?")
TEXTS = ("batches", "path", "error")
STATUSES = ("done", "diverged", "failed", "missing")


def read_csv(file: Path, asked: Asked) -> Study:
    """The study that a CSV file holds.  Raises `Refused` in one line that says what to write."""
    try:
        table = _texts(file)
        names = list(table.columns)
        metrics = choose_metrics(names, list(asked.metrics), claimed_metrics(asked.described))
        table = _typed(table, metrics)
        factors, left = _factors(table, metrics, wanted_factors(asked, names))
    except Refused as error:
        raise Refused(f"{file}: {error}") from None
    notes = [f"columns that are neither factor nor metric, left out: {some(left)}"] * bool(left)
    table = table if "status" in table else table.assign(status="done")
    for name in factors:
        own = table[name] if name == "cell" else levels(table[name])
        table[name] = pandas.Series(list(own), table.index, dtype=object)
    table.index = pandas.Index([f"line {line}" for line in table.index])
    origin = Origin(asked.described.study or file.stem, file.name, when(file), command("--runs", str(file), asked))
    try:
        return assemble(table, factors, metrics, asked, origin, notes)
    except Refused as error:
        raise Refused(f"{file}: {error}") from None


def _texts(file: Path) -> pandas.DataFrame:
    """The table as texts; the index is the line of each row."""
    try:
        table = pandas.read_csv(
            file,
            sep=None,
            engine="python",
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            index_col=False,
            header=None,
            encoding="utf-8-sig",
        ).fillna("")
    except UnicodeDecodeError:
        raise Refused("this is no CSV: it is not text in UTF-8") from None
    except OSError as error:
        raise Refused(f"it cannot be read ({error.strerror})") from None
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error) as error:
        raise Refused(f"this is no tidy CSV ({error}); {TIDY}") from None
    table = table.map(lambda text: unquoted(visible(" ".join(text.split()))))
    names = list(table.iloc[0])
    if twice := [name for name in names if names.count(name) > 1]:
        raise Refused(f"two columns are called {twice[0] or '(unnamed)'}")
    table = table.iloc[1:].set_axis(names, axis=1)
    table.index = table.index + 1
    if "seed" not in names:
        raise Refused(f"there is no column seed, but {some(names)}; {TIDY}")
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return table


def _typed(table: pandas.DataFrame, metrics: list[str]) -> pandas.DataFrame:
    """Seeds, steps, metrics and budgets as numbers.  Raises Refused for the first field that is none."""
    if "step" in table and (table["step"] == "").all():
        table = table.drop(columns="step")
    made: dict[str, Any] = {"seed": _read(table["seed"], _seed, "a whole number of 64 bits")}
    numeric = [name for name in (*metrics, *SHAPE, "tokens", "seconds") if name in table]
    for name in dict.fromkeys(numeric):
        made[name] = _read(table[name], _number, "a number; write a decimal point and no other sign")
    if "step" in table:
        made["step"] = _read(table["step"], _finite, "a number")
    if "status" in table:
        made["status"] = _read(table["status"], _status, f"one of {', '.join(STATUSES)}")
    made |= {name: table[name].where(table[name] != "", None) for name in TEXTS if name in table}
    return table.assign(**made)


def _read(column: pandas.Series, read: Callable[[str], Any], wanted: str) -> list[Any]:
    """Every field of a column as `read` takes it.  Raises Refused with the first that it does not take."""
    found = []
    for line, text in column.items():
        try:
            found.append(read(text))
        except ValueError:
            raise Refused(f"line {line}: {column.name} is “{text[:20]}”, which is not {wanted}") from None
    return found


def _seed(text: str) -> int:
    found = SEED.fullmatch(text)
    if found is None or abs(int(found[1])) >= 2**63:
        raise ValueError(text)
    return int(found[1])


def _finite(text: str) -> float:
    if not np.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _number(text: str) -> float:
    """A number, infinite where it was not finite, NaN where nothing is."""
    value = float(text or "nan")
    return value if not text or np.isfinite(value) else np.inf


def _status(text: str) -> str:
    if (text or "done") not in STATUSES:
        raise ValueError(text)
    return text or "done"


def _factors(table: pandas.DataFrame, metrics: list[str], asked: list[str]) -> tuple[list[str], list[str]]:
    """The factors, those asked for or else found, and what varies beside them."""
    if asked:
        return asked_factors(list(table.columns), metrics, asked), []
    likely = table.drop(columns=[name for name in table if name not in metrics and is_neither(name)])
    factors, left = found_factors(likely, metrics)
    if not factors:
        raise Refused(f"no column is a factor; name those that are with --factors; there are {some(table.columns)}")
    return factors, left
