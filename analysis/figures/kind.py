"""What a kind of figure is: which table it draws, and how."""

from collections.abc import Callable
from typing import NamedTuple

import pandas
from matplotlib.figure import Figure

from analysis.case import Case
from analysis.figures.draw.axes import nothing
from analysis.figures.draw.page import Page

MOST = 24  # rows or cells of a figure that can still be told apart


class Kind(NamedTuple):
    """A figure: what it shows in one sentence, the table it draws, the drawing.

    `table` gives all that is plotted, None where a study holds nothing of it; `attrs` of the table has `caption` (lines
    that state the band and n) and whatever else the drawing says, JSON-able.  Equal tables give equal figures.
    Columns with a meaning for all kinds: `cell` (an id) or `factor` and `level` (text) say whose a row is, so that the
    user's subset and order reach it; all else that is text is as people read it, see `naming.named`.
    At most `most` cells, or effects, are drawn.
    """

    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    plot: Callable[[pandas.DataFrame, Page], Figure]
    most: int = MOST

    def draw(self, table: pandas.DataFrame, page: Page) -> Figure:
        """The figure of a table; it says so where the user's subset has left nothing."""
        if len(table):
            return self.plot(table, page)
        return nothing(page.figure(table, 0.9), table.attrs.get("empty", "nothing left by the subset"))


__all__ = ["MOST", "Kind", "Page"]
