"""Data of the interactive learning curves: means, SDs and single runs of every cell, thinned to what pixels show."""

import itertools
from typing import Any

import numpy as np
import pandas

from ablate.formatting import visible
from ablate.runs import naming
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis import figures
from analysis.case import Case
from analysis.case.learning_curves import AXES, end_at_shares, logged, metrics_of, over_seeds
from analysis.figures.draw.captions import with_losses
from analysis.figures.kind import page_of

POINTS = 400  # per mean curve: about two pixels each
NUMBERS = 400_000  # over all single runs, so that a page with 10,000 runs still opens
FEWEST = 24  # points per single run
TITLES = {"tokens": "training tokens", "seconds": "seconds of training steps"}

Series = dict[str, Any]
Columns = dict[str, np.ndarray]
Store = dict[bytes, tuple[int, list[float | None]]]  # index and values of each different column, by its bytes


def series(case: Case, *more: str) -> Series | None:
    """The curves of every cell over the logged axes; None if no run logged the metric at any step.  `more`: statuses of
    runs besides done and diverged, which are part of no mean."""
    manifest = case.study.manifest
    metrics, rows = metrics_of(case.study), logged(case.study, *more)
    if rows.empty:
        return None
    axes = [axis for axis in AXES if axis in rows]
    rows = rows[rows[axes[0]].notna()].sort_values(["cell", "seed"], kind="stable")
    runs = _runs(rows, axes)
    points = int(np.clip(NUMBERS / (len(axes) + 1) / sum(map(len, runs.values())), FEWEST, POINTS))
    means, store, drawn = _means(case.study, rows, axes), Store(), page_of(manifest, figures.edits(case))
    nothing, cells = {name: np.empty(0) for name in [*axes, "sd", "value", "low", "high"]}, []
    for row in named_rows(case.cells):
        colour, dash, _ = drawn.encodings[row.cell]
        lengths = "solid" if isinstance(dash, str) else ",".join(f"{3 * length:g}px" for length in dash[1])
        cell: Series = {"name": visible(with_losses(row)), "colour": colour, "dash": lengths}
        cell["n"] = sum(run["status"] == "done" for run in runs.get(row.cell, []))
        cell["mean"] = _thinned(means.get(row.cell, nothing), POINTS, store)
        cell["runs"] = [run | _thinned(run.pop("columns"), points, store) for run in runs.get(row.cell, [])]
        cells.append(cell)
    longest = int(rows.groupby(["cell", "seed"]).size().max())
    known = [metric for metric in dict.fromkeys(metrics.values()) if metric in case.study.curves]
    shown: Series = {"metric": visible(" or ".join(known)), "label": visible(naming.metric_name(manifest, *known))}
    shown["axes"] = {axis: TITLES.get(axis, axis) for axis in axes}
    return shown | {"cells": cells, "columns": [column for _, column in store.values()], "thinned": longest > points}


def _short(value: float) -> float | None:
    """A number rounded to six digits, integers as int; None if it is not finite."""
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded


def _runs(rows: pandas.DataFrame, axes: list[str]) -> dict[str, list[Series]]:
    starts = np.flatnonzero(~rows.duplicated(["cell", "seed"]).to_numpy())
    whole = {name: rows[name].to_numpy(float) for name in [*axes, "value"]}
    cells, seeds, status = (rows[name].tolist() for name in ("cell", "seed", "status"))
    found: dict[str, list[Series]] = {}
    for start, end in itertools.pairwise([*starts.tolist(), len(rows)]):
        columns = {name: column[start:end] for name, column in whole.items()}
        run = {"seed": str(seeds[start]), "status": status[start], "columns": columns}
        found.setdefault(cells[start], []).append(run)
    return found


def _means(study: Study, rows: pandas.DataFrame, axes: list[str]) -> dict[str, Columns]:
    """Mean, SD and band of each cell over its done runs, at points where all of them were evaluated."""
    found = over_seeds(rows[rows["status"] == "done"], ["cell", axes[0]], tuple(axes[1:]))
    found = end_at_shares(found, study.manifest, metrics_of(study))
    found = found.rename(columns={"mean": "value"}).sort_values(axes[0], kind="stable")
    names = [*axes, "value", "sd", "low", "high"]
    return {str(cell): {name: group[name].to_numpy(float) for name in names} for cell, group in found.groupby("cell")}


def _thinned(columns: Columns, points: int, store: Store) -> dict[str, int]:
    """The index in the store of each column, thinned to at most `points`: the ends, and the minimum and maximum of each
    of points / 2 intervals.  Equal columns are stored once, as most runs were logged at the same steps."""
    values, n = columns["value"], len(columns["value"])
    if n > points:
        filled = np.where(np.isfinite(values), values, np.nanmean(values) if np.isfinite(values).any() else 0.0)
        edges = np.linspace(0, n, points // 2 + 1).astype(int).tolist()
        extremes = [a + pick(filled[a:b]) for a, b in itertools.pairwise(edges) for pick in (np.argmin, np.argmax)]
        columns = {name: column[np.unique([0, *extremes, n - 1])] for name, column in columns.items()}
    for column in columns.values():
        if (key := column.tobytes()) not in store:
            store[key] = len(store), [_short(value) for value in column.tolist()]
    return {name: store[column.tobytes()][0] for name, column in columns.items()}
