"""Pareto: the metric against a cell's cost in parameters, FLOPs or seconds, with the Pareto frontier."""

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ablate import evidence
from ablate.runs.tables import is_timed, named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares, with_band
from analysis.figures import captions, style
from analysis.figures.axes import ends, log_axis
from analysis.figures.kind import Kind, Page

LEAST = 1.05  # ratio of the largest to the smallest cost below which costs count as equal
SHARED = "seconds, shared machine"
COLUMNS = [
    "facet",
    "cell",
    "label",
    "cost",
    "mean",
    "low",
    "high",
    "n",
    "frontier",
    "diverged",
    "failed",
    "missing",
    "runs",
]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and kind of cost (`facet`) in which cells differ by 5 % or more: the cost, mean and ± SD of the
    metric over done seeds.

    `frontier` (not for seconds on a shared machine): no other cell is cheaper or as cheap, and as good; cells with a
    diverged or failed run are excluded, because their mean leaves those runs out.
    """
    manifest = case.study.manifest
    cells = end_at_shares(with_band(case.cells), manifest, evidence.endpoints(manifest))
    if len({cell.task for cell in manifest.cells}) > 1 or manifest.design == "ladder" or cells["mean"].isna().all():
        return None  # metrics of several tasks have no common axis; of rungs the figure `ladder` shows more
    runs = case.study.runs[case.study.runs["status"] == "done"]
    costs = {"parameters": cells.get("params"), "FLOPs per token": cells.get("flops_per_token")}
    if is_timed(manifest):
        seconds = runs["steps"].astype(float) * runs["train/step_seconds"].astype(float)
        costs["seconds of training steps"] = cells["cell"].map(seconds.groupby(runs["cell"]).mean())
    elif "seconds" in runs:
        costs[SHARED] = cells["cell"].map(runs["seconds"].astype(float).groupby(runs["cell"]).mean())
    is_lower = evidence.lower_is_better(manifest, evidence.endpoint(manifest))
    score = (cells["mean"] if is_lower else -cells["mean"]).where(cells["diverged"] + cells["failed"] == 0)
    parts = []
    for title, cost in costs.items():
        if cost is not None and cost.min() > 0 and cost.max() / cost.min() >= LEAST:
            points = cells.assign(facet=title, cost=cost.astype(float), score=score).dropna(subset="cost")
            points = points.sort_values(["cost", "score"], kind="stable")
            points["frontier"] = (points["score"] < points["score"].cummin().shift(fill_value=float("inf"))) & (
                title != SHARED
            )
            parts.append(points)
    if not parts or all(part["facet"].eq(SHARED).all() for part in parts):
        return None
    result = pandas.concat(parts, ignore_index=True)
    result["label"] = [captions.with_losses(row) for row in named_rows(result)]
    result = result[COLUMNS]
    bars = captions.band_text(result["n"]).replace("band", "bar")
    caption = f"a point per configuration: {bars}; line: the Pareto frontier"
    if result[["diverged", "failed"]].gt(0).any(axis=None):
        caption += "; open, and not on the line: runs diverged or failed"
    if SHARED in costs:
        caption += "; seconds with evaluation, beside other runs: no claim about speed"
    result.attrs = {"y": captions.axis_label(case.study), "caption": [caption]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per kind of cost with its frontier, one legend for all."""
    figure, panels = page.panels(table, 2.1, page.legend(table, line=False), sharey=True)
    for axis, rows in panels:
        for row in named_rows(rows):
            colour, _, marker = page.encodings[row.cell]
            inside = "white" if row.diverged + row.failed else colour
            axis.errorbar(row.cost, row.mean, ends(row), fmt=marker, color=colour, mfc=inside, lw=0.9, zorder=3)
        frontier = rows[rows["frontier"]]
        axis.plot(frontier["cost"], frontier["mean"], color=style.MUTED, lw=0.9, zorder=1)
        if rows["cost"].max() > 5 * rows["cost"].min():
            log_axis(axis.xaxis)
        axis.xaxis.set_major_formatter(EngFormatter())
        axis.set(title="", xlabel=rows["facet"].iloc[0])
    panels[0][0].set_ylabel(table.attrs["y"])
    return figure


NEEDS = "costs that differ between configurations: parameters, FLOPs or seconds"
KIND = Kind("the metric against parameters, FLOPs and seconds", table, draw, needs=NEEDS)
