"""Texts of others that do nothing where they are shown: in spreadsheets, which run formulas, terminals and LaTeX."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas

from ablate.format import ACTING as ACTING
from ablate.format import visible as visible
from ablate.results.atomic import write_atomic

RISKY = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def written(table: pandas.DataFrame, file: Path) -> Path:
    """Write a table as CSV with every digit of its numbers; the file."""
    write_atomic(file, csv_text(table).encode())
    return file


def csv_text(table: pandas.DataFrame) -> str:
    """A table as CSV with every digit of its numbers."""
    safe = table.rename(columns=quoted)
    for name in safe.columns[[not pandas.api.types.is_numeric_dtype(kind) for kind in safe.dtypes]]:
        safe[name] = safe[name].map(quoted)
    return str(safe.to_csv(index=False, lineterminator="\n"))


def quoted(value: Any) -> Any:
    """A text that would be read as a formula, with an apostrophe before it; all else as it is.

    Numbers stay numbers.  A text that has such an apostrophe of its own gets another, so that `unquoted` is exact.
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if RISKY.match(value.lstrip("'")) else value


def unquoted(value: Any) -> Any:
    """What `quoted` was given."""
    return value[1:] if isinstance(value, str) and value.startswith("'") and RISKY.match(value.lstrip("'")) else value
