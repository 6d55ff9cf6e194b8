"""Axes whose ticks read like the numbers in the text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, ScalarFormatter


class Short(ScalarFormatter):
    """Ticks in the manner of the numbers beside them: −0.05, 0, 0.05."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The text of one tick."""
        text = super().__call__(x, pos)
        return text if text.strip("−-+0.") else "0"


def numbers(values: Iterable[float]) -> list[str]:
    """Settings in one form: 1e-4, 3e-4, 1e-2 where one is below 0.001, else 0.001, 0.01, 3, 128."""
    known = list(values)
    if all(value == 0 or 0.001 <= abs(value) < 1e5 for value in known):
        return [f"{value:g}" for value in known]
    return [_scientific(value) for value in known]


def _scientific(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def log_x(axis: Axes, low: float, high: float, at: Iterable[float] = ()) -> None:
    """A log axis from `low` to `high` with ticks at `at`, or at 1, 2, 5, 10, … that are few enough to be read."""
    axis.set_xscale("log")
    axis.set_xlim(low, high)
    ticks = list(at) or _few(low, high)
    axis.set_xticks(ticks, numbers(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())


def _few(low: float, high: float, most: int = 6) -> list[float]:
    """Ticks of a log axis: even ones within a factor of 4; else 1, 2, 3, 5, 7 of each decade, 1, 2, 5, decades, …"""
    if high / low < 4:
        return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    choices: list[list[Any]] = [
        [m * 10.0**e for e in range(first, last + 1) for m in ms] for ms in ((1, 2, 3, 5, 7), (1, 2, 5))
    ]
    choices += [[10.0**e for e in range(first, last + 1, step)] for step in (1, 2, 3, 5)]
    inside = [[tick for tick in ticks if low <= tick <= high] for ticks in choices]
    return next((ticks for ticks in inside if len(ticks) <= most), inside[-1])


def value_axis(axis: Axes, at: list[float]) -> None:
    """An axis of the values that were tried: log where they span a factor of 4 or more, zero as a place of its own."""
    low, high = min(at), max(at)
    if low > 0 and high / low >= 4:
        factor = (high / low) ** 0.06
        log_x(axis, low / factor, high * factor, at if len(at) <= 8 else ())
        return
    if low == 0 and len(at) > 2 and high / at[1] >= 4:
        axis.set_xscale("symlog", linthresh=at[1], linscale=0.5)
        axis.set_xlim(-at[1] / 3, high * 1.3)
    if len(at) <= 8:
        axis.set_xticks(at, numbers(at))
        axis.xaxis.set_minor_locator(NullLocator())


def spread(values: Any) -> tuple[float, float]:
    """The smallest and the largest of the finite numbers; NaN where there are none."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (math.nan, math.nan)
