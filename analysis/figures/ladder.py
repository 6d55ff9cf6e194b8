"""Ladder: the loss over training compute, and what each change is worth in compute at each rung, with its trend."""

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate import evidence, formatting
from ablate.config.ladder import RUNG, number_of
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import with_band
from analysis.figures import captions, style
from analysis.figures.axes import ends, log_axis, on_two_lines
from analysis.figures.kind import Kind, Page

FAR = 4.0  # how far intervals of multipliers are drawn, as a factor
REFERENCE = "(reference)"
COLUMNS = ["panel", "cell", "label", "rung", "compute", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell of the ladder, other learning rates left out (`panel` loss): its training compute, its mean ±
    1 SD over seeds.  A row per change and rung (multiplier), over the reference's compute, and per
    change its trend at the lowest rung and the top one.  A study judged by an earlier method has the table of then."""
    manifest = case.study.manifest
    if manifest.design != "ladder":
        return None
    if "ladder" in case.study.figures:
        result = case.study.figures["ladder"].reindex(columns=COLUMNS)
        trained = result.loc[result["panel"] == "loss", "compute"].max()
        result = result[result["compute"] <= trained].reset_index(drop=True)
        bars = "bars: 95 % t-intervals"
        method = "by a parabola over the rungs, as judged when the study was run"
        notes = []
    else:
        worths = evidence.ladder(case.study)
        result = pandas.DataFrame([*losses(case), *multipliers(worths)], columns=COLUMNS)
        reference = formatting.listed(naming.assigned(manifest, *item) for item in manifest.reference.items())
        changes = evidence.changes(manifest)
        names = {cell: naming.assigned(manifest, *change) for cell, change in changes.items()}
        result["label"] = result["cell"].map(names).fillna(f"{reference} {REFERENCE}")
        bars = "bars ± 1 SD"
        method = "by more training steps"
        notes = list(evidence.ladder_lines(worths))
    multiplier = f"how many times a change's own compute the reference needs, {method}; bars: simultaneous 95 %"
    lines = [f"loss: mean over seeds, {bars}; multiplier: {multiplier}", *notes]
    if case.cells["diverged"].any():
        lines.append("configurations with diverged runs are left out")
    result.attrs = {"y": captions.axis_label(case.study), "caption": lines, "empty": "no finished run"}
    return result


def losses(case: Case) -> list[dict[str, Any]]:
    """The mean score of each cell at the ladder's learning rate, and one SD below and above it."""
    cells = with_band(case.cells).set_index("cell")
    rows = []
    for cell in case.study.manifest.cells:
        row = cells.loc[cell.id]
        if number_of(cell.levels[RUNG]) and row["n"] and not row["diverged"]:
            about = {"panel": "loss", "cell": cell.id, "rung": cell.levels[RUNG], "compute": cell.training_flops}
            rows.append(about | row[["mean", "low", "high", "n"]].to_dict())
    return rows


def multipliers(worths: pandas.DataFrame) -> list[dict[str, Any]]:
    """The multiplier of each change at each rung where it is known, and two points of its trend."""
    known = worths[np.isfinite(worths["multiplier"].astype(float)) & worths["multiplier"].gt(0)]
    rows = known.assign(panel="multiplier", mean=known["multiplier"]).to_dict("records")
    for _, change in known[known["trend"].notna()].groupby("label", sort=False):
        x = np.log10(change["compute"].astype(float))
        middle = np.log(change["multiplier"].astype(float)).mean()
        means = np.exp(middle + change["trend"].astype(float) * (x - x.mean()))
        points = change.assign(panel="trend", mean=means, low=math.nan, high=math.nan)
        rows += points.iloc[[0, -1]].to_dict("records")
    return rows


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The loss of every cell, with a line through the reference; the multiplier of every change with its trend."""
    legend = page.legend(table, line=False)
    legend["trend, or losses of the reference"] = Line2D([], [], color=style.MUTED)
    figure = page.figure(table, 4.2 if page.narrow else 2.2, legend)
    left, right = figure.subplots(2, 1) if page.narrow else figure.subplots(1, 2)
    for label, rows in table.groupby("label", sort=False):
        colour, _, marker = page.encodings[rows["cell"].iloc[0]]
        look: dict[str, Any] = {"fmt": marker, "color": colour, "zorder": 3}
        for row in named_rows(rows[rows["panel"] == "loss"]):
            left.errorbar(row.compute, row.mean, ends(row), **look)
        for row in named_rows(rows[rows["panel"] == "multiplier"]):
            row = row._replace(low=max(row.low, row.mean / FAR), high=min(row.high, row.mean * FAR))
            right.errorbar(row.compute, row.mean, ends(row), **look)
        trend = rows[rows["panel"] == "trend"]
        right.plot(trend["compute"], trend["mean"], color=colour, lw=0.8)
        if str(label).endswith(REFERENCE):
            left.plot(rows["compute"], rows["mean"], color=colour, lw=0.9)
    left.set(xlabel="training compute (FLOPs)", ylabel=on_two_lines(table.attrs["y"]))
    right.set(xlabel="compute of the reference (FLOPs)", ylabel="compute multiplier")
    right.axhline(1, color=style.INK, lw=0.6, zorder=1)
    log_axis(left.xaxis)
    log_axis(right.xaxis)
    if table["panel"].eq("multiplier").any():
        log_axis(right.yaxis)
    else:
        style.write_in(right, "not known")
    return figure


KIND = Kind("the loss over training compute, and what each change is worth in compute", table, draw, most=1000)
