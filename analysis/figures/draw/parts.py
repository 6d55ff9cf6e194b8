"""What several kinds of figure need: names of variants, rows with results, captions of intervals, limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, format
from ablate.results import naming
from ablate.results.records import Cell
from ablate.results.study import Study
from analysis.figures.draw import style
from analysis.figures.draw.axes import Short
from analysis.figures.draw.wrap import fold, width_of
from analysis.figures.kind import Page

SLANTED = 22  # characters of a slanted name
Draw = Callable[[pandas.DataFrame, Page], Figure]
EXPLORATORY = "exploratory 95 % intervals (false coverage rate 5 %)"  # of cells against the reference


def variant(study: Study, factor: str, level: Any) -> str:
    """A variant by itself: swiglu, optim.lr=0.001."""
    manifest = study.manifest
    return naming.named(manifest, level) if factor in manifest.components else naming.assigned(manifest, factor, level)


def by_cell(rows: pandas.DataFrame, page: Page, *styles: str) -> dict[str, Any]:
    """What seaborn takes to tell cells apart by colour and by `styles`: markers, dashes.

    It draws the numbers that it is given, and computes none of its own.
    """
    encodings = {cell: page.encodings[cell] for cell in dict.fromkeys(rows["cell"])}
    how = {"markers": {cell: encoding.marker for cell, encoding in encodings.items()}}
    how |= {"dashes": {cell: "" if encoding.dash == "-" else encoding.dash[1] for cell, encoding in encodings.items()}}
    palette = {cell: encoding.colour for cell, encoding in encodings.items()}
    return {"hue": "cell", "style": "cell", "palette": palette, "legend": False} | {name: how[name] for name in styles}


def lines_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, page: Page, *styles: str, **how: Any) -> None:
    """A line per cell through `mean`, per run where `units` names the column that tells runs apart."""
    rows = rows.dropna(subset=[x, "mean"])
    if rows.empty:
        return
    named = axis.get_xlabel(), axis.get_ylabel()
    told = by_cell(rows, page, "dashes", *styles) | ({} if "markers" in styles else {"markers": False})
    seaborn.lineplot(rows, x=x, y="mean", estimator=None, errorbar=None, ax=axis, mew=0, **told, **how)
    axis.set(xlabel=named[0], ylabel=named[1])


def bands_by_cell(axis: Axes, rows: pandas.DataFrame, x: str, page: Page, alpha: float) -> None:
    """The band of each cell, from `low` to `high`."""
    for cell, own in rows.groupby("cell", sort=False):
        axis.fill_between(own[x], own["low"], own["high"], color=page.encodings[str(cell)].colour, alpha=alpha, lw=0)


def name_ticks(axis: Axes, names: Sequence[str], inches: float, first: float = 0.0) -> None:
    """Names along x, each in the middle of its share of `inches`: in lines, or slanted and cut where it must be."""
    room, places = inches / max(1, len(names)) - 0.05, [first + i for i in range(len(names))]
    if max((width_of(word) for name in names for word in name.split()), default=0.0) <= room:
        axis.set_xticks(places, [fold(name, room) for name in names])
        return
    cut = [name if len(name) <= SLANTED else name[: SLANTED - 1] + "…" for name in names]
    steep = inches / len(names) < 0.2
    axis.set_xticks(places, cut, rotation=90 if steep else 35, ha="center" if steep else "right")
    axis.tick_params(axis="x", pad=1)


def metric_ticks(axis: Axes) -> None:
    """The axis of a difference, its ticks as numbers are written elsewhere."""
    axis.yaxis.set_major_formatter(Short())
    axis.locator_params(axis="y", nbins=5)


def few_ticks(axis: Axes, page: Page) -> None:
    """As many ticks along x as stand apart beside names and results."""
    axis.locator_params(axis="x", nbins=2 if page.narrow else 5)


def axis_label(study: Study, metric: str | None = None) -> str:
    """The metric with its unit; without one all that cells are compared by."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    return " or ".join(name + naming.unit(study.manifest, name) for name in metrics)


def one_metric(study: Study) -> list[tuple[str, list[Cell]]]:
    """The strata whose cells are scored by the study's first metric, the one that an axis of all of them can have."""
    own, metric = evidence.endpoints(study.manifest), evidence.endpoint(study.manifest)
    known = evidence.strata(study.manifest)
    return [(name, cells) for name, cells in known if all(own[cell.id] == metric for cell in cells)]


def other_metrics(study: Study) -> str:
    """Which strata a figure of one metric leaves out."""
    every = len(evidence.strata(study.manifest))
    left = every - len(one_metric(study))
    return f"{left} of {every} strata left out, of another metric; effects.csv has all" * bool(left)


def difference_label(study: Study, metric: str | None = None) -> str:
    """A difference in the metric, its unit, and which way is better where that is the same for all metrics."""
    metrics = [metric] if metric else evidence.measures(study.manifest)
    ways = {"lower" if evidence.lower_is_better(study.manifest, name) else "higher" for name in metrics}
    return f"difference in {axis_label(study, metric)}" + f" ({min(ways)} is better)" * (len(ways) == 1)


def simultaneous(shown: pandas.DataFrame) -> str:
    """What the intervals of these effects are, with n: a part of a caption."""
    known = shown[shown["low"].notna()]
    if known.empty:
        one = shown["n"].eq(1).any()
        return "no interval: one seed can conclude nothing" if one else "no interval: too few runs ended with a number"
    family = int(shown["family"].sum())
    pairing = "paired" if known["paired"].all() else "unpaired where batches differ"
    how = f"simultaneous 95 % intervals (Bonferroni-t, family of {family})" if family else EXPLORATORY
    return f"{how}, {seeds(known['n'])}, {pairing}{assuming(known)}"


def assuming(known: pandas.DataFrame) -> str:
    """What the verdicts of these effects or claims take for granted, and how many seeds may collapse, in a caption."""
    texts = [f"verdicts hold {text}" for text in known["assumes"].unique() if text]
    open_ = known.loc[known["verdict"].str.contains(" among "), "note"]
    return "".join(f"; {text}" for text in [*texts, *dict.fromkeys(note.split("; ")[0] for note in open_)])


def seeds(counts: pandas.Series) -> str:
    """How many seeds stand behind numbers: "8 seeds", "5 to 8 seeds"."""
    least, most = int(counts.min()), int(counts.max())
    return format.counted(most, "seed") if least == most else f"{least} to {most} seeds"


def warning(study: Study) -> str:
    """Why the intervals of a study are too narrow, where they are."""
    return evidence.unadjusted(study.manifest) or ""


def said(row: Any, places: int) -> str:
    """An effect with its interval and its verdict, as a row's result."""
    if row.verdict == "withheld" or row.n == 0:
        return f"{row.verdict}: {row.note}"
    return f"{format.span(row.mean, row.low, row.high, places)}  {row.verdict}"


def lost(row: Any) -> str:
    """What became of runs that gave no number, "" where all did."""
    return "; ".join(format.lost(row))


def limits(values: Sequence[float] | np.ndarray, share: float = 0.08) -> tuple[float, float]:
    """Limits that hold these values with room around them; 0 and 1 where none is finite."""
    known = np.asarray([value for value in values if np.isfinite(value)])
    if not len(known):
        return 0.0, 1.0
    margin = share * float(np.ptp(known)) or 0.01 * abs(float(known[0])) or 0.01
    return float(known.min()) - margin, float(known.max()) + margin


def drawn(draw: Draw) -> Draw:
    """A drawing that says so where the user's subset has left nothing of its table."""

    def figure(table: pandas.DataFrame, page: Page) -> Figure:
        return draw(table, page) if len(table) else style.nothing(page.figure(table, 0.9), "nothing left by the subset")

    return figure
