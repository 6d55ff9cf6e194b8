"""A kind of figure: the table that it draws, and how."""

from collections.abc import Callable
from typing import NamedTuple

import pandas
from matplotlib.figure import Figure

from analysis.case import Case
from analysis.figures.draw.axes import nothing
from analysis.figures.draw.page import Page

MOST = 24  # rows or cells of a readable figure


class Kind(NamedTuple):
    """A kind of figure: what it shows in one sentence, the table it draws, the drawing.

    `table` returns everything that is plotted, or None if a study has no data for it; its `attrs` hold `caption` (lines
    that state the band and n) and other values for the drawing, as JSON.  Equal tables give equal figures.
    The columns `cell` (an id), or `factor` and `level` (text), identify a row for the user's subset and order; other
    text is for display, see `naming.named`.  At most `most` cells, or effects, are drawn.
    """

    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    plot: Callable[[pandas.DataFrame, Page], Figure]
    most: int = MOST

    def draw(self, table: pandas.DataFrame, page: Page) -> Figure:
        """The figure of a table; if the user's subset is empty, a message instead."""
        if len(table):
            return self.plot(table, page)
        return nothing(page.figure(table, 0.9), table.attrs.get("empty", "nothing left by the subset"))


__all__ = ["MOST", "Kind", "Page"]
