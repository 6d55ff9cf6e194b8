"""Axes and marks that several figures share."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ablate.formatting import setting
from analysis.figures.style import Encoding


def log_axis(axis: XAxis | YAxis) -> None:
    """Make an axis logarithmic, with ticks such as 1e-3, 3e-3, 0.01."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 3) if high > 20 * low else (1, 2, 3, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: setting(float(value))))
    axis.set_minor_locator(NullLocator())


def value_axis(axis: Axes, values: Iterable[float], most: int) -> None:
    """An axis of the values that were tried, logarithmic if they span a factor of 4.  Above `most` values, every second
    one is written."""
    values = sorted(set(values))
    if values[0] > 0 and values[-1] / values[0] >= 4:
        log_axis(axis.xaxis)
    if len(values) <= 2 * most:
        ticks = values[:: 1 + (len(values) > most)]
        axis.set_xticks(ticks, [setting(value) for value in ticks])
        axis.xaxis.set_minor_locator(NullLocator())


def band(axis: Axes, rows: pandas.DataFrame, x: str, encoding: Encoding, **options: Any) -> None:
    """A line through `mean` with a band from `low` to `high`."""
    look = {"color": encoding.colour, "ls": encoding.dash, "marker": encoding.marker}
    axis.fill_between(rows[x], rows["low"], rows["high"], color=encoding.colour, alpha=0.15, lw=0)
    axis.plot(rows[x], rows["mean"], **{**look, **options})


def diverged(axis: Axes, rows: pandas.DataFrame, x: str, looks: dict[str, Encoding]) -> None:
    """A thin line for each diverged run, of a `label` and a `seed`, with × at its last finite value."""
    for (label, _), run in rows.dropna(subset="mean").groupby(["label", "seed"], sort=False):
        axis.plot(run[x], run["mean"], "-x", color=looks[label].colour, lw=0.6, markevery=[-1])


def ends(row: Any) -> list[list[float]]:
    """The distances of a bar's ends from the mean, as matplotlib's error bars expect them."""
    return [[row.mean - row.low], [row.high - row.mean]]


def interval(axis: Axes, row: Any, start: float, colour: str) -> None:
    """The interval of an effect in its row, from `start` on.  Of skewed differences the mean may lie outside of it."""
    middle = start + (row.low + row.high) / 2
    bar: dict[str, Any] = {"xerr": (row.high - row.low) / 2, "capsize": 2, "ecolor": colour, "zorder": 3}
    axis.errorbar(middle, row.Index, fmt="none", **bar)


def limits(values: Any) -> tuple[float, float]:
    """Axis limits around these values with some margin; 0 and 1 if none is finite."""
    values = np.asarray(values, float).ravel()
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    margin = 0.07 * float(np.ptp(values)) or 0.01 * abs(float(values[0])) or 0.01
    return float(values.min()) - margin, float(values.max()) + margin


def on_two_lines(label: str) -> str:
    """The label of an upright axis, its unit below the name."""
    return label.replace(" (", "\n(", 1)
