"""A line per variant against a numeric setting, for the figures of learning rate, depth and width."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.records import STATUSES, Cell, Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import band, facets, legend, limits, name_at, spread, value_axis
from analysis.figures.kind import Page
from analysis.stats.multi_task import task_factors

CROWDED, PANELS = 8, 6  # lines in a panel above which another number has panels instead, if it has few enough levels
POINT = ("cell", "label", "facet", "mean", "low", "high", "n")


def swept(manifest: Manifest) -> list[str]:
    """The numeric factors with several levels."""
    return [name for name, levels in manifest.factors.items() if style.numeric(levels)]


def lines(case: Case, x: str, facets: Sequence[str] = ()) -> pandas.DataFrame | None:
    """A row per cell: cell, label (of its line), facet, metric, x, mean, low, high (± SD), n, runs and status counts.

    A line joins the cells that differ only in the factor x; if there are many, another number has a panel per value.
    None if x is not numeric with several levels, or if no line has two points.  Tasks are facets, each with its own
    metric.
    """
    manifest = case.study.manifest
    if x not in swept(manifest):
        return None
    metrics = evidence.endpoints(manifest)
    measured = {(manifest.tasks[cell.task].title, metrics[cell.id]) for cell in manifest.cells}
    by_task = task_factors(manifest) if len(measured) > 1 else []
    facets = [name for name in dict.fromkeys([*facets, *by_task]) if name != x]
    # Lines differ by the factors that vary at a fixed x, other than the facets.
    others = [name for name in manifest.factors if name not in (x, *facets)]
    pairs = {name: {(c.levels[x], formatting.show(c.levels[name])) for c in manifest.cells} for name in others}
    rest = [name for name in others if len(pairs[name]) > len({cell.levels[x] for cell in manifest.cells})]
    levels = {name: len(manifest.factors[name]) for name in rest}
    if manifest.design == "grid" and not facets and len(rest) > 1 and math.prod(levels.values()) > CROWDED:
        numbers = [name for name in swept(manifest) if levels.get(name, math.inf) <= PANELS]
        facets = sorted(numbers, key=levels.__getitem__)[:1]
    rest = [name for name in rest if name not in facets]
    facet_factors = [*facets, *style.roles(_with_factors(manifest, rest))[2]]
    within = [name for name in rest if name not in facet_factors]
    values, cells, rows = evidence.scores(case.study), {cell.id: cell for cell in manifest.cells}, []
    for row in named_rows(case.cells):
        about = point(manifest, cells[row.cell], values[row.cell], row.metric, within, facet_factors)
        about |= {"label": about["label"] or "all runs", "x": float(cells[row.cell].levels[x] or 0)}
        rows.append(about | {name: getattr(row, name) for name in ("runs", *STATUSES)})
    found = pandas.DataFrame(rows, columns=[*POINT[:3], "x", *POINT[3:], "runs", *STATUSES, "metric"])
    if found.groupby(["label", "facet"])["x"].nunique().max() < 2:
        return None
    first_seen = {facet: place for place, facet in enumerate(found["facet"].unique())}
    found = found.assign(place=found["facet"].map(first_seen)).sort_values(["place", "x"], kind="stable")
    found = found.drop(columns="place").reset_index(drop=True)
    axes = axes_of(manifest, found)
    caption = captions.caption("lines", case, found, measured=axes["y"].values())
    found.attrs = {"x": x, "lines": within, "caption": caption, **axes}
    return found


def _with_factors(manifest: Manifest, names: Iterable[str]) -> Manifest:
    return dataclasses.replace(manifest, factors={name: manifest.factors[name] for name in names})


def axes_of(manifest: Manifest, rows: pandas.DataFrame) -> dict[str, dict[str, Any]]:
    """For each metric its axis label (`y`), and whether lower is better (`lower`)."""
    metrics = list(dict.fromkeys(rows["metric"]))
    names = {metric: naming.metric_name(manifest, metric) for metric in metrics}
    return {"y": names, "lower": {metric: evidence.lower_is_better(manifest, metric) for metric in metrics}}


def point(
    manifest: Manifest, cell: Cell, scores: pandas.Series, metric: str, within: list[str], facets: list[str]
) -> dict[str, Any]:
    """The mean of a cell's scores with `low` and `high` one SD away, of shares within 0 and 1, and n; the SD of one
    value is 0.  The label has the levels of the factors `within`, the facet those of `facets`."""
    own, known = {name: naming.assigned(manifest, name, level) for name, level in cell.levels.items()}, scores.dropna()
    share = evidence.is_share(manifest.tasks[cell.task], metric)
    low, high = spread(known, share) if len(known) else (math.nan, math.nan)
    found = {"cell": cell.id, "label": " + ".join(own[name] for name in within)}
    found |= {"facet": ", ".join(own[name] for name in facets)}
    return found | {"metric": metric, "mean": known.mean(), "low": low, "high": high, "n": len(known)}


def draw_lines(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per facet, a line per label; diverged runs counted at the top."""
    encodings, several = page.encodings, table["metric"].nunique() > 1
    if page.manifest.design == "grid":  # a variant keeps its own at every setting on the axis
        encodings = style.encodings(_with_factors(page.manifest, table.attrs["lines"]), page.colours)
    encodings = {row.label: encodings[row.cell] for row in named_rows(table.drop_duplicates("label"))}
    below, most = legend(encodings, page), 1 if page.narrow else table.attrs.get("across", 3)
    drawn, groups, across = facets(table, page, most, 1.9, 0.3 + below.height, sharey=not several)
    for i, (axis, title, rows) in enumerate(groups):
        metric = rows["metric"].iloc[0]
        _panel(axis, rows, encodings)
        value_axis(axis, sorted(set(table["x"])), 8 if across < 3 else 5)
        alike = table[table["metric"] == metric]
        low, high = limits(alike[["low", "high", "mean"]], 0.06)
        crosses = alike["label"].nunique() * 0.07 + 0.05 if alike["diverged"].sum() else 0.0
        axis.set_ylim(low, high + (high - low) * crosses / max(0.2, 1 - crosses))
        axis.set_title(style.fold(title, page.width / across - 0.5, 7))
        axis.set_xlabel(page.label(table.attrs["x"]))
        if several or i % across == 0:
            axis.set_ylabel(table.attrs["y"][metric])
    if len(groups) == 1 and len(encodings) > 1:
        last = table[table["diverged"] == 0].sort_values("x").groupby("label", sort=False).tail(1)
        ends = {row.label: (row.x, row.mean, encodings[row.label].colour) for row in named_rows(last)}
        name_at(drawn, below, [(drawn.axes[0], ends)], (page.width - 0.6, 1.5))
    elif len(encodings) > 1 or "all runs" not in encodings:
        below.draw(drawn)
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, encodings: dict[str, style.Encoding]) -> None:
    for place, (label, line) in enumerate(rows.groupby("label", sort=False)):
        encoding = encodings[str(label)]
        line = line.sort_values("x")
        whole = line.where(line["diverged"] == 0)  # lines skip means over survivors only
        dots: dict[str, Any] = {"marker": encoding.marker, "color": encoding.colour, "ms": 3.5}
        axis.plot(line["x"], whole["mean"], linestyle=encoding.dash, **dots)
        band(axis, whole.assign(x=line["x"]), "x", encoding)
        part = line[(line["diverged"] > 0) & (line["n"] > 0)]
        axis.plot(part["x"], part["mean"], linestyle="", mfc="white", **dots)
        if "best" in line:
            best = line[line["best"]]
            axis.plot(best["x"], best["mean"], "o", mfc="none", mec=encoding.colour, ms=8, mew=0.8)
        for row in named_rows(line[line["diverged"] > 0]):
            text, height, across = f"× {row.diverged} of {row.runs}", 0.97 - 0.07 * place, axis.get_xaxis_transform()
            how: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 6, "transform": across, "zorder": 5}
            axis.text(row.x, height, text, color=encoding.colour, **how)
