"""Escaping of user text, so that it does nothing in spreadsheets, which run formulas, in terminals and in LaTeX."""

from pathlib import Path

import pandas

from ablate.formatting import ACTING as ACTING
from ablate.formatting import quoted as quoted
from ablate.formatting import unquoted as unquoted
from ablate.formatting import visible as visible
from ablate.results.atomic import write_atomic


def written(table: pandas.DataFrame, file: Path) -> Path:
    """Write a table as CSV with every digit of its numbers; returns the file."""
    write_atomic(file, csv_text(table).encode())
    return file


def csv_text(table: pandas.DataFrame) -> str:
    """A table as CSV with every digit of its numbers."""
    safe = table.rename(columns=quoted)
    for name in safe.columns[[not pandas.api.types.is_numeric_dtype(kind) for kind in safe.dtypes]]:
        safe[name] = safe[name].map(quoted)
    return str(safe.to_csv(index=False, lineterminator="\n"))
