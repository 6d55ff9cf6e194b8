"""Readers of what other programs log, by file name: each is a function from a file to its `Log`.

They read texts and numbers as they stand; what these mean is decided in `roles`.
"""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas

from ablate.config.errors import Corrupt, Refused
from ablate.config.files import MOST_TEXT, parse_json, parse_plain, read_regular, unreadable
from ablate.formatting import flat, unquoted, visible
from ablate.runs.logs import Log, read_log, text_of

TIDY = (
    "write a row per run (or per run and step) with the columns seed, one per factor, and a metric such as test/loss, "
    "e.g. by pandas: runs.to_csv('runs.csv', index=False)"
)
SETTINGS = ("hparams.yaml", "config.yaml", "config.json")  # beside a log
DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)")
CHART = r"(.+) - (.+?)(?:__MIN|__MAX)?"  # a column of a chart that W&B exported: run, metric
PYTHON_NAME = re.compile(r"!!python/name:(\S+)(?: '')?")
PYTHON_TAG = re.compile(r"!!python/\S+")
FAULTS = (Corrupt, Refused, OSError, ValueError)


def read_table(file: Path) -> pandas.DataFrame:
    """The rows of a CSV, JSON or JSON Lines file as texts, indexed by their lines.  Raises `Refused`."""
    try:
        text = text_of(read_regular(file))
    except UnicodeDecodeError:
        raise Refused("this is no table: it is not text in UTF-8 or UTF-16") from None
    is_json = file.suffix in (".jsonl", ".ndjson", ".json")
    table = read_objects(text) if is_json else read_separated(text)
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return table


def read_separated(text: str) -> pandas.DataFrame:
    """The rows of a CSV, separated by what its first line has most of.  Raises `Refused`."""
    head = text.lstrip().partition("\n")[0]
    separator = max(",;\t|", key=head.count)
    try:
        table = pandas.read_csv(
            io.StringIO(text),
            sep=separator,
            engine="python",  # names the line of a mistake
            header=None,
            index_col=False,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
        )
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error) as error:
        raise Refused(f"this is no tidy CSV ({error}); {TIDY}") from None
    table = table.fillna("").map(lambda field: unquoted(visible(" ".join(field.split()))))
    names = table.iloc[0]
    twice = names[names.duplicated()]
    if len(twice):
        raise Refused(f"two columns are called {twice.iloc[0] or '(unnamed)'}")
    table = table.iloc[1:].set_axis(list(names), axis=1)
    table.index = pandas.Index([f"line {row + 1}" for row in table.index])
    if separator != ",":  # there a comma could also separate thousands
        table = table.replace(DECIMAL_COMMA.pattern, r"\1.\2", regex=True)
    return table


def read_objects(text: str) -> pandas.DataFrame:
    """The objects of a JSON text: a list, a table of W&B with `columns` and `data`, or one object a line.  Raises
    `Refused`."""
    try:
        content = parse_json(text)
    except ValueError:
        content = parse_json_lines(text)
    if isinstance(content, dict) and {"columns", "data"} <= content.keys():
        try:
            objects = [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
        except (TypeError, ValueError):
            raise Refused(f"this is no table: its rows do not have the columns that it names; {TIDY}") from None
    elif isinstance(content, list):
        objects = content
    else:
        objects = [content]
    if not all(isinstance(value, dict) for value in objects):
        raise Refused(f"this is no table: it holds other values than objects; {TIDY}")
    return texts_of(objects, [f"row {number}" for number in range(1, len(objects) + 1)])


def parse_json_lines(text: str) -> list[Any]:
    """The value of each line that is not blank.  Raises `Refused`."""
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            values.append(parse_json(line))
        except ValueError as error:
            raise Refused(f"line {number}: this is no JSON ({error})") from None
    return values


def texts_of(rows: list[dict[str, Any]], index: list[str]) -> pandas.DataFrame:
    """A table of settings or values as texts: "" where there is none."""
    texts = [{visible(str(name)): as_text(value) for name, value in flat(row).items()} for row in rows]
    return pandas.DataFrame(texts, index, dtype=object).fillna("")


def as_text(value: Any) -> str:
    """A setting as a text: empty for None, lists as JSON."""
    if value is None:
        return ""
    return visible(json.dumps(value, sort_keys=True) if isinstance(value, list) else str(value))


def read_chart(table: pandas.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The rows of each run in a chart that W&B exported, with a column per run, and its extremes, which are left out;
    empty if the table is none."""
    step = table.columns[0]
    columns = pandas.Series(table.columns[1:])
    if columns.empty or not columns.str.fullmatch(CHART).all():
        return {}
    columns = columns[~columns.str.contains("__MIN$|__MAX$")]
    points = table.melt(step, columns)
    points[["run", "metric"]] = points["variable"].str.extract(f"^{CHART}$")
    points = points[points["value"] != ""]
    rows = points.pivot(index=["run", step], columns="metric", values="value").fillna("").reset_index(step)
    return {str(run): rows.loc[[run]].to_dict("records") for run in points["run"].unique()}


def read_table_log(file: Path) -> Log:
    """A table of one run: `metrics.csv` of Lightning, `metrics.jsonl` of many."""
    return Log({}, read_table(file).to_dict("records"))


def read_trainer(file: Path) -> Log:
    """`trainer_state.json` of Hugging Face's Trainer.  Raises ValueError."""
    state = parse_json(read_regular(file))
    rows = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("this is no state of a Trainer that has logged: it has no log_history")
    return Log({}, rows)


def read_printed(file: Path) -> Log:
    """What a program printed."""
    return read_log(text_of(read_regular(file), "replace"))


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings in the first of `SETTINGS` in a folder.  Lightning's tags of Python are left out: a tuple is a list.
    Raises `Corrupt`."""
    for name in SETTINGS:
        try:
            text = read_regular(folder / name, MOST_TEXT).decode(errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise unreadable(folder / name, error) from None
        text = PYTHON_TAG.sub("", PYTHON_NAME.sub(r"\1", text))
        content = parse_plain(text, str(folder / name))
        return content if isinstance(content, dict) else {}
    return {}


# The first kind of which there are logs is read; in a folder of several kinds the others are named.
READERS: dict[tuple[str, ...], Callable[[Path], Log]] = {
    ("trainer_state.json",): read_trainer,
    ("metrics.csv",): read_table_log,
    ("*.csv", "*.tsv"): read_table_log,
    ("*.jsonl", "*.ndjson"): read_table_log,
    ("*.log", "*.txt", "*.out"): read_printed,
}
