"""Ladder: the loss over training compute, and what each change is worth in compute at each rung, with its trend."""

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
    1 SD over seeds.  A row per change and rung (multiplier), over the reference's compute.  A study judged by an
    earlier method has the table of then."""
    manifest = case.study.manifest
    if manifest.design != "ladder":
        return None
    if "ladder" in case.study.figures:
        result = case.study.figures["ladder"].reindex(columns=COLUMNS)
        trained = result.loc[result["panel"] == "loss", "compute"].max()
        result = result[(result["compute"] <= trained) & result["panel"].isin(["loss", "multiplier"])]
        bars = "bars: 95 % t-intervals"
        method = "by a parabola over the rungs, as judged when the study was run"
        notes = []
    else:
        worths = evidence.ladder(case.study)
        known = worths[np.isfinite(worths["multiplier"].astype(float)) & worths["multiplier"].gt(0)]
        multipliers = known.assign(panel="multiplier", mean=known["multiplier"]).to_dict("records")
        result = pandas.DataFrame([*losses(case), *multipliers], columns=COLUMNS)
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
    result.attrs = {"y": captions.axis_label(case.study), "caption": lines}
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


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The loss of every cell, with a line through the reference; the multiplier of every change, if any is known."""
    legend = page.legend(table, line=False)
    legend["losses of the reference"] = Line2D([], [], color=style.MUTED)
    names = [name for name in ("loss", "multiplier") if name in set(table["panel"])]
    down, across = (len(names), 1) if page.narrow else (1, len(names))
    figure = page.figure(table, 2.1 * down, legend)
    axes = dict(zip(names, figure.subplots(down, across, squeeze=False).ravel(), strict=True))
    looks = page.looks(table)
    for row in named_rows(table):
        colour, _, marker = looks[row.label]
        if row.panel == "multiplier":
            row = row._replace(low=max(row.low, row.mean / FAR), high=min(row.high, row.mean * FAR))
        axes[row.panel].errorbar(row.compute, row.mean, ends(row), fmt=marker, color=colour, zorder=3)
    if "loss" in axes:
        reference = table[table["label"].str.endswith(REFERENCE) & (table["panel"] == "loss")]
        axes["loss"].plot(reference["compute"], reference["mean"], color=style.MUTED, lw=0.9)
        axes["loss"].set(xlabel="training compute (FLOPs)", ylabel=on_two_lines(table.attrs["y"]))
    if "multiplier" in axes:
        axes["multiplier"].set(xlabel="compute of the reference (FLOPs)", ylabel="compute multiplier")
        axes["multiplier"].axhline(1, color=style.INK, lw=0.6, zorder=1)
        log_axis(axes["multiplier"].yaxis)
    for axis in axes.values():
        log_axis(axis.xaxis)
    return figure


KIND = Kind("the loss over training compute, and what each change is worth in compute", table, draw)
