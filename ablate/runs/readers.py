"""Readers of what training programs write: each is a function from a file to its `Log`, chosen by the file's name.

They read texts and numbers as they stand; what these mean is decided by who asks.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

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
PYTHON_NAME = re.compile(r"!!python/name:(\S+)(?: '')?")
PYTHON_TAG = re.compile(r"!!python/\S+")
FAULTS = (Corrupt, Refused, OSError, ValueError)  # of a file that cannot be read
Texts = dict[str, str]


def read_table(file: Path) -> dict[str, Texts]:
    """The rows of a CSV, JSON or JSON Lines file as texts, by what messages call them, such as line 2.  Raises
    `Refused`."""
    try:
        text = text_of(read_regular(file))
    except UnicodeDecodeError:
        raise Refused("this is no table: it is not text in UTF-8 or UTF-16") from None
    is_json = file.suffix in (".jsonl", ".ndjson", ".json")
    rows = read_objects(text) if is_json else read_separated(text)
    rows = {label: row for label, row in rows.items() if any(row.values())}
    if not rows:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return rows


def read_separated(text: str) -> dict[str, Texts]:
    """The rows of a CSV, separated by what its first line has most of.  Raises `Refused`."""
    text = text.lstrip()
    head = text.partition("\n")[0]
    separator = max(",;\t|", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = {}
    try:
        names = [clean(field) for field in next(reader, [])]
        for name in names:
            if names.count(name) > 1:
                raise Refused(f"two columns are called {name or '(unnamed)'}")
        for fields in reader:
            if len(fields) > len(names):
                what = f"line {reader.line_num} has {len(fields)} fields, and there are {len(names)} columns"
                raise Refused(f"this is no tidy CSV ({what}); {TIDY}")
            values = [clean(field) for field in fields]
            if separator != ",":  # there a comma could also separate thousands
                values = [with_decimal_point(value) for value in values]
            values += [""] * (len(names) - len(values))
            rows[f"line {reader.line_num}"] = dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise Refused(f"this is no tidy CSV ({error}); {TIDY}") from None
    return rows


def clean(field: str) -> str:
    """A field of a CSV without quotes and superfluous blanks."""
    return unquoted(visible(" ".join(field.split())))


def with_decimal_point(value: str) -> str:
    """A number with a decimal comma as one with a point; other texts as they are."""
    number = DECIMAL_COMMA.fullmatch(value)
    return f"{number[1]}.{number[2]}" if number else value


def read_objects(text: str) -> dict[str, Texts]:
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
    return {f"row {number}": as_texts(value) for number, value in enumerate(objects, 1)}


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


def as_texts(row: dict[str, Any]) -> Texts:
    """Settings or values as texts by dotted name: empty for None, lists as JSON."""
    texts = {}
    for name, value in flat(row).items():
        if value is None:
            text = ""
        elif isinstance(value, list):
            text = json.dumps(value, sort_keys=True)
        else:
            text = str(value)
        texts[visible(str(name))] = visible(text)
    return texts


def read_table_log(file: Path) -> Log:
    """A table of one run: `metrics.csv` of Lightning, `metrics.jsonl` of many.  Raises `Refused`."""
    rows = [dict[str, float | str](row) for row in read_table(file).values()]
    return Log({}, rows)


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


def is_named(file: Path, patterns: Iterable[str]) -> bool:
    """Whether a file's name fits one of these patterns."""
    return any(file.match(pattern) for pattern in patterns)
