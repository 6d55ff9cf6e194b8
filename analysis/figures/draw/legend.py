"""The legend below a figure: one entry per encoding, in columns that fit the page."""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.draw.page import Page
from analysis.figures.draw.style import Encoding
from analysis.figures.draw.wrap import fold, width_of

SAMPLE, EDGE = 0.52, 0.1  # inches: of a line's sample with the space around an entry, of the page's edges
MOST = 5  # columns


class Legend(NamedTuple):
    """Handles by their text, in so many columns; `height` in inches."""

    handles: dict[str, Line2D]
    columns: int
    height: float

    def draw(self, figure: Figure) -> None:
        """Put the legend below the panels of a figure."""
        handles, names = self.handles.values(), self.handles.keys()
        figure.legend(handles, names, loc="outside lower left", ncols=self.columns, handlelength=3, columnspacing=1)


def legend(encodings: dict[str, Encoding], page: Page, line: bool = True, marker: bool = True) -> Legend:
    """The legend of these encodings, of what the figure draws of them; long names take several lines."""
    room, handles = page.width - EDGE, dict[str, Line2D]()
    for name, (colour, dash, mark) in encodings.items():
        dash, mark = dash if line else "", mark if marker else ""
        sample = Line2D([], [], color=colour, linestyle=dash, marker=mark, ms=3 if line else 3.5)
        handles[fold(name, room - SAMPLE)] = sample
    widest = max(map(width_of, handles), default=0.0) + SAMPLE
    columns = max(1, min(MOST, int(room / widest)))
    rows = math.ceil(len(handles) / columns)
    lines = rows * (1 + max((name.count("\n") for name in handles), default=0))
    return Legend(handles, math.ceil(len(handles) / max(1, rows)), 0.14 * lines)
