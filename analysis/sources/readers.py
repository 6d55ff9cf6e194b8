"""Readers of what other programs log: each is a function from a file to the settings and the logged rows of one run.

`READERS` has them by file name.  They read texts and numbers as they stand; what these mean is decided in `columns`.
Nothing here needs the rest of the analysis.
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
from ablate.formatting import flat, is_number, unquoted, visible

Row = dict[str, Any]
Log = tuple[Row, list[Row]]  # settings, and what was logged, in order
SETTINGS = ("hparams.yaml", "config.yaml", "config.json")
TIDY = (
    "write a row per run (or per run and step) with the columns seed, cell or one per factor, and a metric such as "
    "test/loss, e.g. by pandas: runs.to_csv('runs.csv', index=False); of runs on W&B write --wandb ENTITY/PROJECT"
)
LOWER = {"loss", "bpb", "bpc", "perplexity", "ppl", "error", "err", "nll", "mse", "rmse", "mae", "wer", "cer", "fid"}
HIGHER = {"accuracy", "acc", "exact", "em", "f1", "bleu", "rouge", "auc", "auroc", "reward", "success", "mcc"}

# Text that programs print
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
OVERRIDE = re.compile(r"Overriding: (\S+) = (.*)")  # of nanoGPT and nanochat
RANK = re.compile(r"\[?(?:rank|default) ?(\d+)\]?:|^\s*(\d+): ", re.IGNORECASE)  # of torchrun, of srun --label
STEP = re.compile(r"\b(?:step|iter|iteration)\b[ :=#]*(\d+)(?: ?/ ?\d+)?(?![\w.])", re.IGNORECASE)
EPOCH = re.compile(r"\b(?:epoch)\b[ :=#]*(\d+(?:\.\d+)?)(?: ?/ ?\d+)?(?![\w.])", re.IGNORECASE)
VALUE = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|[+-]?(?:inf|nan))(?:ms|s|m|%)?(?![\w.]|,\d)"
NAME = r"([a-z][\w/.]*(?: [a-z][\w/.]*)*)"
PAIR = re.compile(rf"{NAME}\s*[:=]?\s*{VALUE}", re.IGNORECASE)  # train loss 4.2
ASSIGNED = re.compile(rf"{NAME}\s*[:=]\s*{VALUE}", re.IGNORECASE)  # val_bpb: 0.9979
BESTS = ("min", "minimum", "max", "maximum", "best", "lowest")  # of what was logged before
CRASH = "Traceback (most recent call last)"

# W&B's export of a chart has a column per run, with its extremes beside it.
CHART = re.compile(r"(.+) - (.+?)(__MIN|__MAX)?")
PYTHON_NAME = re.compile(r"!!python/name:(\S+)(?: '')?")
PYTHON_TAG = re.compile(r"!!python/\S+")


def words_of(name: str) -> list[str]:
    """The words in a metric's name, without an evaluation length such as @128."""
    return re.split(r"[^a-z0-9]+", name.split("@")[0].lower())


def direction(metric: str) -> bool | None:
    """Whether lower values of a metric are better, by the words in its name; None if these do not say."""
    words = set(words_of(metric))
    is_lower = bool(words & LOWER)
    is_higher = bool(words & HIGHER)
    return None if is_lower == is_higher else is_lower


def text_of(file: Path, errors: str = "strict") -> str:
    """The text of a file in UTF-8 or UTF-16.  Raises OSError and UnicodeDecodeError."""
    data = read_regular(file)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors)
    if data[1:2] == b"\0" and data[3:4] == b"\0":
        return data.decode("utf-16-le", errors)
    return data.decode("utf-8-sig", errors)


def read_table(file: Path) -> pandas.DataFrame:
    """The rows of a CSV, JSON or JSON Lines file as texts, indexed by line.  Raises `Refused`."""
    try:
        text = text_of(file)
    except UnicodeDecodeError:
        raise Refused("this is no table: it is not text in UTF-8 or UTF-16") from None
    is_json = file.suffix in (".jsonl", ".ndjson", ".json")
    table = _objects(text) if is_json else _separated(text)
    table = table[(table != "").any(axis=1)]
    if table.empty:
        raise Refused(f"there are no rows below the names of the columns; {TIDY}")
    return table


def _separated(text: str) -> pandas.DataFrame:
    head = text.lstrip().split("\n", 1)[0]
    separator = max(",;\t|", key=head.count)
    form: dict[str, Any] = {"sep": separator, "engine": "python", "header": None, "skip_blank_lines": False}
    as_texts: dict[str, Any] = {"dtype": str, "keep_default_na": False, "index_col": False}
    try:
        table = pandas.read_csv(io.StringIO(text), **form, **as_texts).fillna("")
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, csv.Error) as error:
        raise Refused(f"this is no tidy CSV ({error}); {TIDY}") from None
    table = table.map(lambda cell: unquoted(visible(" ".join(cell.split()))))
    names = list(table.iloc[0])
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Refused(f"two columns are called {twice[0] or '(unnamed)'}")
    table = table.iloc[1:].set_axis(names, axis=1)
    table.index = pandas.Index([f"line {row + 1}" for row in table.index])
    for name in table if separator != "," else ():  # there a comma in a cell could also separate thousands
        table[name] = table[name].str.replace(r"^([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)$", r"\1.\2", regex=True)
    return table


def _objects(text: str) -> pandas.DataFrame:
    """The objects of a JSON text: a list, a table of W&B with `columns` and `data`, or one object a line."""
    try:
        values = {1: parse_json(text)}
    except ValueError:
        values = {}
        for number, line in enumerate(text.splitlines(), 1):
            try:
                values |= {number: parse_json(line)} if line.strip() else {}
            except ValueError as error:
                raise Refused(f"line {number}: this is no JSON ({error})") from None
    rows: list[Any] = []
    lines: list[str] = []
    for number, value in values.items():
        if isinstance(value, dict) and isinstance(value.get("columns"), list) and isinstance(value.get("data"), list):
            value = [dict(zip(value["columns"], row, strict=False)) for row in value["data"] if isinstance(row, list)]
        rows += value if isinstance(value, list) else [value]
        lines += [f"line {number}"] * (len(rows) - len(lines))
    if not all(isinstance(row, dict) for row in rows):
        raise Refused(f"this is no table: it holds other values than objects; {TIDY}")
    texts = [{visible(str(name)): visible(as_text(value)) for name, value in flat(row).items()} for row in rows]
    return pandas.DataFrame(texts, lines, dtype=object).fillna("")


def as_text(value: Any) -> str:
    """A setting as a text: empty for None, lists as JSON."""
    if value is None:
        return ""
    return json.dumps(value, sort_keys=True) if isinstance(value, list) else str(value)


def runs_of_chart(table: pandas.DataFrame) -> dict[str, list[Row]]:
    """The rows of each run in a chart that W&B exported; empty if the table is none."""
    columns = [(name, CHART.fullmatch(name)) for name in table.columns[1:]]
    if not columns or not all(fit for _, fit in columns):
        return {}
    step = table.columns[0]
    runs: dict[str, dict[str, Row]] = {}
    for name, fit in columns:
        if fit is None or fit[3]:
            continue
        logged = table.loc[table[name] != "", [step, name]]
        for at, value in logged.itertuples(index=False):
            row = runs.setdefault(fit[1], {}).setdefault(at, {step: at})
            row[fit[2]] = value
    return {name: list(rows.values()) for name, rows in runs.items()}


def read_table_log(file: Path) -> Log:
    """A table of one run: `metrics.csv` of Lightning, `metrics.jsonl` of many."""
    return {}, read_table(file).to_dict("records")


def read_trainer(file: Path) -> Log:
    """`trainer_state.json` of Hugging Face's Trainer.  Raises ValueError."""
    state = parse_json(read_regular(file))
    rows = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError("this is no state of a Trainer that has logged: it has no log_history")
    ended = state.get("global_step")
    planned = state.get("max_steps")
    stopped = is_number(ended) and is_number(planned) and ended < planned
    return ({"stopped_at": ended} if stopped else {}), rows


def read_printed(file: Path) -> Log:
    """What a program printed: lines with a step and values, as nanoGPT, nanochat and modded-nanogpt print them, or the
    values alone at the end, as autoresearch does.  A last line without an end is unfinished, and is not read.

    Time stamps, colours and ranks may stand in front of a line; of several ranks the first counts.
    """
    settings: Row = {}
    rows: list[Row] = []
    before: Row = {}  # values in lines without a step, above the first that has one
    crashed = False
    for raw in re.split(r"\r\n|\n|\r", text_of(file, "replace"))[:-1]:
        line = COLOUR.sub("", raw).replace("'", "").replace('"', "").strip()
        rank = RANK.search(line)
        if rank and int(rank[1] or rank[2] or 0) > 0:
            continue
        override = OVERRIDE.search(line)
        if override:
            settings[override[1]] = override[2]
            continue
        crashed = crashed or CRASH in line
        step = STEP.search(line)
        epoch = EPOCH.search(line)
        place = step or epoch
        if place:
            values = _values(PAIR, line[place.end() :]) | _metrics(line[: place.start()])
            if values:
                rows.append({"step" if step else "epoch": place[1]} | values)
                crashed = False
        elif rows:
            rows[-1] |= _metrics(line)
        else:
            before |= _metrics(line)
    rows = rows or ([before] if before else [])
    if crashed and rows:
        rows[-1]["status"] = "failed"
    return settings, rows


def _values(pattern: re.Pattern[str], text: str) -> Row:
    """The values in a line by name: `train/loss` for "train loss 4.2", as nanoGPT's runs on W&B have it."""
    values = {}
    for name, value in pattern.findall(text):
        called = name.lower().replace(" ", "/")
        if words_of(called)[0] not in BESTS:
            values[called] = value
    return values


def _metrics(text: str) -> Row:
    """The values of a line without a step whose name ends as that of a metric: val_bpb, and not val_loss_every."""
    values = _values(ASSIGNED, text)
    return {name: value for name, value in values.items() if words_of(name)[-1] in LOWER | HIGHER}


def read_settings(folder: Path) -> Row:
    """The settings in the first of `SETTINGS` in a folder.  Lightning's tags of Python are left out: a tuple is a list.
    Raises `Corrupt`."""
    for file in (folder / name for name in SETTINGS):
        try:
            text = read_regular(file, MOST_TEXT).decode(errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            raise unreadable(file, error) from None
        text = PYTHON_TAG.sub("", PYTHON_NAME.sub(r"\1", text))
        content = parse_plain(text, str(file))
        return content if isinstance(content, dict) else {}
    return {}


# The first kind of which there are logs is read; in a folder of several kinds the others are named.
READERS: dict[str, Callable[[Path], Log]] = {
    "trainer_state.json": read_trainer,
    "metrics.csv": read_table_log,
    "*.csv *.tsv": read_table_log,
    "*.jsonl *.ndjson": read_table_log,
    "*.log *.txt *.out": read_printed,
}
FAULTS = (Corrupt, Refused, OSError, ValueError)
