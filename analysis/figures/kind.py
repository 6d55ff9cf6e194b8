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
from analysis.case.figures_yaml import LETTERS, STYLES, Edits
from analysis.figures import style

MOST = 24  # rows or cells of a readable figure
LETTER = 0.58  # the width of a usual letter over the size of the font
SAMPLE = 9  # letters that a handle of a legend and the space around an entry are wide
LINE = 0.125  # inches per line of text, at the default size


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
    style: str = "default"

    @property
    def scale(self) -> float:
        """How large letters, lines and rows are, relative to the default style."""
        return STYLES[self.style].letters / LETTERS

    @property
    def narrow(self) -> bool:
        """Whether the page is one column of two, so that panels are stacked."""
        return self.width / self.scale < 4.5

    def letters(self, share: float = 1.0) -> int:
        """How many letters a share of the page's width has room for."""
        return int(share * self.width * 72 / (LETTER * LETTERS * self.scale))

    def wrap(self, text: str, share: float = 1.0) -> str:
        """A text in lines that fit a share of the page's width."""
        return textwrap.fill(text, max(6, self.letters(share)))

    def figure(self, table: pandas.DataFrame, height: float, legend: Mapping[str, Artist] | None = None) -> Figure:
        """An empty figure with the table's title, and a legend below all panels.  `height` is that of the panels in
        inches, for letters of the default size."""
        title = self.wrap(table.attrs["title"])
        names = [self.wrap(name, 0.85) for name in legend or ()]
        longest = max(map(len, "\n".join(names).split("\n")))
        columns = max(1, min(4, self.letters() // (longest + SAMPLE)))
        lines_of_names = max((name.count("\n") + 1 for name in names), default=0)
        lines = title.count("\n") + 1 + 1.2 * lines_of_names * math.ceil(len(names) / columns)
        height = max((height + LINE * lines) * self.scale, STYLES[self.style].shape * self.width)
        figure = NotebookFigure(figsize=(self.width, height), layout="constrained")
        figure.suptitle(title, x=0.01, ha="left")
        if legend:
            place: dict[str, Any] = {"loc": "outside lower left", "ncols": columns}
            figure.legend(legend.values(), names, **place)
        return figure

    def for_lines(self, table: pandas.DataFrame) -> "Page":
        """The page with the encodings of a grid's factors that a table's lines differ in, `lines`: a variant keeps its
        own in every panel and along its line."""
        if self.manifest.design != "grid" or "lines" not in table.attrs:
            return self
        factors = {name: self.manifest.factors[name] for name in table.attrs["lines"]}
        return self._replace(encodings=style.encodings(replace(self.manifest, factors=factors), self.colours))

    def legend(self, table: pandas.DataFrame, line: bool = True, marker: bool = True) -> dict[str, Artist]:
        """A line, a marker or both per `label` of a table, as its first cell is drawn."""
        handles: dict[str, Artist] = {}
        first = table.drop_duplicates("label")
        for label, cell in zip(first["label"], first["cell"], strict=True):
            look = self.encodings[cell]
            handles[label] = Line2D(
                [], [], color=look.colour, ls=look.dash if line else "", marker=look.marker if marker else ""
            )
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
    return Page(manifest, edits.width, colours, style.encodings(manifest, colours), edits.style)


class Kind(NamedTuple):
    """A kind of figure: what it shows in one sentence, the table it draws, the drawing.

    `table` returns everything that is plotted, or None if a study has no data for it; its `attrs` hold `caption` (lines
    that state the band and n) and other values for the drawing.  Equal tables give equal figures.
    The columns `cell` (an id), or `factor` and `level` (text), identify a row for the user's subset and order; other
    text is for display, see `naming.named`.  At most `most` cells, or effects, are drawn.  A message says
    what a study without data for it `needs`.
    """

    says: str
    table: Callable[[Case], pandas.DataFrame | None]
    plot: Callable[[pandas.DataFrame, Page], Figure]
    most: int = MOST
    needs: str = ""

    def draw(self, table: pandas.DataFrame, page: Page) -> Figure:
        """The figure of a table; if the user's subset is empty, a message instead."""
        with matplotlib.rc_context(style.settings(page.style)):
            if len(table):
                return self.plot(table, page)
            figure = page.figure(table, 0.9)
            axis = figure.subplots()
            style.write_in(axis, table.attrs.get("empty", "nothing left by the subset"))
            axis.set_axis_off()
            return figure
