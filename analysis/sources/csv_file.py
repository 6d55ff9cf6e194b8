"""Runs from a tidy CSV: a row per run, or per run and step.

Columns are `seed` (an integer), `cell` or a column per factor, and metrics; optionally `step`, `status` (done,
diverged, failed, missing), `batches` (equal for runs with equal batches), `params`, `flops_per_token`, `tokens`,
`seconds`, `label`, `path`, `error`.  UTF-8, column names in the first line, numbers with a decimal point.
"""

import csv
import datetime
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from ablate.config.errors import Refused
from ablate.results.study import Study
from analysis.escape import unquoted, visible
from analysis.sources.columns import SHAPE, is_neither, some
from analysis.sources.logged import NUMBER, STATUSES, Logged, Origin, command, number, read_column, study_of
from analysis.sources.request import Request

TIDY = (
    "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric such as "
    "test/loss, e.g. by pandas: runs.to_csv('runs.csv', index=False); of runs on W&B write --wandb ENTITY/PROJECT"
)
SEED = re.compile(r"([+-]?\d{1,19})(\.0*)?")
TEXTS = ("batches", "path", "error")
STATUS_OF = {"": "done", **dict(zip(STATUSES, STATUSES, strict=True))}


def read_csv(file: Path, request: Request) -> Study:
    """The study of a CSV file.  Raises `Refused`, with one line that says how to fix it."""
    try:
        study, typed = request.described.study or file.stem, command("--runs", str(file), request)
        changed = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.UTC)
        origin = Origin(study, file.name, changed.isoformat(timespec="seconds"), typed)
        return study_of(_logged(_texts(file), request), request, origin)
    except OSError as error:
        raise Refused(f"{file}: it cannot be read ({error.strerror})") from None
    except Refused as error:
        raise Refused(f"{file}: {error}") from None


def _texts(file: Path) -> pandas.DataFrame:
    """The table as texts, indexed by line."""
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
    if "seed" not in names:
        raise Refused(f"there is no column seed, but {some(names)}; {TIDY}")
    table.index = pandas.Index([f"line {row + 1}" for row in table.index])
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return table


def _logged(table: pandas.DataFrame, request: Request) -> Logged:
    """The rows as both runs and steps, with seeds, steps and sizes as numbers.  Raises Refused."""
    if "step" in table and (table["step"] == "").all():
        table = table.drop(columns="step")
    kinds: dict[str, tuple[Callable[[str], Any], str]] = {"seed": (_seed, "a whole number of 64 bits")}
    kinds |= {"step": (_finite, "a number")}
    kinds |= dict.fromkeys(SHAPE, (number, NUMBER))
    kinds |= {"status": (STATUS_OF.__getitem__, f"one of {', '.join(STATUSES)}")}
    table = table.assign(**{name: read_column(table[name], *kinds[name]) for name in kinds if name in table})
    table = table.assign(**{name: table[name].where(table[name] != "", None) for name in TEXTS if name in table})
    wanted = (*request.factors, *request.described.factors)
    runs = table[[name for name in table if name in wanted or not is_neither(name)]]
    return Logged(runs, table.set_axis(range(len(table))))


def _seed(text: str) -> int:
    found = SEED.fullmatch(text)
    if found is None or abs(int(found[1])) >= 2**63:
        raise ValueError(text)
    return int(found[1])


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value
