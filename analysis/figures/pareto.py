"""Pareto: the metric against a cell's cost in parameters or FLOPs, with the Pareto frontier."""

import math

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ablate import evidence
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares, with_band
from analysis.figures import captions, style
from analysis.figures.axes import ends, log_axis, on_two_lines
from analysis.figures.kind import Kind, Page

LEAST = 1.05  # ratio of the largest to the smallest cost below which costs count as equal
COLUMNS = ["facet", "cell", "label", "cost", "mean", "low", "high", "n", "frontier"]
COLUMNS += ["diverged", "failed", "missing", "runs"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and kind of cost (`facet`) in which cells differ by 5 % or more: the cost, mean and ± SD of the
    metric over done seeds.

    `frontier`: no other cell is cheaper or as cheap, and as good; cells with a diverged or failed run are excluded,
    because their mean leaves those runs out.
    """
    manifest = case.study.manifest
    cells = end_at_shares(with_band(case.cells), manifest, evidence.endpoints(manifest))
    if len({cell.task for cell in manifest.cells}) > 1 or manifest.design == "ladder" or cells["mean"].isna().all():
        return None  # metrics of several tasks have no common axis; of rungs the figure `ladder` shows more
    cells["label"] = [captions.with_losses(row) for row in named_rows(cells)]
    score = cells["mean"] if evidence.lower_is_better(manifest, evidence.endpoint(manifest)) else -cells["mean"]
    cells["score"] = score.where(cells["diverged"] + cells["failed"] == 0)
    costs = {"parameters": cells.get("params"), "FLOPs per token": cells.get("flops_per_token")}
    parts = []
    for facet, cost in costs.items():
        if cost is not None and cost.min() > 0 and cost.max() / cost.min() >= LEAST:
            points = cells.assign(facet=facet, cost=cost.astype(float)).dropna(subset="cost")
            points = points.sort_values(["cost", "score"], kind="stable")
            best_of_cheaper = points["score"].cummin().shift(fill_value=math.inf)
            parts.append(points.assign(frontier=points["score"] < best_of_cheaper)[COLUMNS])
    if not parts:
        return None
    result = pandas.concat(parts, ignore_index=True)
    bars = captions.band_text(result["n"]).replace("band", "bar")
    caption = f"a point per configuration: {bars}; line: the Pareto frontier"
    if result[["diverged", "failed"]].gt(0).any(axis=None):
        caption += "; open, and not on the line: runs diverged or failed"
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
        axis.locator_params(axis="x", nbins=4)
        if rows["cost"].max() > 5 * rows["cost"].min():
            log_axis(axis.xaxis)
        axis.xaxis.set_major_formatter(EngFormatter())
        axis.set(title="", xlabel=rows["facet"].iloc[0])
    panels[0][0].set_ylabel(on_two_lines(table.attrs["y"]))
    return figure


KIND = Kind("the metric against parameters and FLOPs", table, draw)
