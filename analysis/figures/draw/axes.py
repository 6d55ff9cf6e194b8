"""Axes with ticks formatted like the numbers in the text; marks: points, intervals, lines and bands; rows of a figure,
names left and results right (on a narrow page below the names); legends below all panels."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas
import seaborn
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, ScalarFormatter

from ablate import evidence
from analysis.figures.draw import style
from analysis.figures.draw.style import SIZE, Encoding, fold, width_of
from analysis.figures.kind import Page

WHOLE = (-0.03, 1.03)  # the axis of a share of runs
SLANTED = 22  # characters of a rotated name
LINE = 0.11  # inches per line of a row's text
NAMES, RESULTS, BOTH = 0.36, 0.42, 0.49  # shares of the width for names, results, or both below each other
HEADING = 0.4  # inches of a panel for its title or axis label
SAMPLE, EDGE = 0.52, 0.1  # inches: a legend handle with the space around an entry, the page's margins
MOST = 5  # columns
BESIDE = 1.3  # how far names may reach beyond a panel, over its width
Places = dict[str, tuple[float, float, str]]  # by name: x, y, colour


class Short(ScalarFormatter):
    """Ticks formatted like the numbers in the text: −0.05, 0, 0.05."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The text of one tick."""
        text = super().__call__(x, pos)
        return text if text.strip("−-+0.") else "0"


def numbers(values: Iterable[float]) -> list[str]:
    """Settings in one format: 1e-4, 3e-4, 1e-2 if one is below 0.001, else 0.001, 0.01, 3, 128."""
    known = list(values)
    if all(value == 0 or 0.001 <= abs(value) < 1e5 for value in known):
        return [f"{value:g}" for value in known]
    parts = [f"{value:.3e}".split("e") for value in known]
    short = [f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}" for mantissa, exponent in parts]
    return [text if value else "0" for text, value in zip(short, known, strict=True)]


def log_axis(one: XAxis | YAxis, low: float, high: float, at: Iterable[float] = (), most: int = 6) -> None:
    """A log axis from `low` to `high` with ticks at `at`, or at a few of 1, 2, 5, 10, …"""
    ticks = list(at) or _few(low, high, most)
    one.axes.set(**{f"{one.axis_name}scale": "log", f"{one.axis_name}lim": (low, high)})
    one.set_ticks(ticks, numbers(ticks))
    one.set_minor_locator(NullLocator())
    one.set_minor_formatter(NullFormatter())


def _few(low: float, high: float, most: int) -> list[float]:
    """Ticks of a log axis: linear within a factor of 4; else 1, 2, 3, 5, 7 of each decade, 1, 2, 5, or decades."""
    if high / low < 4:
        return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [[m * 10.0**e for e in decades for m in ms] for ms in ((1, 2, 3, 5, 7), (1, 2, 5))]
    choices += [[10.0**e for e in decades[::step]] for step in (1, 2, 3, 5)]
    inside = [[tick for tick in ticks if low <= tick <= high] for ticks in choices]
    return next((ticks for ticks in inside if len(ticks) <= most), inside[-1])


def value_axis(axis: Axes, at: list[float], most: int) -> None:
    """An axis of the values that were tried: log if they span a factor of 4 or more, with a separate place for zero.
    Above `most` values, every second one is named; above 8 the axis chooses."""
    low, high, named = min(at), max(at), at[:: 1 + (len(at) > most)]
    if low > 0 and high / low >= 4:
        factor = (high / low) ** 0.06
        log_axis(axis.xaxis, low / factor, high * factor, named if len(at) <= 8 else ())
        return
    if low == 0 and len(at) > 2 and high / at[1] >= 4:
        axis.set_xscale("symlog", linthresh=at[1], linscale=0.5)
        axis.set_xlim(-at[1] / 3, high * 1.3)
    if len(at) <= 8:
        axis.set_xticks(named, numbers(named))
        axis.xaxis.set_minor_locator(NullLocator())


def limits(values: Any, share: float = 0.08) -> tuple[float, float]:
    """Axis limits around these values with some margin; 0 and 1 if none is finite."""
    known = np.asarray(values, float).ravel()
    known = known[np.isfinite(known)]
    if not known.size:
        return 0.0, 1.0
    margin = share * float(np.ptp(known)) or 0.01 * abs(float(known[0])) or 0.01
    return float(known.min()) - margin, float(known.max()) + margin


class SpacedTicks(MaxNLocator):
    """As many ticks along x as fit without overlap, at most `most`, judged by the longest tick label."""

    def __init__(self, axis: Axis, most: int):
        super().__init__(nbins=most, steps=[1, 2, 2.5, 5, 10])
        self.along, self.most = axis, most

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """See MaxNLocator."""
        room = 3 * self.along.get_tick_space()  # in font sizes
        for count in range(self.most, 0, -1):
            self.set_params(nbins=count)
            ticks = super().tick_values(vmin, vmax)
            shown = [f"{tick:.6g}" for tick in ticks if vmin <= tick <= vmax]
            if len(shown) * (0.6 * max(map(len, shown), default=0) + 0.8) <= room:
                break
        return ticks


def difference_ticks(axis: Axes, page: Page) -> None:
    """Ticks of differences along x: few enough not to overlap, formatted like the numbers in the text."""
    axis.xaxis.set_major_locator(SpacedTicks(axis.xaxis, 3 if page.narrow else 4))
    axis.xaxis.set_major_formatter(Short())


def name_ticks(axis: Axes, names: Sequence[str], inches: float, first: float = 0.0) -> None:
    """Names along x, evenly spaced over `inches`: wrapped, or rotated and cut if they do not fit."""
    room, places = inches / max(1, len(names)) - 0.05, [first + i for i in range(len(names))]
    if max((width_of(word) for name in names for word in name.split()), default=0.0) <= room:
        axis.set_xticks(places, [fold(name, room) for name in names])
        return
    cut = [name if len(name) <= SLANTED else name[: SLANTED - 1] + "…" for name in names]
    steep = inches / len(names) < 0.2
    axis.set_xticks(places, cut, rotation=90 if steep else 35, ha="center" if steep else "right")
    axis.tick_params(axis="x", pad=1)


def panels(drawn: Figure, count: int, across: int, **shared: Any) -> list[Axes]:
    """`count` panels in rows of `across`; `shared` is passed to `subplots`."""
    axes = list(drawn.subplots(math.ceil(count / across), across, squeeze=False, **shared).flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    return axes[:count]


def facets(
    table: pandas.DataFrame, page: Page, across: int, inches: float, more: float, **shared: Any
) -> tuple[Figure, list[tuple[Axes, str, pandas.DataFrame]], int]:
    """A figure with a panel, so many inches high, per `facet` of a table, in rows of at most `across`; each panel with
    its name and rows, and how many are in a row."""
    groups = list(table.groupby("facet", sort=False))
    across = min(len(groups), across)
    drawn = page.figure(table, inches * math.ceil(len(groups) / across) + more)
    axes = panels(drawn, len(groups), across, **shared)
    return drawn, [(axis, str(name), rows) for axis, (name, rows) in zip(axes, groups, strict=True)], across


def estimate(axis: Axes, y: float, row: Any, **how: Any) -> None:
    """A point at `mean` and the interval from `low` to `high` in its verdict's colour; hollow if undecided."""
    colour = style.verdict_colour(row.verdict)
    inside = colour if row.verdict in evidence.DECIDED else "white"
    look: dict[str, Any] = {"fmt": "o", "ms": 4.5, "lw": 1.3, "capsize": 2, "color": colour, "mfc": inside, "zorder": 3}
    axis.errorbar(row.mean, y, xerr=reach(row), **(look | how))


def spread(values: Any, share: bool) -> Any:
    """Mean ± 1 SD of values, of shares within 0 and 1; the SD of one value is 0."""
    known = np.asarray(values, float)
    mean, sd = known.mean(), known.std(ddof=1) if len(known) > 1 else 0.0
    return np.clip([mean - sd, mean + sd], *((0, 1) if share and known.max() <= 1 else (-math.inf, math.inf)))


def reach(row: Any) -> list[list[float]]:
    """The distances of the interval's ends from the mean, as matplotlib's error bars expect them."""
    return [[row.mean - row.low], [row.high - row.mean]]


def band(axis: Axes, rows: pandas.DataFrame, x: str, encoding: Encoding, alpha: float = 0.15, **how: Any) -> None:
    """A band from `low` to `high` in the colour of a line."""
    axis.fill_between(rows[x], rows["low"], rows["high"], color=encoding.colour, alpha=alpha, lw=0, **how)


def dots_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, page: Page, markers: bool, **how: Any) -> None:
    """A dot per row, at its `y`, in the colour of its cell, with `markers` also in its marker."""
    cells = {str(cell): page.encodings[str(cell)] for cell in dict.fromkeys(rows["cell"])}
    style = {"style": "cell", "markers": {cell: each.marker for cell, each in cells.items()}} if markers else {}
    palette = {cell: each.colour for cell, each in cells.items()}
    seaborn.scatterplot(rows, x=x, y="y", hue="cell", palette=palette, legend=False, ax=axis, **style, **how)


def lines_by_cell(
    axis: Axes, rows: pandas.DataFrame, x: str, page: Page, *units: str, markers: bool = False, **how: Any
) -> None:
    """A line through `mean` per cell, or per cell and value of the columns `units`, such as the seed."""
    for (cell, *_), own in rows.dropna(subset=[x, "mean"]).groupby(["cell", *units], sort=False):
        colour, dash, marker = page.encodings[str(cell)]
        how |= {"marker": marker if markers else "None", "mec": "w", "mew": 0}
        axis.plot(own[x], own["mean"], color=colour, ls=dash, **how)


def bands_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, page: Page, alpha: float) -> None:
    """The band of each cell, from `low` to `high`."""
    for cell, own in rows.groupby("cell", sort=False):
        band(axis, own, x, page.encodings[str(cell)], alpha)


def stacked(
    table: pandas.DataFrame, page: Page, texts: Sequence[tuple[Sequence[str], Sequence[str]]], inches: float = 0.18
) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each pair of names and results of rows; rows are at y = 0, 1, 2, … from the top.  Rows
    are `inches` apart, more if a text has several lines."""
    shown, heights = list[tuple[list[str], list[str]]](), list[float]()
    for names, results in texts:
        below = page.narrow and any(results)
        left, right = (BOTH, BOTH) if below else (NAMES, RESULTS)
        pairs = [(fold(n, page.width * left), fold(r, page.width * right)) for n, r in zip(names, results, strict=True)]
        pairs = [("\n".join(filter(None, pair)), "") for pair in pairs] if below else pairs
        lines = max((text.count("\n") for pair in pairs for text in pair), default=0)
        shown.append(([name for name, _ in pairs], [result for _, result in pairs]))
        heights.append(max(2, len(pairs)) * (inches + LINE * lines) + HEADING)
    drawn = page.figure(table, sum(heights) + 0.15)
    axes = list(drawn.subplots(len(texts), squeeze=False, height_ratios=heights)[:, 0])
    for axis, (rows, beside) in zip(axes, shown, strict=True):
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.set_ylim(len(rows) - 0.4, -0.6)
        axis.set_yticks(range(len(rows)), rows, multialignment="right")
        if any(beside):
            side = axis.secondary_yaxis("right")
            side.set_yticks(range(len(beside)), beside)
            side.tick_params(axis="y", length=0)
            side.spines["right"].set_visible(False)
    return drawn, axes


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
