"""Rows of a figure: names on the left, results on the right."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes

WRAP = 44  # characters of a row's name


def pitch(names: list[str], inches: float) -> float:
    """The height of all rows: more where a name takes several lines."""
    lines = max((_wrapped(name).count("\n") + 1 for name in names), default=1)
    return max(2, len(names)) * (inches + 0.1 * (lines - 1))


def _wrapped(name: str) -> str:
    return textwrap.fill(name, WRAP, break_on_hyphens=False)


def name_rows(axis: Axes, names: list[str], results: list[str]) -> None:
    """Rows from the top, their names on the left; results on the right, as an axis' labels, so that the layout fits."""
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    side = axis.secondary_yaxis("right")
    side.set_yticks(range(len(results)), results)
    for each, spine in ((axis, "left"), (side, "right")):
        each.tick_params(axis="y", length=0)
        each.spines[spine].set_visible(False)
