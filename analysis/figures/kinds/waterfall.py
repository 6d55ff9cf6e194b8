"""Waterfall: how each step of a cumulative design, or each change to one cell, moves the metric."""

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import name_x, reach, stacked
from analysis.figures.kind import Kind, Page

DESIGNS = ("cumulative", "one_at_a_time", "leave_one_out")
STRATA = 4  # panels at most
WHISKER = {"ecolor": style.INK, "elinewidth": 0.9, "capsize": 2, "capthick": 0.9, "zorder": 3}
EFFECT = ["mean", "low", "high", "n", "p", "verdict", "note"]
COLUMNS = ["facet", "role", "factor", "level", "name", "start", "end", *EFFECT]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per bar: `start` and `end` in the metric's unit, the change `mean` with its interval, by stratum (`facet`).

    role is `first` (the cell where bars begin, a point), `step`, `total` (all steps together) or `change`.
    """
    study = case.study
    if study.manifest.design not in DESIGNS or case.effects.empty:
        return None
    means = case.cells.set_index("cell")
    found: list[dict[str, Any]] = []
    for contrast, row in zip(evidence.contrasts(study.manifest), named_rows(case.effects), strict=True):
        (before,) = contrast.side(-1)
        if row.stratum not in [other["facet"] for other in found]:
            first, at = means.loc[before], float(means.loc[before, "mean"])
            about = {"facet": str(row.stratum), "role": "first", "factor": "", "level": "", "name": first["label"]}
            about |= {"start": at, "end": at, "mean": math.nan, "low": math.nan, "high": math.nan, "n": int(first["n"])}
            found.append(about | {"p": math.nan, "verdict": "", "note": "; ".join(formatting.lost(first))})
        found.append(_bar(study, row, float(means.loc[before, "mean"])))
    made, strata = pandas.DataFrame(found, columns=COLUMNS), list(dict.fromkeys(row["facet"] for row in found))
    kept = made[made["facet"].isin(strata[:STRATA])].reset_index(drop=True)
    places = formatting.decimals((case.effects["high"] - case.effects["low"]) / 2)
    labels = [captions.axis_label(study, metric) for metric in evidence.measures(study.manifest)]
    caption = captions.caption("waterfall", case, kept, every=len(strata), most=STRATA)
    kept.attrs = {"x": " or ".join(labels), "places": places, "caption": caption}
    return kept


def _bar(study: Study, row: Any, start: float) -> dict[str, Any]:
    if study.manifest.design != "cumulative":
        factor = naming.named(study.manifest, row.factor)
        level, base = (naming.named(study.manifest, key, row.factor) for key in (row.level, row.reference))
        role, name = "change", f"{factor}: {level} for {base}"
    elif row.kind == "step":
        role, name = "step", f"+ {naming.assigned(study.manifest, row.factor, row.level)}"
    else:
        role, name = "total", "all steps together"
    known = {key: getattr(row, key) for key in ("factor", "level", *EFFECT)}
    end = math.nan if row.verdict == "withheld" else start + row.mean
    return known | {"facet": row.stratum, "role": role, "name": name, "start": start, "end": end}


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """Bars from where a change starts to where it ends, a panel per stratum."""
    strata = [rows for _, rows in table.groupby("facet", sort=False)]
    results = [[_result(row, table.attrs["places"]) for row in named_rows(rows)] for rows in strata]
    names = [rows["name"] for rows in strata]
    drawn, panels = stacked(table, page, list(zip(names, results, strict=True)))
    for axis, rows in zip(panels, strata, strict=True):
        ends = rows["end"].to_numpy()
        for i, row in enumerate(named_rows(rows)):
            shade = style.verdict_colour(row.verdict)
            if row.role == "first":
                axis.plot(row.end, i, "o", ms=4.5, color=shade)
            elif np.isfinite(row.end):
                inside = shade if row.verdict in evidence.DECIDED else "white"
                bar: dict[str, Any] = {"xerr": reach(row), "color": inside, "edgecolor": shade, "lw": 0.9, "zorder": 2}
                axis.barh(i, row.mean, 0.56, row.start, **bar, error_kw=WHISKER)
            # Compared with a tolerance: one is a cell's mean, the other a sum of differences.
            follows = i + 1 < len(rows) and np.isclose(rows["start"].iloc[i + 1], ends[i], rtol=1e-9, atol=0)
            if row.role in ("first", "step") and follows:  # where the next bar starts
                axis.plot([ends[i]] * 2, [i, i + 1], color=style.MUTED, lw=0.6, zorder=1)
        base = rows["start"].iloc[0]
        if np.isfinite(base):
            axis.axvline(base, color=style.MUTED, lw=0.6, ls=(0, (4, 3)), zorder=0)
        if not np.isfinite(ends).any():
            axis.set_xlim(0, 1)
            axis.set_xticks([])
        axis.locator_params(axis="x", nbins=2 if page.narrow else 5)
        axis.margins(x=0.06)
        axis.set_title(rows["facet"].iloc[0])
    name_x(panels[-1], table.attrs["x"], page)
    return drawn


def _result(row: Any, places: int) -> str:
    if row.role == "first":
        value = formatting.number(row.end, 3) if np.isfinite(row.end) else "no number"
        return "; ".join(filter(None, [value, row.note]))
    return captions.result(row, places)


KIND = Kind("how each step or single change moves the metric", table, draw)
