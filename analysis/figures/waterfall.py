"""Waterfall: how each step of a cumulative design moves the metric."""

import math
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.axes import interval
from analysis.figures.kind import Kind, Page

COLUMNS = ["facet", "stratum", "kind", "factor", "level", "family", "name", "result", "start", "mean", "low", "high"]
COLUMNS += ["n", "p", "verdict", "note"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per bar, a panel per stratum: `start` in the metric's unit, the change `mean` with its interval.  The first
    row of a stratum is the cell where the steps begin, a point."""
    manifest = case.study.manifest
    if manifest.design != "cumulative" or case.effects.empty:
        return None
    cells = case.cells.set_index("cell")
    places = formatting.decimals((case.effects["high"] - case.effects["low"]) / 2)
    rows: list[dict[str, Any]] = []
    for contrast, effect in zip(evidence.contrasts(manifest), named_rows(case.effects), strict=True):
        (before,) = contrast.side(-1)
        start = cells.loc[before]
        facet = ", ".join(filter(None, [captions.axis_label(case.study, effect.metric), effect.stratum]))
        if facet not in [row["facet"] for row in rows]:
            result = "; ".join([formatting.number(start["mean"], 3), *formatting.lost(start)])
            first = {"facet": facet, "kind": "first", "name": start["label"], "result": result}
            rows.append(first | {"start": start["mean"]})
        name = "all steps together"
        if effect.kind == "step":
            name = f"+ {naming.assigned(manifest, effect.factor, effect.level)}"
        bar = {"facet": facet, "name": name, "start": start["mean"], "result": captions.result(effect, places)}
        rows.append(effect._asdict() | bar)
    result = pandas.DataFrame(rows).reindex(columns=COLUMNS).fillna({"factor": "", "level": "", "verdict": ""})
    caption = f"a bar: a step from the values above it; whiskers: {captions.simultaneous(case.effects)}"
    result.attrs = {"caption": [f"{caption}; {captions.COLOURS}", *captions.closing(case)]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row per bar, below the point where the first one starts."""
    figure, panels = page.rows(table)
    for axis, rows in panels:
        for row in named_rows(rows):
            if row.kind == "first":
                axis.axvline(row.start, color=style.MUTED, lw=0.6, ls=(0, (4, 3)), zorder=0)
                axis.plot(row.start, row.Index, "o", color=style.INK)
            elif row.verdict != "withheld" and math.isfinite(row.mean):
                draw_bar(axis, row)
        axis.margins(x=0.06)
    return figure


def draw_bar(axis: Axes, row: Any) -> None:
    """A bar from where a change starts to where it ends, with its interval, filled if it is decided."""
    colour = style.VERDICTS.get(row.verdict, style.MUTED)
    inside = colour if row.verdict in evidence.DECIDED else "white"
    axis.barh(row.Index, row.mean, 0.56, row.start, color=inside, edgecolor=colour)
    interval(axis, row, row.start, style.INK)
    if row.kind == "step":  # where the next bar starts
        end = row.start + row.mean
        axis.plot([end, end], [row.Index, row.Index + 1], color=style.MUTED, lw=0.6, zorder=1)


KIND = Kind("how each step moves the metric", table, draw)
