"""Rows of a figure: names on the left, results on the right; in a narrow figure both above the row."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from analysis.figures.page import Page

LINE = 0.11  # inches that a further line of a name takes


def wrapped(name: str, page: Page, characters: int = 0) -> str:
    """A name in lines of so many characters, or of as many as leave room for the data beside it."""
    return textwrap.fill(name, characters or (20 if page.narrow else int(8 * page.width)), break_on_hyphens=False)


def pitch(names: list[str], inches: float, page: Page, results: Sequence[str] = ()) -> float:
    """The height of all rows: more where a name takes several lines, or in a narrow figure a result."""
    texts = [*names, *(results if page.narrow else ())]
    lines = max((wrapped(text, page).count("\n") + 1 for text in texts), default=1)
    return max(2, len(names)) * (inches + LINE * (lines - 1))


def name_rows(axis: Axes, names: list[str], results: list[str], page: Page) -> None:
    """Rows from the top, their names on the left; results on the right, as an axis' labels, so that the layout fits."""
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(range(len(names)), [wrapped(name, page) for name in names])
    bare(axis, "left")
    if any(results):
        side = axis.secondary_yaxis("right")
        side.set_yticks(range(len(results)), [wrapped(result, page) if page.narrow else result for result in results])
        bare(side, "right")


def bare(axis: Any, spine: str) -> None:
    """An axis of rows: no ticks, no line."""
    axis.tick_params(axis="y", length=0)
    axis.spines[spine].set_visible(False)
