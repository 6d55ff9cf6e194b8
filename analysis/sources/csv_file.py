"""Runs from a tidy CSV: a row per run, or per run and step.

Columns are `seed` (an integer), `cell` or a column per factor, and metrics; optionally `step`, `status` (done,
diverged, failed, missing), `batches` (equal for runs with equal batches), `params`, `flops_per_token`, `tokens`,
`seconds`, `label`, `path`, `error`.  UTF-8, column names in the first line, numbers with a decimal point.
"""

import csv
from pathlib import Path

import pandas

from ablate.config.errors import Refused
from analysis.escape import unquoted, visible
from analysis.sources.columns import KEYS, NUMBER, SHAPE, TIDY, direction, number, read_column, some
from analysis.sources.logged import STATUSES, Logged

TEXTS = ("batches", "path", "error")
NAMES = ("name", "Name", "run", "run_name", "run_id")  # columns that name a run
STATUS_OF = {"": "done", **dict(zip(STATUSES, STATUSES, strict=True))}


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
    for name in (name for name in SHAPE if name in table):
        table[name] = read_column(table[name], where, number, NUMBER)
    for name in (name for name in TEXTS if name in table):
        table[name] = table[name].where(table[name] != "", None)
    names: list[str] = next((table[name].tolist() for name in NAMES if name in table), [])
    return Logged(table, table, where, names, notes, tidy=True)


def texts(file: Path) -> pandas.DataFrame:
    """The table of a CSV as texts, indexed by line.  Raises `Refused`."""
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
