"""The legend below a figure: one entry per look, in columns that fit the page."""

from __future__ import annotations

import math
import textwrap
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.page import Page
from analysis.figures.style import Look

CHARACTER, SAMPLE = 0.048, 0.5  # inches


class Legend(NamedTuple):
    """Handles by their text, in so many columns; `height` in inches."""

    handles: dict[str, Line2D]
    columns: int
    height: float

    def draw(self, figure: Figure) -> None:
        """Put the legend below the panels of a figure."""
        handles, names = self.handles.values(), self.handles.keys()
        figure.legend(handles, names, loc="outside lower left", ncols=self.columns, handlelength=3)


def legend(looks: dict[str, Look], page: Page) -> Legend:
    """The legend of these looks; long names take several lines."""
    most = int((page.width - SAMPLE) / CHARACTER)
    handles = {
        textwrap.fill(name, most): Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker, ms=3)
        for name, look in looks.items()
    }
    width = CHARACTER * max(max(map(len, name.split("\n"))) for name in handles) + SAMPLE
    columns = max(1, min(4, int(page.width / width)))
    rows = math.ceil(len(handles) / columns)
    lines = rows * (1 + max(name.count("\n") for name in handles))
    return Legend(handles, math.ceil(len(handles) / rows), 0.14 * lines)
