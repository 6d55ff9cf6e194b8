"""Rows of a figure, names left and results right (on a narrow page below the names), and legends below all panels."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.draw.page import Page
from analysis.figures.draw.style import SIZE, Encoding, fold, width_of

LINE = 0.11  # inches per line of a row's text
NAMES, RESULTS, BOTH = 0.36, 0.42, 0.49  # shares of the width for names, results, or both below each other
HEADING = 0.4  # inches of a panel for its title or axis label
SAMPLE, EDGE = 0.52, 0.1  # inches: a legend handle with the space around an entry, the page's margins
MOST = 5  # columns
BESIDE = 1.3  # how far names may reach beyond a panel, over its width
Places = dict[str, tuple[float, float, str]]  # by name: x, y, colour


def stacked(
    table: pandas.DataFrame, page: Page, texts: Sequence[tuple[Sequence[str], Sequence[str]]], inches: float = 0.18
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each pair of names and results of rows; rows are at y = 0, 1, 2, … from the top.  Rows
    are `inches` apart, more if a text has several lines."""
    shown = [_folded(names, results, page) for names, results in texts]
    lines = [max((text.count("\n") for text in [*names, *results]), default=0) for names, results in shown]
    rows = [max(2, len(names)) for names, _ in shown]
    heights = [count * (inches + LINE * most) + HEADING for count, most in zip(rows, lines, strict=True)]
    drawn = page.figure(table, sum(heights) + 0.15)
    axes = list(drawn.subplots(len(texts), squeeze=False, height_ratios=heights)[:, 0])
    for axis, each in zip(axes, shown, strict=True):
        _write(axis, *each)
    return drawn, axes


def _folded(names: Sequence[str], results: Sequence[str], page: Page) -> tuple[list[str], list[str]]:
    if page.narrow and any(results):
        pairs = zip(names, results, strict=True)
        shown = ["\n".join(fold(text, page.width * BOTH) for text in pair if text) for pair in pairs]
        return shown, [""] * len(shown)
    return [fold(name, page.width * NAMES) for name in names], [fold(text, page.width * RESULTS) for text in results]


def _write(axis: Axes, names: list[str], results: list[str]) -> None:
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(range(len(names)), names, multialignment="right")
    if any(results):
        side = axis.secondary_yaxis("right")
        side.set_yticks(range(len(results)), results)
        side.tick_params(axis="y", length=0)
        side.spines["right"].set_visible(False)


def name_x(axis: Axes, text: str, page: Page) -> None:
    """Label the data's axis; on a narrow page the label extends below the names of the rows."""
    axis.set_xlabel(fold(text, page.width - EDGE, 7), loc="right" if page.narrow else "center")


class Legend(NamedTuple):
    """Handles by text, the number of columns, and the height in inches."""

    handles: dict[str, Line2D]
    columns: int
    height: float

    def draw(self, figure: Figure) -> None:
        """Put the legend below the panels of a figure."""
        handles, names = self.handles.values(), self.handles.keys()
        figure.legend(handles, names, loc="outside lower left", ncols=self.columns, handlelength=3, columnspacing=1)


def name_at(drawn: Figure, below: Legend, places: Sequence[tuple[Axes, Places]], inches: tuple[float, float]) -> None:
    """Names right of points, or of the ends of lines, in panels of this size, where none overlap; else the legend."""
    for axis, own in places:
        spots = [(axis.transScale + axis.transLimits).transform(own[name][:2]) * inches for name in own]
        wide = [width_of(name) + LINE for name in own]
        boxes = [(x, x + width, y) for (x, y), width in zip(spots, wide, strict=True)]
        over = max((right for _, right, _ in boxes), default=math.inf) > inches[0] * BESIDE
        pairs = itertools.combinations(boxes, 2)
        if over or any(abs(a[2] - b[2]) < LINE and a[0] < b[1] and b[0] < a[1] for a, b in pairs):
            below.draw(drawn)
            return
    for axis, own in places:
        for name, (x, y, colour) in own.items():
            how: dict[str, Any] = {"va": "center", "color": colour, "fontsize": SIZE, "annotation_clip": False}
            axis.annotate(name, (x, y), (5, 0), textcoords="offset points", **how)
    drawn.set_figheight(drawn.get_figheight() - below.height)


def legend(encodings: dict[str, Encoding], page: Page, line: bool = True, marker: bool = True) -> Legend:
    """The legend of these encodings, with lines, markers or both; long names are wrapped."""
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
