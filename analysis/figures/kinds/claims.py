"""Claims: what the study file claims, against what was found, with the verdict of each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, format
from ablate.results import naming
from analysis.case import Case
from analysis.figures.draw import parts, style
from analysis.figures.draw.axes import Short
from analysis.figures.draw.rows import Rows, crowded, rows_of
from analysis.figures.kind import Kind, Page

RANKS, SHARES = "Spearman's ρ with the published numbers", "difference in the share of diverged runs"
WANTED = {"less": -1, "greater": 1, "diverges_more": 1, "rank_correlates": 1}  # the side of zero that is claimed
COLUMNS = ["facet", "label", "relation", "mean", "low", "high", "margin", "wanted", "n", "verdict", "result", "note"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per claim: estimate, interval, margin, verdict, in panels of one unit (`facet`).

    wanted: the side of zero that is claimed, −1 or 1; 0 where it is the band ±margin.
    """
    found = case.claims
    if found.empty:
        return None
    facets = [_facet(case, row) for row in found.itertuples(index=False)]
    made = found.assign(facet=facets, wanted=[WANTED.get(relation, 0) for relation in found["relation"]])
    made["label"] = [_label(row) for row in found.itertuples(index=False)]
    made["margin"] = pandas.to_numeric(made["margin"], errors="coerce").astype(float)
    places = {facet: format.decimals((rows["high"] - rows["low"]) / 2) for facet, rows in made.groupby("facet")}
    made["result"] = [_result(row, places[row.facet]) for row in made.itertuples(index=False)]
    made = made[COLUMNS].reset_index(drop=True)
    made.attrs = {"caption": _caption(case, found, made)}
    return made


def _facet(case: Case, row: Any) -> str:
    if row.relation in ("rank_correlates", "diverges_more"):
        return RANKS if row.relation == "rank_correlates" else SHARES
    return f"difference in {row.metric}{naming.unit(case.study.manifest, row.metric)}, side one − side two"


def _label(row: Any) -> str:
    """What is compared, and how it stands: "gated_better: swiglu − mlp, post hoc"."""
    kind = "" if row.registered else ", post hoc"
    between = " against " if row.relation in ("rank_correlates", "diverges_more") else f" {format.MINUS} "
    sides = between.join([row.side, row.against])
    return f"{row.name}: {sides}{kind}" + ", edited" * bool(row.edited)


def _result(row: Any, places: int) -> str:
    if not math.isfinite(row.mean):
        return row.verdict
    return f"{format.span(row.mean, row.low, row.high, places)}  {row.verdict}"


def _caption(case: Case, found: pandas.DataFrame, made: pandas.DataFrame) -> list[str]:
    family, counted = int(found["family"].sum()), found.loc[found["n"] > 0, "n"]
    n = f", {parts.seeds(counted)}" if len(counted) else ""
    post = int((~found["registered"].astype(bool)).sum())
    how = [f"simultaneous 95 % intervals over {format.counted(family, 'registered claim')}"] * bool(family)
    how += ["post hoc: false coverage rate 5 %"] * bool(post)
    band = "; grey: what is claimed" if made["wanted"].ne(0).any() or made["margin"].notna().any() else ""
    together = evidence.families(case.study.manifest, int(case.effects["family"].sum()))
    return [f"{'; '.join(how)}{n}; filled: decided{band}{parts.assuming(found)}", together, parts.warning(case.study)]


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A forest per unit, the claimed side or band in grey behind each row."""
    panels = [rows for _, rows in table.groupby("facet", sort=False)]
    above = crowded(page, list(table["label"]), list(table["result"]))
    texts = [rows_of(list(rows["label"]), list(rows["result"]), page, 0.18, above) for rows in panels]
    heights = [text.height + 0.45 for text in texts]
    drawn = page.figure(table, sum(heights))
    axes = drawn.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axis, rows, text in zip(axes, panels, texts, strict=True):
        _panel(axis, rows, text, page)
        text.draw(axis)
        axis.set_xlabel(rows["facet"].iloc[0])
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, text: Rows, page: Page) -> None:
    known = rows[["mean", "low", "high"]].to_numpy(float).ravel()
    low, high = parts.limits([0.0, *known, *rows["margin"], *-rows["margin"]])
    for y, row in zip(text.places, rows.itertuples(index=False), strict=True):
        edge = {-1: (low, 0.0), 1: (0.0, high)}.get(row.wanted, (-row.margin, row.margin))
        if np.isfinite(edge).all():
            axis.fill_betweenx([y - 0.4 * text.unit, y + 0.4 * text.unit], *edge, color=style.FAINT, lw=0, zorder=0)
        if np.isfinite(row.low):
            axis.plot([row.low, row.high], [y, y], color=style.INK, lw=1.3, marker="|", ms=4)
        if np.isfinite(row.mean):
            inside = style.INK if row.verdict in evidence.DECIDED else "white"
            axis.plot(row.mean, y, "o", ms=4.5, color=style.INK, markerfacecolor=inside, zorder=3)
    axis.axvline(0, color=style.INK, lw=0.6, zorder=1)
    axis.set_xlim(low, high)
    parts.few_ticks(axis, page)
    axis.xaxis.set_major_formatter(Short())


KIND = Kind("claims", "every claim of the study file, what was found and the verdict", table, parts.drawn(draw))
