"""What stands for numbers: a point with its interval, a line with its band."""

from __future__ import annotations

from typing import Any

import pandas
import seaborn
from matplotlib.axes import Axes

from ablate import evidence
from analysis.figures.draw.page import Page
from analysis.figures.draw.style import Encoding


def estimate(axis: Axes, at: float, row: Any, colour: str, along: str = "x", **how: Any) -> None:
    """A point at `mean` with the interval from `low` to `high` along x or y; hollow where nothing is decided."""
    inside = colour if row.verdict in evidence.DECIDED else "white"
    x, y = (row.mean, at) if along == "x" else (at, row.mean)
    look: dict[str, Any] = {"fmt": "o", "ms": 4.5, "lw": 1.3, "capsize": 2, "color": colour, "mfc": inside, "zorder": 3}
    axis.errorbar(x, y, **(look | {f"{along}err": reach(row)} | how))


def reach(row: Any) -> list[list[float]]:
    """How far the interval goes below and above the mean, as matplotlib's error bars take it."""
    return [[row.mean - row.low], [row.high - row.mean]]


def band(axis: Axes, rows: pandas.DataFrame, x: str, encoding: Encoding, alpha: float = 0.15, **how: Any) -> None:
    """A band from `low` to `high` in the colour of a line."""
    axis.fill_between(rows[x], rows["low"], rows["high"], color=encoding.colour, alpha=alpha, lw=0, **how)


def dots_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, y: str, page: Page, markers: bool, **how: Any) -> None:
    """A dot per row in the colour, and with `markers` with the marker, of its cell."""
    cells = {str(cell): page.encodings[str(cell)] for cell in dict.fromkeys(rows["cell"])}
    style = {"style": "cell", "markers": {cell: each.marker for cell, each in cells.items()}} if markers else {}
    palette = {cell: each.colour for cell, each in cells.items()}
    seaborn.scatterplot(rows, x=x, y=y, hue="cell", palette=palette, legend=False, ax=axis, **style, **how)


def lines_by_cell(
    axis: Axes, rows: pandas.DataFrame, x: str, page: Page, *units: str, markers: bool = False, **how: Any
) -> None:
    """A line per cell through `mean`, or per cell and each of `units`, columns such as the seed."""
    for (cell, *_), own in rows.dropna(subset=[x, "mean"]).groupby(["cell", *units], sort=False):
        colour, dash, marker = page.encodings[str(cell)]
        how |= {"marker": marker if markers else "None", "mec": "w", "mew": 0}
        axis.plot(own[x], own["mean"], color=colour, ls=dash, **how)


def bands_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, page: Page, alpha: float) -> None:
    """The band of each cell, from `low` to `high`."""
    for cell, own in rows.groupby("cell", sort=False):
        band(axis, own, x, page.encodings[str(cell)], alpha)
