"""Pareto: the metric against a cell's cost in parameters, FLOPs or seconds, with the Pareto frontier."""

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ablate import evidence, formatting
from ablate.runs.study import Study
from ablate.runs.tables import is_timed, named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import facets, legend, log_axis, reach
from analysis.figures.kind import Kind, Page

LEAST = 1.05  # ratio of the largest to the smallest cost below which costs count as equal
BUDGETS = {"params": "parameters", "flops_per_token": "FLOPs per token"}
SHARED = "seconds, shared machine"
TIMED = "seconds of training steps"
COLUMNS = ["facet", "cell", "name", "cost", "cost_sd", "mean", "sd", "low", "high", "n", "frontier"]
COLUMNS += ["diverged", "failed", "missing", "runs"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and kind of cost (`facet`): the cost, mean and SD of the metric over done seeds.

    `cost_sd`: the SD of seconds measured by timing runs alone; NaN for other costs.

    Only kinds in which cells differ by 5 % or more are included; seconds only besides another kind, or if each run was
    timed alone.  `frontier` (not for seconds on a shared machine): no other cell is at least as cheap and good, and
    better in one; cells with a diverged or failed run are excluded, because their mean leaves those runs out.
    """
    study, known = case.study, case.cells
    if len({cell.task for cell in study.manifest.cells}) > 1 or study.manifest.design == "ladder":
        return None  # metrics of several tasks have no common axis; of rungs the figure `ladder` shows more
    costs = {title: known[name].astype(float) for name, title in BUDGETS.items() if name in known}
    costs = {title: cost for title, cost in costs.items() if _differ(cost)}
    isolated = is_timed(study.manifest)
    measured = _seconds(study, isolated)
    seconds = known["cell"].map(measured["mean"])
    if seconds.notna().any() and (costs or (isolated and _differ(seconds))):
        costs[TIMED if isolated else SHARED] = seconds
    if not costs or not known["mean"].notna().any():
        return None
    lower = evidence.lower_is_better(study.manifest, evidence.endpoint(study.manifest))
    score = (known["mean"] if lower else -known["mean"]).where(known["diverged"] + known["failed"] == 0)
    parts = []
    for title, cost in costs.items():
        x, y = (each[cost.notna()].to_numpy(float) for each in (cost, score))
        beaten = (x[:, None] <= x) & (y[:, None] <= y) & ((x[:, None] < x) | (y[:, None] < y))  # by the cell of the row
        best = np.isfinite(y) & ~beaten.any(axis=0) & (title != SHARED)
        parts.append(known[cost.notna()].assign(facet=title, cost=x, frontier=best))
    made = pandas.concat(parts, ignore_index=True)
    made["cost_sd"] = made["cell"].map(measured["std"]).where(made["facet"].eq(TIMED))
    made = made.eval("low = mean - sd\nhigh = mean + sd")
    made = end_at_shares(made, study.manifest, evidence.endpoints(study.manifest))[COLUMNS]
    caption = captions.caption("pareto", case, made, shared=SHARED in costs)
    made.attrs = {"y": captions.axis_label(study), "caption": caption}
    return made


def _differ(cost: pandas.Series) -> bool:
    known = cost.dropna()
    return len(known) > 1 and known.min() > 0 and known.max() / known.min() >= LEAST


def _seconds(study: Study, isolated: bool) -> pandas.DataFrame:
    """Mean and SD over done runs of the seconds of all training steps, if each run was timed alone.  Else of the
    seconds until the last logged step, including evaluation; empty if none were logged."""
    runs = study.runs[study.runs["status"] == "done"]
    if isolated:
        took = runs["steps"].astype(float) * runs["train/step_seconds"].astype(float)
    elif "seconds" in study.curves:
        last = study.curves.groupby(["cell", "seed"])["seconds"].max().rename("took")
        took = runs[["cell", "seed"]].join(last, on=["cell", "seed"])["took"]
    else:
        took = pandas.Series(math.nan, runs.index)
    return took.groupby(runs["cell"]).agg(["mean", "std"]).astype(float)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per kind of cost with its frontier, one legend for all."""
    cells = named_rows(table.drop_duplicates("cell"))
    below = legend({captions.with_losses(row): page.encodings[row.cell] for row in cells}, page, line=False)
    drawn, costs, across = facets(table, page, 1 if page.narrow else 3, 2.1, below.height + 0.2, sharey=True)
    for axis, title, rows in costs:
        _panel(axis, rows, page)
        axis.set_xlabel(title)
    for axis, *_ in costs[::across]:
        axis.set_ylabel(style.fold(table.attrs["y"], 0.8, 7))
    below.draw(drawn)
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, page: Page) -> None:
    for row in named_rows(rows):
        colour, _, marker = page.encodings[row.cell]
        inside = "white" if row.diverged + row.failed else colour
        look: dict[str, Any] = {"color": colour, "markerfacecolor": inside, "ms": 4.5, "lw": 0.9, "zorder": 3}
        across = row.cost_sd if math.isfinite(row.cost_sd) else None
        axis.errorbar(row.cost, row.mean, reach(row) if row.n > 1 else None, across, fmt=marker, **look)
    frontier = rows[rows["frontier"]].sort_values("cost", kind="stable")
    axis.plot(frontier["cost"], frontier["mean"], color=style.MUTED, lw=0.9, zorder=1)
    known = rows["cost"]
    if known.min() > 0 and known.max() / known.min() > 5:
        log_axis(axis.xaxis, known.min() / 1.2, known.max() * 1.2, most=4)
    axis.xaxis.set_major_formatter(FuncFormatter(_short))
    if not np.isfinite(rows["mean"]).any():
        axis.set_yticks([])


def _short(x: float, _: Any) -> str:
    """A cost as a short text: 120 k, 1.5 M, 48."""
    for size, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(x) >= size:
            return f"{x / size:.4g}{letter}"
    return formatting.show(x)


NEEDS = "costs that differ between configurations: parameters, FLOPs or seconds"
KIND = Kind("the metric against parameters, FLOPs and seconds", table, draw, needs=NEEDS)
