"""Tables as CSV that come back as they went, to the last bit: columns of texts, and of numbers as JSON has them.

A missing number is an empty field, a missing text, too; `null` stands for what is no number at all.  A text that a
spreadsheet would run as a formula has an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ablate.formatting.formulas import quoted, unquoted

if TYPE_CHECKING:
    import pandas


def texts_of(table: pandas.DataFrame) -> list[str]:
    """The columns that hold texts; those of numbers, true and false, and of nothing at all hold none."""
    return [str(name) for name in table if any(isinstance(value, str) for value in table[name])]


def as_csv(table: pandas.DataFrame) -> bytes:
    """A table as CSV; what `from_csv` makes of it with `texts_of` the table equals it."""
    texts, names = texts_of(table), [_text(str(name)) for name in table]
    columns = [map(_text if name in texts else _number, table[name].tolist()) for name in table]
    return "".join(",".join(row) + "\n" for row in [names, *zip(*columns, strict=True)]).encode()


def from_csv(data: bytes, texts: Collection[str]) -> pandas.DataFrame:
    """The table that a CSV holds, `texts` its columns of texts.  Raises ValueError where it is none."""
    import pandas

    try:
        rows = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    names = [unquoted(name) for name in rows[0]] if rows else []
    if len(set(names)) < len(names) or any(len(row) != len(names) for row in rows):
        raise ValueError("its rows and its columns do not fit")
    columns = zip(*rows[1:], strict=True) if rows[1:] else ([] for _ in names)
    found = {name: _read(fields, name in texts) for name, fields in zip(names, columns, strict=True)}
    return pandas.DataFrame(found)


def _text(value: Any) -> str:
    text = str(quoted(value)) if isinstance(value, str) else ""
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if set(text) & set(',"\r\n') else text  # csv.writer leaves a lone \r, which ends a row


def _number(value: Any) -> str:
    missing = isinstance(value, float) and math.isnan(value)
    return "" if missing else json.dumps(value)


def _read(fields: Collection[str], texts: bool) -> pandas.Series:
    import pandas

    if texts:
        return pandas.Series([unquoted(field) if field else None for field in fields])
    try:
        values = json.loads(f"[{','.join(field or 'NaN' for field in fields)}]")
    except RecursionError:
        values = []
    if len(values) != len(fields) or not all(isinstance(each, int | float | None) for each in values):
        raise ValueError("a column of numbers holds something else")
    return pandas.Series(values, dtype=object if None in values else None)
