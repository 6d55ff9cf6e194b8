"""A kind of figure: the table that it draws, and how; and the page, with the user's changes from figures.yaml."""

import io
import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
import pandas
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate.runs.records import Manifest
from analysis.case import Case
from analysis.case.figures_yaml import Edits
from analysis.figures import style

LETTERS = 17.73  # of a usual text per inch
SAMPLE = 9  # letters that a handle of a legend and the space around an entry are wide
LINE = 0.125  # inches per line of text


class NotebookFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png", dpi=style.DPI)
            return file.getvalue()


class Page(NamedTuple):
    """The manifest of the study, the width in inches, and the encoding of variants and cells."""

    manifest: Manifest
    width: float
    colours: dict[tuple[str, str], str]  # by (factor, level as text)
    encodings: dict[str, style.Encoding]  # by cell id

    @property
    def narrow(self) -> bool:
        """Whether the page is one column of two, so that panels are stacked."""
        return self.width < 4.5

    def letters(self, share: float = 1.0) -> int:
        """How many letters a share of the page's width has room for."""
        return int(share * self.width * LETTERS)

    def wrap(self, text: str, share: float = 1.0) -> str:
        """A text in lines that fit a share of the page's width."""
        return textwrap.fill(text, max(6, self.letters(share)))

    def figure(self, table: pandas.DataFrame, height: float, legend: Mapping[str, Artist] | None = None) -> Figure:
        """An empty figure with the table's title, and a legend below all panels, which are `height` inches high."""
        title = self.wrap(table.attrs["title"])
        names = [self.wrap(name, 0.85) for name in legend or ()]
        longest = max(map(len, "\n".join(names).split("\n")))
        columns = max(1, min(4, self.letters() // (longest + SAMPLE)))
        lines_of_names = max((name.count("\n") + 1 for name in names), default=0)
        lines = title.count("\n") + 1 + 1.2 * lines_of_names * math.ceil(len(names) / columns)
        figure = NotebookFigure(figsize=(self.width, height + LINE * lines), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        if legend:
            figure.legend(legend.values(), names, loc="outside lower left", ncols=columns)
        return figure

    def looks(self, table: pandas.DataFrame) -> dict[str, style.Encoding]:
        """How each `label` of a table is drawn, in every panel: as its first cell, in a grid by the factors alone that
        labels differ in, `lines`."""
        encodings = self.encodings
        if self.manifest.design == "grid" and "lines" in table.attrs:
            factors = {name: self.manifest.factors[name] for name in table.attrs["lines"]}
            encodings = style.encodings(replace(self.manifest, factors=factors), self.colours)
        first = table.drop_duplicates("label")
        return {label: encodings[cell] for label, cell in zip(first["label"], first["cell"], strict=True)}

    def legend(self, table: pandas.DataFrame, line: bool = True, marker: bool = True) -> dict[str, Artist]:
        """A line, a marker or both per `label` of a table."""
        handles: dict[str, Artist] = {}
        for label, (colour, dash, shape) in self.looks(table).items():
            handles[label] = Line2D([], [], color=colour, ls=dash if line else "", marker=shape if marker else "")
        return handles

    def panels(
        self, table: pandas.DataFrame, height: float, legend: Mapping[str, Artist], across: int = 3, **shared: Any
    ) -> tuple[Figure, list[tuple[Axes, pandas.DataFrame]]]:
        """A figure with a panel, so many inches high, for each `facet` of a table, in rows of at most `across`, below
        each other on a narrow page."""
        facets = list(table.groupby("facet", sort=False))
        across = 1 if self.narrow else min(across, len(facets))
        down = math.ceil(len(facets) / across)
        figure = self.figure(table, down * height, legend)
        axes = figure.subplots(down, across, squeeze=False, **shared).ravel()
        panels = []
        for axis, (name, rows) in zip(axes, facets, strict=False):
            axis.set_title(self.wrap(str(name), 0.85 / across))
            panels.append((axis, rows))
        for spare in axes[len(facets) :]:
            spare.remove()
        return figure, panels

    def rows(
        self, table: pandas.DataFrame, inches: float = 0.19, legend: Mapping[str, Artist] | None = None
    ) -> tuple[Figure, list[tuple[Axes, pandas.DataFrame]]]:
        """A figure with a panel for each `facet` of a table, which names its axis; rows are at y = 0, 1, 2, … from the
        top.  The column `name` stands at the left and `result` at the right, on a narrow page below the name."""
        share = 0.46 if self.narrow else 0.35
        names = table["name"].map(lambda name: self.wrap(name, share))
        results = table["result"].map(lambda result: self.wrap(result, share))
        if self.narrow:
            names = (names + "\n" + results).str.strip()
            results = pandas.Series("", table.index)
        table = table.assign(name=names, result=results)
        panels = [rows.reset_index(drop=True) for _, rows in table.groupby("facet", sort=False)]
        heights = []
        for rows in panels:
            lines = rows[["name", "result"]].map(lambda text: text.count("\n")).max(axis=None)
            heights.append(max(2, len(rows)) * (inches + LINE * lines) + 0.4)
        figure = self.figure(table, sum(heights), legend)
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for axis, rows in zip(axes, panels, strict=True):
            axis.set_ylim(len(rows) - 0.4, -0.6)
            axis.set_yticks(range(len(rows)), rows["name"])
            axis.tick_params(axis="y", length=0)
            axis.spines["left"].set_visible(False)
            axis.locator_params(axis="x", nbins=3 if self.narrow else 4)
            axis.set_xlabel(self.wrap(rows["facet"].iloc[0], 0.9), loc="right" if self.narrow else "center")
            if rows["result"].any():
                right = axis.secondary_yaxis("right")
                right.set_yticks(range(len(rows)), rows["result"])
                right.tick_params(axis="y", length=0)
                right.spines["right"].set_visible(False)
        return figure, list(zip(axes, panels, strict=True))


def page_of(manifest: Manifest, edits: Edits) -> Page:
    """The page of a study with the user's figures.yaml."""
    colours = style.colours(manifest) | edits.colours
    return Page(manifest, edits.width, colours, style.encodings(manifest, colours))


class Kind(NamedTuple):
    """A kind of figure: what it `says` in the report, its table, which is None where the study has no data for it, and
    the drawing of that table.

    The table has everything that is plotted, so that equal tables give equal figures; its `attrs` hold `caption`, a
    list of lines, and other values for the drawing.
    """

    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    plot: Callable[[pandas.DataFrame, Page], Figure]

    def draw(self, table: pandas.DataFrame, page: Page) -> Figure:
        """The figure of a table."""
        with matplotlib.rc_context(style.RC):
            return self.plot(table, page)
