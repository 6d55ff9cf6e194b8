"""What the interactive learning curves draw: means, spreads and single runs of every cell, as dense as pixels are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas

from ablate import evidence, words
from analysis import figures
from analysis.case import Case
from analysis.figures.page import page_of

AXES = ("step", "tokens", "seconds")
POINTS = 400  # of a mean line: about two pixels each
NUMBERS = 400_000  # of all single runs together, so that a page of 10,000 runs still opens
FEWEST = 24  # points of a single run

Series = dict[str, Any]


def series(case: Case) -> Series | None:
    """The curves of every cell by the axes that were logged; None where no run logged the metric at any step."""
    study = case.study
    metric = "val/" + evidence.endpoint(study.manifest).split("/")[-1]
    rows, axes = _rows(case, metric)
    if rows.empty:
        return None
    points = int(np.clip(NUMBERS / (len(axes) + 1) / rows.groupby(["cell", "seed"]).ngroups, FEWEST, POINTS))
    shelf = _Shelf()
    by_cell = dict(list(rows.groupby("cell", sort=False)))
    drawn = page_of(study.manifest, figures.edits(case))
    cells = [
        {
            "name": drawn.label(row.name) + f" ({'; '.join(words.lost(row))})" * bool(words.lost(row)),
            "colour": drawn.looks[row.cell].colour,
            "dash": _dash(drawn.looks[row.cell].dash),
            **_cell(by_cell.get(row.cell, rows.iloc[:0]), axes, points, shelf),
        }
        for row in case.cells.itertuples()
    ]
    return {
        "metric": metric,
        "label": metric + words.unit(study.manifest, metric),
        "axes": axes,
        "cells": cells,
        "columns": shelf.columns,
        "thinned": bool(rows.groupby(["cell", "seed"]).size().max() > points),
    }


class _Shelf:
    """Columns of numbers, each kept once: most runs were logged at the same steps."""

    def __init__(self) -> None:
        self.columns: list[list[float | None]] = []
        self.known: dict[tuple[float | None, ...], int] = {}

    def put(self, values: pandas.Series) -> int:
        """The place of a column among all."""
        column = tuple(_short(value) for value in values.tolist())
        if column not in self.known:
            self.known[column] = len(self.columns)
            self.columns.append(list(column))
        return self.known[column]


def _short(value: float) -> float | None:
    """A number to six digits, whole ones without a point; None for what is no number."""
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded == int(rounded) else rounded


def _rows(case: Case, metric: str) -> tuple[pandas.DataFrame, list[str]]:
    """Cell, seed, status, axes and value of what done and diverged runs logged, and which axes there are."""
    curves, study = case.study.curves, case.study
    axes = [axis for axis in AXES if axis in curves and metric in curves and curves[axis].notna().any()]
    if not axes:
        return pandas.DataFrame(), []
    logged = curves[curves[axes[0]].notna()]
    kept = logged[["cell", "seed", *axes]].assign(value=pandas.to_numeric(logged[metric], errors="coerce"))
    kept[axes] = kept[axes].apply(pandas.to_numeric, errors="coerce")
    rows = kept.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    known = np.isfinite(rows["value"]) & rows["status"].isin(["done", "diverged"])
    # A diverged run's last row may hold no finite loss; it still says where the run ended.
    ends = (rows["status"] == "diverged") & ~rows.duplicated(["cell", "seed"], keep="last")
    return rows[known | ends], axes


def _cell(rows: pandas.DataFrame, axes: list[str], points: int, shelf: _Shelf) -> Series:
    done = rows[rows["status"] == "done"]
    seeds = done["seed"].nunique()
    table = done.groupby(axes[0])[[*axes[1:], "value"]].mean()
    table["sd"] = done.groupby(axes[0])["value"].std()
    table = table[(done.groupby(axes[0])["value"].count() == seeds)].reset_index()
    table = table.iloc[_places(table["value"], POINTS)]
    runs = [_run(run, axes, points, shelf) for _, run in rows.groupby("seed", sort=True)]
    mean = {name: shelf.put(table[name]) for name in [*axes, "value", "sd"]}
    return {"n": int(seeds), "mean": mean, "runs": runs}


def _run(run: pandas.DataFrame, axes: list[str], points: int, shelf: _Shelf) -> Series:
    kept = run.iloc[_places(run["value"], points)]
    columns = {name: shelf.put(kept[name]) for name in [*axes, "value"]}
    return {"seed": str(run["seed"].iloc[0]), "diverged": bool(run["status"].iloc[0] == "diverged"), **columns}


def _places(values: pandas.Series, points: int) -> np.ndarray:
    """Which of many values to keep: the ends, and the least and the greatest of each of points / 2 stretches."""
    n = len(values)
    if n <= points:
        return np.arange(n)
    filled = values.ffill().fillna(0.0).to_numpy()
    edges = np.linspace(0, n, points // 2 + 1).astype(int)
    extremes = [a + pick(filled[a:b]) for a, b in itertools.pairwise(edges) for pick in (np.argmin, np.argmax)]
    return np.unique([0, *extremes, n - 1])


def _dash(dash: Any) -> str:
    """A dash of the figures in the words of SVG."""
    return "solid" if isinstance(dash, str) else ",".join(f"{3 * length:g}px" for length in dash[1])
