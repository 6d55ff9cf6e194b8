"""What the export button of a W&B chart writes: a row per step, a column per run, called `RUN - METRIC`."""

from __future__ import annotations

import re

import pandas

from ablate.config.errors import Refused

BETWEEN = " - "
BANDS = ("__MIN", "__MAX")  # of the steps that one point of a chart stands for
SEEDED = re.compile(r"(?P<cell>.+?)[\s/_.,-]+s(eed)?[\s_=:-]*(?P<seed>\d{1,18})", re.IGNORECASE)


def is_chart(names: list[str]) -> bool:
    """Whether a head is that of a chart: an axis, then runs."""
    return len(names) > 1 and BETWEEN not in names[0] and all(BETWEEN in name for name in names[1:])


def unfolded(table: pandas.DataFrame) -> pandas.DataFrame:
    """A row per run and step, as texts: cell, seed, step, metrics; the index is still the line.

    A run's name must say its seed, as in `mlp-seed0`, `mlp_s0` or `mlp/s0`.  Raises `Refused`.
    """
    axis, *names = (name for name in table.columns if not name.endswith(BANDS))
    runs = {name: SEEDED.fullmatch(name.rpartition(BETWEEN)[0].strip()) for name in names}
    if lost := next((name for name, found in runs.items() if found is None), None):
        told = f"it is the export of a W&B chart, and {lost.rpartition(BETWEEN)[0]} ends in no seed, as mlp-seed0 does"
        raise Refused(f"{told}; export the table of runs in place of it, or write --wandb ENTITY/PROJECT")
    rows: dict[tuple[int, str, str], dict[str, str]] = {}
    for name, found in runs.items():
        for line, step, text in zip(table.index, table[axis], table[name], strict=True):
            if found and text != "":
                key = (line, found["cell"], found["seed"])
                row = rows.setdefault(key, {"cell": found["cell"], "seed": found["seed"], "step": step})
                row[name.rpartition(BETWEEN)[2].strip()] = text
    if not rows:
        raise Refused("it is the export of a W&B chart without a number")
    return pandas.DataFrame(list(rows.values()), index=[line for line, _, _ in rows]).fillna("")
