"""Rows of a figure: names on the left, results on the right; where that leaves the data no room, both above the row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.draw.page import Page
from analysis.figures.draw.wrap import SIZE, fold, width_of

LINE = 0.11  # inches that a line of a row's text takes
NAMES, RESULTS = 0.36, 0.42  # shares of the width that they may take beside the data
LEAST = 0.5  # share of a narrow page that is left to the data
HEADING = 0.4  # inches of a panel for its title or the name of its axis
BEFORE, GAP, AFTER, BODY = 0.1, 0.02, 0.09, 0.2  # inches around the data of a row with its text above, and theirs


class Rows(NamedTuple):
    """Texts in lines, and where they stand.

    `heads` are the rows of a name alone, `places` where each row is on the axis, `unit` how much of the axis a row has;
    `height` is the inches of all.  With `above` texts stand above their rows.
    """

    names: list[str]
    results: list[str]
    heads: Collection[int]
    places: list[float]
    height: float
    unit: float
    above: bool

    def draw(self, axis: Axes) -> None:
        """Write the texts of the rows, and set the limits that the rows need."""
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        if self.above:
            self._write_above(axis)
            return
        axis.set_ylim(len(self.names) - 0.4, -0.6)
        axis.set_yticks(self.places, self.names)
        for i, label in enumerate(axis.get_yticklabels()):
            label.set_fontweight("bold" if i in self.heads else "normal")
        if any(self.results):  # as an axis' labels, so that the layout fits them
            side = axis.secondary_yaxis("right")
            side.set_yticks(self.places, self.results)
            side.tick_params(axis="y", length=0)
            side.spines["right"].set_visible(False)

    def _write_above(self, axis: Axes) -> None:
        axis.set_ylim(self.places[-1] + 0.12, 0)
        axis.set_yticks([])
        plain: dict[str, Any] = {"va": "center", "fontsize": SIZE, "transform": axis.get_yaxis_transform()}
        plain |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8}}  # the zero line stops at a text
        for i, (y, name, result) in enumerate(zip(self.places, self.names, self.results, strict=True)):
            if i in self.heads:
                axis.text(0, y, name, fontweight="bold", **plain)
                continue
            lines = name.split("\n")
            for j, line in enumerate(lines):
                axis.text(0, y - GAP - LINE * (len(lines) - j), line, **plain)
            if result:
                axis.text(1, y - GAP - LINE, result, ha="right", **plain)


def rows_of(
    names: Sequence[str], results: Sequence[str], page: Page, inches: float = 0.18, heads: Collection[int] = ()
) -> Rows:
    """Rows with a pitch of so many inches and more where a text takes several lines; `heads` are rows of a name alone.

    Texts that are crowded stand above their rows, and the axis' unit is an inch.
    """
    if crowded(page, names, results):
        return _rows_above(names, results, page, heads)
    shown = [fold(name, page.width * NAMES) for name in names]
    told = [fold(result, page.width * RESULTS) for result in results]
    most = max((text.count("\n") for text in [*shown, *told]), default=0)
    height = max(2, len(names)) * (inches + LINE * most)
    return Rows(shown, told, heads, [float(y) for y in range(len(names))], height, 1.0, False)


def stacked(table: pandas.DataFrame, page: Page, texts: Sequence[Rows]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each of these rows, below each other, with their texts."""
    heights = [text.height + HEADING for text in texts]
    drawn = page.figure(table, sum(heights) + 0.15)
    axes = list(drawn.subplots(len(texts), squeeze=False, height_ratios=heights)[:, 0])
    for axis, text in zip(axes, texts, strict=True):
        text.draw(axis)
    return drawn, axes


def crowded(page: Page, names: Sequence[str], results: Sequence[str]) -> bool:
    """Whether names and results beside the data would leave them too little of a narrow page."""
    sides = ((names, NAMES), (results, RESULTS))
    taken = sum(min(share * page.width, max(map(width_of, texts), default=0.0)) for texts, share in sides)
    return page.narrow and any(results) and taken > (1 - LEAST) * page.width


def _rows_above(names: Sequence[str], results: Sequence[str], page: Page, heads: Collection[int]) -> Rows:
    """Each result on the line of its name where both fit, else on lines of its own below it."""
    room, y = page.width - 0.25, 0.0
    shown, told, places = list[str](), list[str](), list[float]()
    for i, (name, result) in enumerate(zip(names, results, strict=True)):
        beside = width_of(f"{name}   {result}") <= room
        shown.append(name if beside else "\n".join(filter(None, (fold(name, room), fold(result, room)))))
        told.append(result if beside else "")
        y += BEFORE + (GAP + LINE * (shown[-1].count("\n") + 1)) * (i not in heads)
        places.append(y)
        y += AFTER
    return Rows(shown, told, heads, places, max(y, 0.4), BODY, True)
