"""Runs from a CSV file: a row per run, or per run and step."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ablate.config.errors import Refused
from ablate.format import counted
from ablate.results.study import Study
from analysis.escape import ACTING, unquoted, visible
from analysis.sources.columns import SHAPE, called, choose_factors, choose_metrics, is_neither, levels, number, some
from analysis.sources.manifest import Origin, assemble, command, when
from analysis.sources.request import Asked
from analysis.sources.study_file import claimed_metrics, wanted_factors
from analysis.sources.wandb_chart import is_chart, unfolded

NEEDED = "cell or a column per factor, seed, and a metric such as test/loss"
SEPARATOR = re.compile(r"sep=.", re.IGNORECASE)  # a line that tells spreadsheets how to cut the others
BREAK = re.compile(r"\s*[\r\n]\s*")
COMMA = re.compile(r"^([+-]?\d*),(\d+)$")
PER_CENT = re.compile(r"([^%]*\d\.?) ?%")
WHOLE = re.compile(r"[+-]?\d+")  # with all its digits, more than a float has
SHOWN = 8  # line numbers that a note spells out
TEXTS = ("batches", "path", "error")
STATUSES = {name: name for name in ("done", "diverged", "failed", "missing")}
STATUSES |= {"": "done", "finished": "done", "completed": "done", "success": "done", "ok": "done"}
STATUSES |= {"crashed": "failed", "error": "failed", "killed": "failed", "running": "missing", "pending": "missing"}


def read_csv(file: Path, asked: Asked) -> Study:
    """The study that a CSV file holds.  Raises `Refused` in one line that says which columns are needed."""
    notes: list[str] = []
    table = _texts(file)
    try:
        table = unfolded(table) if is_chart(list(table.columns)) else table
        read_as = called(list(table.columns))
        table = _once(file, table.rename(columns=read_as), notes)
        if "seed" not in table:
            raise Refused(f"no column seed; needed are {NEEDED}; there are {some(table.columns)}")
        given = list(table.columns)
        metrics = choose_metrics(given, list(asked.metrics), claimed_metrics(asked.described))
        table = _typed(file, table, metrics, notes)
        factors, left = choose_factors(table, metrics, wanted_factors(asked, list(table.columns)))
        if not factors:
            varied = [name for name in table if is_neither(name) and 2 <= table[name].nunique() <= len(table) // 2]
            hint = f"; {varied[0]} is none unless you write --factors {varied[0]}" if varied else ""
            raise Refused(f"no column is a factor{hint}; needed are {NEEDED}; there are {some(given)}")
        if left:
            notes.append(f"columns that are neither factor nor metric, left out: {some(left)}")
        for name in factors:
            own = list(table[name]) if name == "cell" else levels(list(table[name]))
            table[name] = pandas.Series(own, table.index, dtype=object)
        table.index = pandas.Index([f"line {line}" for line in table.index])
        origin = Origin(asked.described.study or file.stem, file.name, when(file), command("--runs", str(file), asked))
        origin = origin._replace(remarks=tuple(f"{name} is read as {plain}" for name, plain in read_as.items()))
        return assemble(table, factors, metrics, asked, origin, notes)
    except Refused as error:
        raise Refused(f"{file}: {error}") from None


def _texts(file: Path) -> pandas.DataFrame:
    """The table as texts; the index is the line of each row."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{file} is no CSV: it is not text in UTF-8") from None
    except OSError as error:
        raise Refused(f"{file} cannot be read ({error.strerror})") from None
    lines = ((number, line) for number, line in enumerate(text.splitlines()) if not SEPARATOR.fullmatch(line.strip()))
    top, head = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    if not head or "\0" in text[:4096]:
        raise Refused(f"{file} is {'no CSV' if head else 'empty'}; needed are columns: {NEEDED}")
    separator = max(",;\t", key=head.count)
    names = [unquoted(name.strip()) for name in next(csv.reader([head], delimiter=separator))]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise Refused(f"{file} has two columns called {twice[0] or '(unnamed)'}")
    if len(names) < 3:
        raise Refused(f"{file} has the columns {', '.join(names)[:80]}; needed are {NEEDED}")
    table = _cut(file, text, separator, top, names)
    table.index = table.index + top + 2
    table = _each(table, _plain)
    if ACTING.search(text):
        table = _each(table.rename(columns=visible), visible)
    table = table[(table.to_numpy() != "").any(axis=1)]
    if table.empty:
        raise Refused(f"{file} has a head but no rows")
    return _each(table, _with_point) if separator == ";" else table


def _each(table: pandas.DataFrame, change: Callable[[str], str]) -> pandas.DataFrame:
    """Every text of a table changed, at once: column by column, a file of many columns would take minutes."""
    changed = [[change(text) for text in row] for row in table.to_numpy(dtype=object)]
    return pandas.DataFrame(np.array(changed, dtype=object).reshape(table.shape), table.index, table.columns)


def _plain(text: Any) -> str:
    """A field in one line and without quotes; nothing for one that its row has not."""
    return unquoted(BREAK.sub(" ", text).strip()) if isinstance(text, str) else ""


def _cut(file: Path, text: str, separator: str, top: int, names: list[str]) -> pandas.DataFrame:
    """The rows below the head in line `top`, all as texts."""
    try:
        table = pandas.read_csv(
            io.StringIO(text),
            sep=separator,
            header=top,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
        )
    except (pandas.errors.ParserError, pandas.errors.EmptyDataError, ValueError) as error:
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. ").removeprefix("C error: ")
        raise Refused(f"{file} is no CSV: {said}") from None
    if not isinstance(table.index, pandas.RangeIndex):
        raise Refused(f"{file} is no CSV: its rows have more fields than its head")
    return table.set_axis(names, axis=1)


def _with_point(text: str) -> str:
    """A decimal comma, as spreadsheets of some countries write it, as a point."""
    return COMMA.sub(r"\1.\2", text)


def _once(file: Path, table: pandas.DataFrame, notes: list[str]) -> pandas.DataFrame:
    """The rows without those that repeat another one in every column, as files that were put together twice have."""
    again = table.duplicated()
    if again.any():
        notes.append(f"{_rows(file, table.index[again])} left out: another row is the same in every column")
    return table[~again]


def _typed(file: Path, table: pandas.DataFrame, metrics: list[str], notes: list[str]) -> pandas.DataFrame:
    """Seeds, steps, metrics and budgets as numbers, statuses as ours; what is none is named and left out."""
    if "step" in table and (table["step"] == "").all():
        table = table.drop(columns="step")
    for name, what in (("seed", "whole number"), *((("step", "number"),) if "step" in table else ())):
        read = [_whole(text) if name == "seed" else number(text) for text in table[name]]
        good = np.array([value is not None and np.isfinite(value) for value in read])
        if not good.all():
            notes.append(f"{_rows(file, table.index[~good])} left out: {name} is no {what}")
        if not good.any():
            raise Refused(f"no row has a {name} that is a {what}")
        table = table[good].assign(**{name: [value for value, kept in zip(read, good, strict=True) if kept]})
    for name in dict.fromkeys([*metrics, *(name for name in (*SHAPE, "tokens", "seconds") if name in table)]):
        table = table.assign(**{name: _numbers(file, table[name], notes, needed=name == metrics[0])})
    for name in (name for name in TEXTS if name in table):
        table = table.assign(**{name: table[name].where(table[name] != "", None)})
    if "status" not in table:
        return table.assign(status="done")
    status = table["status"].str.lower()
    unknown = ~status.isin(STATUSES)
    for word, same in status[unknown].groupby(status[unknown]):
        what = f"the status {word} is none of done, diverged, failed, missing"
        notes.append(f"{_rows(file, same.index)} counted as missing: {what}")
    return table.assign(status=status.map(STATUSES).fillna("missing"))


def _whole(text: str) -> int | None:
    """The whole number that a text is, with all its digits; None for what is none, or more than 64 bits hold."""
    value = number(text)
    if value is None or not np.isfinite(value) or value != int(value):
        return None
    whole = int(text) if WHOLE.fullmatch(text) else int(value)
    return whole if abs(whole) < 2**63 else None


def _numbers(file: Path, column: pandas.Series, notes: list[str], needed: bool) -> np.ndarray:
    """A column's numbers, infinite where they are not finite, NaN where nothing is, or no number, which is noted.

    Shares in per cent stay in per cent.  Raises Refused where only some have the sign, or nothing is a number in a
    column that is `needed`.
    """
    texts, given = _without_sign(column), (column != "").to_numpy()
    read = [number(text) if text else np.nan for text in texts]
    bad = np.array([value is None for value in read])
    if bad.any():
        first = column[bad].iloc[0][:20]
        if needed and bad.sum() == given.sum():
            raise Refused(f"{column.name}: no row has a number, but “{first}” for one")
        notes.append(f"{column.name} of {_rows(file, column.index[bad])} left out: no number, “{first}” for one")
    values = np.array([np.nan if value is None else value for value in read], dtype=float)
    return np.where(given & ~bad & ~np.isfinite(values), np.inf, values)


def _without_sign(column: pandas.Series) -> list[str]:
    """Texts such as “91.5 %” without the sign where all numbers have it."""
    found = [PER_CENT.fullmatch(text) for text in column]
    if not any(found):
        return list(column)
    plain = [text for text, sign in zip(column, found, strict=True) if text and not sign and number(text) is not None]
    if plain and any(np.isfinite(float(text)) for text in plain):
        raise Refused(
            f"{column.name}: some numbers are in per cent, others, {plain[0]} for one, are not; write all alike"
        )
    return [sign[1] if sign else text for text, sign in zip(column, found, strict=True)]


def _rows(file: Path, lines: Iterable[Any]) -> str:
    found = list(lines)
    shown = ", ".join(map(str, found[:SHOWN])) + ", …" * (len(found) > SHOWN)
    return f"{file.name}: {counted(len(found), 'row')} (line{'s' * (len(found) > 1)} {shown})"
