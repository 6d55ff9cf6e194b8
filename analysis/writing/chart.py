"""The interactive learning curves of a page, as data and layout of Plotly."""

import html
from typing import Any

import numpy as np
import pandas

from ablate.formatting import visible
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis import figures
from analysis.case import Case
from analysis.case.learning_curves import AXES, curve_values, end_at_shares, metrics_of, over_seeds
from analysis.figures.captions import with_losses
from analysis.figures.kind import page_of

FEW = 8  # bands of more configurations cover each other
START = 0.1  # share of the longest run from which on the vertical axis fits the curves


def chart(case: Case, *more: str) -> dict[str, Any] | None:
    """Data and layout of the curves; None if no run logged the metric.  `more`: statuses of runs besides done and
    diverged; those and the diverged ones are drawn as single lines, which are part of no mean."""
    rows = curve_values(case.study, *more)
    if rows.empty:
        return None
    x = next(axis for axis in AXES if axis in rows)
    rows = rows[rows[x].notna()].sort_values(x, kind="stable")
    metrics = metrics_of(case.study)
    means = end_at_shares(over_seeds(rows[rows["status"] == "done"], ["cell", x]), case.study.manifest, metrics)
    encodings = page_of(case.study.manifest, figures.edits(case)).encodings
    data = []
    for cell in named_rows(case.cells):
        colour, dash, _ = encodings[cell.cell]
        lengths = "solid" if isinstance(dash, str) else ",".join(f"{3 * length:g}px" for length in dash[1])
        line = {"color": colour, "dash": lengths, "width": 2}
        name = html.escape(visible(with_losses(cell)))  # Plotly reads some tags
        style = {"name": name, "legendgroup": cell.cell, "mode": "lines", "line": line}
        mean = means[means["cell"] == cell.cell]
        data.append(style | {"hovertemplate": "%{y:.4f}"} | points(mean, x, "mean"))
        quiet = style | {"showlegend": False, "hoverinfo": "skip"}
        if len(case.cells) <= FEW:
            around = pandas.concat([mean.assign(edge=mean["high"]), mean[::-1].assign(edge=mean["low"])])
            fill = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}
            data.append(quiet | fill | points(around, x, "edge"))
        singles = rows[(rows["cell"] == cell.cell) & (rows["status"] != "done")]
        for _, run in singles.groupby("seed"):
            cross = 7 if run["status"].eq("diverged").all() else 0
            marker = {"symbol": "x", "size": [0] * (len(run) - 1) + [cross]}
            thin = {"line": line | {"width": 0.8}, "mode": "lines+markers", "marker": marker}
            data.append(quiet | thin | points(run.assign(value=run["value"].ffill()), x, "value"))
    names = [name for name in dict.fromkeys(metrics.values()) if name in case.study.curves]
    upwards: dict[str, Any] = {"title": {"text": html.escape(visible(naming.metric_name(case.study.manifest, *names)))}}
    late = means[means[x] >= START * means[x].max()]
    if len(late) and late["low"].min() < late["high"].max():
        room = 0.05 * (late["high"].max() - late["low"].min())
        upwards["range"] = [late["low"].min() - room, late["high"].max() + room]
    layout = {
        "height": 380 + 10 * len(case.cells),
        "margin": {"l": 56, "r": 12, "t": 24, "b": 40},
        "xaxis": {"title": {"text": x}},
        "yaxis": upwards,
        "legend": {"orientation": "h", "y": -0.22},
    }
    return {"data": data, "layout": layout}


def points(rows: pandas.DataFrame, x: str, y: str) -> dict[str, list[float | None]]:
    """The coordinates of a line as numbers for JSON, to six digits; None where one is not finite."""
    coordinates = {}
    for name, column in (("x", x), ("y", y)):
        values = rows[column].astype(float)
        coordinates[name] = [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]
    return coordinates
