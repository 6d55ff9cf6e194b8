"""Rows of a figure: names on the left, results on the right; on a narrow page below their names, to leave data room."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.draw.page import Page
from analysis.figures.draw.wrap import fold

LINE = 0.11  # inches that a line of a row's text takes
NAMES, RESULTS, BOTH = 0.36, 0.42, 0.49  # shares of the width that they may take beside the data
HEADING = 0.4  # inches of a panel for its title or the name of its axis


class Rows(NamedTuple):
    """Texts in lines, at 0, 1, 2, … from the top; `heads` are the rows of a name alone, `height` the inches of all."""

    names: list[str]
    results: list[str]
    heads: Collection[int]
    height: float

    def draw(self, axis: Axes) -> None:
        """Write the texts as labels of the axis, so that the layout fits them, and set its limits."""
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.set_ylim(len(self.names) - 0.4, -0.6)
        axis.set_yticks(range(len(self.names)), self.names)
        for i, label in enumerate(axis.get_yticklabels()):
            label.set(fontweight="bold" if i in self.heads else "normal", multialignment="right")
        if any(self.results):
            side = axis.secondary_yaxis("right")
            side.set_yticks(range(len(self.results)), self.results)
            side.tick_params(axis="y", length=0)
            side.spines["right"].set_visible(False)


def rows_of(
    names: Sequence[str], results: Sequence[str], page: Page, inches: float = 0.18, heads: Collection[int] = ()
) -> Rows:
    """Rows with a pitch of so many inches, more where a text takes several lines; `heads` are rows of a name alone."""
    if page.narrow and any(results):
        pairs = zip(names, results, strict=True)
        shown = ["\n".join(fold(text, page.width * BOTH) for text in pair if text) for pair in pairs]
        told = [""] * len(shown)
    else:
        shown = [fold(name, page.width * NAMES) for name in names]
        told = [fold(result, page.width * RESULTS) for result in results]
    most = max((text.count("\n") for text in [*shown, *told]), default=0)
    return Rows(shown, told, heads, max(2, len(names)) * (inches + LINE * most))


def stacked(table: pandas.DataFrame, page: Page, texts: Sequence[Rows]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each of these rows, below each other, with their texts."""
    heights = [text.height + HEADING for text in texts]
    drawn = page.figure(table, sum(heights) + 0.15)
    axes = list(drawn.subplots(len(texts), squeeze=False, height_ratios=heights)[:, 0])
    for axis, text in zip(axes, texts, strict=True):
        text.draw(axis)
    return drawn, axes


def name_x(axis: Axes, text: str, page: Page) -> None:
    """The name of the data's axis; on a narrow page it reaches below the names of the rows."""
    axis.set_xlabel(text, loc="right" if page.narrow else "center")
