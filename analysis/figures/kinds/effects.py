"""Forest plot: effects with simultaneous intervals and their verdicts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.formatting import ESTIMATE_ONLY
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import difference_ticks, name_x, stacked
from analysis.figures.kind import MOST, Kind, Page

PAGE = 64  # rows that fit on a page when each factor is a heading above its rows
CLOSE = 0.155  # inches between rows then
REASON = 40  # characters of a note then

COLUMNS = ["kind", "factor", "level", "stratum", "family", "n", "mean", "sd", "low", "high", "p", "verdict", "note"]


def table(case: Case) -> pandas.DataFrame:
    """The headline rows of `evidence.effects`, with label, result (as text), metric, facet and margin."""
    shown = evidence.best_first(evidence.headline(case.effects))
    rows = shown[COLUMNS].assign(metric=shown["metric"], margin=shown["margin"])
    rows["facet"] = [captions.difference_label(case.study, name) for name in rows["metric"]]
    where = [f" at {stratum}" for stratum in shown["stratum"]]
    rows["label"] = [label.removesuffix(at) for label, at in zip(shown["label"], where, strict=True)]
    rows["drawn"] = shown["mean"].notna() & (shown["verdict"] != "withheld")
    rows["result"] = _results(rows, partial(naming.assigned, case.study.manifest))
    beyond = any((own["mean"].abs() > _cap(own[own["drawn"]])).any() for _, own in rows.groupby("facet"))
    facts = {"shown": shown, "family": int(shown["family"].sum()), "beyond": beyond, "many": len(rows) > MOST}
    rows.attrs["caption"] = captions.caption("effects", case, rows, **facts)
    if rows.empty:
        rows.attrs["empty"] = "one configuration: nothing to compare"
    return rows


def _results(rows: pandas.DataFrame, assigned: Callable[[str, str], str]) -> list[str]:
    known = rows[rows["drawn"]]
    places = {metric: formatting.decimals((each["high"] - each["low"]) / 2) for metric, each in known.groupby("metric")}
    several = known["n"].nunique() > 1
    found = []
    for row in named_rows(rows):
        if not row.drawn:
            # Of many rows, the last part of a long reason: in how many seeds the level is lower, and higher.
            words, last = f"{row.verdict}: {row.note}", row.note.rpartition("; ")[2].partition(" (")[0]
            fits = len(rows) <= MOST or len(words) <= REASON
            found.append(words if fits else f"{row.verdict}: {last}" if len(last) <= REASON else row.verdict)
            continue
        n = f"  n = {row.n}" * several
        decided = row.kind == "interaction" and row.verdict in ("better", "worse")
        means = formatting.crossed(row, row.verdict, assigned).partition(": ")[2] if decided else ""
        words = f"  {means or row.verdict}" * (row.verdict != ESTIMATE_ONLY)  # the caption or a heading says so once
        note = f": {row.note}" if row.sd == 0 and row.note else ""  # the caption has the other reasons
        found.append(f"{formatting.span(row.mean, row.low, row.high, places[row.metric])}{n}{words}{note}")
    return found


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A point and an interval per effect, its verdict and n, the zero line, the margin; a panel per metric."""
    panels = [_under_heads(group) for _, group in table.groupby("facet", sort=False)]
    texts = [(rows["label"], rows["result"]) for rows in panels]
    drawn, axes = stacked(table, page, texts, CLOSE) if len(table) > MOST else stacked(table, page, texts)
    for axis, rows in zip(axes, panels, strict=True):
        for place in np.flatnonzero(rows["head"]):
            axis.get_yticklabels()[place].set(fontweight="bold")
        effects = rows[~rows["head"]]
        known = effects[effects["drawn"].astype(bool)]
        cap = _cap(known)
        axis.axvline(0, color=style.INK, lw=0.8)
        for row in named_rows(effects):
            if np.isfinite(row.margin):  # the band of equivalence
                band = [row.Index - 0.5, row.Index + 0.5]
                axis.fill_betweenx(band, -row.margin, row.margin, color=style.FAINT, lw=0, zorder=0)
            if row.drawn:
                _effect(axis, row.Index, row, cap)
        difference_ticks(axis, page)
        if known.empty:
            axis.set(xlim=(-1, 1), xticks=[0])
        name_x(axis, effects["facet"].iloc[0], page)
    return drawn


def _under_heads(shown: pandas.DataFrame) -> pandas.DataFrame:
    """The rows of a forest from top to bottom, with headings (`head`) for strata and rows of estimates only.  If
    there are many rows, each factor is a heading, too, and is left out of the names below it."""
    named = shown["label"].str.partition(": ")
    grouped = (named[2] != "") & (len(shown) > MOST)
    shown = shown.assign(group=named[0].where(grouped, ""), label=named[2].where(grouped, shown["label"]))
    parts = []
    for (family, stratum, group), rows in shown.groupby(["family", "stratum", "group"], sort=False):
        stratum = str(stratum) or "between settings" * bool(shown["stratum"].any())
        heading = ", ".join(filter(None, [ESTIMATE_ONLY * (not family), stratum, group]))
        parts += [pandas.DataFrame({"label": [heading], "result": "", "head": True})] * bool(heading)
        parts += [rows.assign(head=False)]
    return pandas.concat(parts, ignore_index=True)


def _cap(known: pandas.DataFrame) -> float:
    """The largest distance from zero on the axis: all points and decided intervals, or three times the median interval.

    Otherwise one cell with two noisy seeds would squeeze all other rows into a dot.  On a page of many rows one large
    effect would do the same, so there the axis also ends at four times the upper quartile.
    """
    if known.empty:
        return 1.0
    reach = known[["low", "high"]].abs().max(axis=1)
    decided = known["verdict"].isin([*evidence.DECIDED, ESTIMATE_ONLY])
    needed = [*known["mean"].abs(), *reach[decided], 3 * reach.median()]
    most = 4 * reach.quantile(0.75) if len(known) > MOST else math.inf
    return min(float(np.nanmax([*needed, 0.0])) * 1.05, float(most)) or 1.0


def _effect(axis: Axes, y: float, row: Any, cap: float) -> None:
    colour = style.verdict_colour(row.verdict)
    if abs(row.mean) > cap:
        edge, ahead = math.copysign(cap, row.mean), row.mean > 0
        axis.plot([0.8 * edge, edge], [y, y], ":", color=colour)
        axis.plot(edge, y, ">" if ahead else "<", color=colour, ms=4.5, clip_on=False)
        number = formatting.number(row.mean, 2, signed=True)
        axis.text(0.78 * edge, y, number, ha="right" if ahead else "left", va="center", fontsize=style.SIZE)
        return
    if math.isfinite(row.low):
        ends = np.clip([row.low, row.high], -cap, cap)
        axis.plot(ends, [y, y], color=colour, lw=1.4, solid_capstyle="butt")
        for end, true, arrow in zip(ends, (row.low, row.high), "<>", strict=True):
            axis.plot(end, y, marker="|" if end == true else arrow, color=colour, ms=4, clip_on=False)
    inside = colour if row.verdict in evidence.DECIDED else "white"
    axis.plot(row.mean, y, "o", ms=4.5, color=colour, markerfacecolor=inside, zorder=3)


KIND = Kind("every effect with its interval and verdict", table, draw, PAGE)
