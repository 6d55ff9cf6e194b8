"""The interactive learning curves of a page, as data and layout of Plotly."""

import html
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.formatting import lost, visible
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis import figures
from analysis.case import Case
from analysis.case.learning_curves import AXES, curve_values, end_at_shares, metrics_of, over_seeds
from analysis.figures.kind import page_of

POINTS = 400  # per line: about two pixels each
FEW = 8  # bands of more configurations cover each other
TITLES = {"tokens": "training tokens", "seconds": "seconds of training steps"}
START = 0.1  # share of the longest run from which on the vertical axis fits the curves


class Line(NamedTuple):
    """A line of the plot: its points, the column that is drawn upwards, and how Plotly draws it."""

    points: pandas.DataFrame
    y: str
    style: dict[str, Any]


def chart(case: Case, *more: str) -> dict[str, Any] | None:
    """Data and layout of the curves; None if no run logged the metric.  `more`: statuses of runs besides done and
    diverged; those and the diverged ones are drawn as single lines, which are part of no mean."""
    rows = curve_values(case.study, *more)
    if rows.empty:
        return None
    axes = [axis for axis in AXES if axis in rows]
    rows = rows[rows[axes[0]].notna()].sort_values(axes[0], kind="stable")
    means = over_seeds(rows[rows["status"] == "done"], ["cell", axes[0]], tuple(axes[1:]))
    means = end_at_shares(means, case.study.manifest, metrics_of(case.study))
    encodings = page_of(case.study.manifest, figures.edits(case)).encodings
    lines = []
    for cell in named_rows(case.cells):
        colour, dash, _ = encodings[cell.cell]
        lengths = "solid" if isinstance(dash, str) else ",".join(f"{3 * length:g}px" for length in dash[1])
        losses = f" ({'; '.join(lost(cell))})" if lost(cell) else ""
        style = {
            "name": html.escape(visible(cell.name + losses)),  # Plotly reads some tags
            "legendgroup": cell.cell,
            "mode": "lines",
            "line": {"color": colour, "dash": lengths, "width": 2},
        }
        mean = thinned(means[means["cell"] == cell.cell])
        lines.append(Line(mean, "mean", {**style, "hovertemplate": "%{y:.4f}"}))
        quiet = {**style, "showlegend": False, "hoverinfo": "skip"}
        if len(case.cells) <= FEW:
            around = pandas.concat([mean.assign(edge=mean["high"]), mean[::-1].assign(edge=mean["low"])])
            fill = {"fill": "toself", "fillcolor": colour, "opacity": 0.15, "line": {"width": 0}}
            lines.append(Line(around, "edge", {**quiet, **fill}))
        singles = rows[(rows["cell"] == cell.cell) & (rows["status"] != "done")]
        for _, run in singles.groupby("seed"):
            is_diverged = run["status"].eq("diverged").all()
            points = thinned(run.assign(value=run["value"].ffill()))
            marker = {"symbol": "x", "size": [0] * (len(points) - 1) + [7 if is_diverged else 0]}
            thin = {"line": {**style["line"], "width": 0.8}, "mode": "lines+markers", "marker": marker}
            lines.append(Line(points, "value", {**quiet, **thin}))
    data = [{**line.style, "x": column(line.points[axes[0]]), "y": column(line.points[line.y])} for line in lines]
    return {"data": data, "layout": layout(case, axes, means, lines)}


def thinned(rows: pandas.DataFrame) -> pandas.DataFrame:
    """At most POINTS rows at equal distances, with the first and the last."""
    if len(rows) <= POINTS:
        return rows
    return rows.iloc[np.linspace(0, len(rows) - 1, POINTS).astype(int)]


def column(values: pandas.Series) -> list[float | None]:
    """Numbers for JSON, to six digits; None where one is not finite."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.astype(float)]


def layout(case: Case, axes: list[str], means: pandas.DataFrame, lines: list[Line]) -> dict[str, Any]:
    """Axes, legend and a menu of what is across.  The vertical axis fits the curves from `START` on."""
    names = [name for name in dict.fromkeys(metrics_of(case.study).values()) if name in case.study.curves]
    upwards: dict[str, Any] = {"title": {"text": html.escape(visible(naming.metric_name(case.study.manifest, *names)))}}
    late = means[means[axes[0]] >= START * means[axes[0]].max()]
    if len(late) and late["low"].min() < late["high"].max():
        room = 0.05 * (late["high"].max() - late["low"].min())
        upwards["range"] = [late["low"].min() - room, late["high"].max() + room]
    buttons = []
    for axis in axes:
        along = {"x": [column(line.points[axis]) for line in lines]}
        title = {"xaxis.title.text": TITLES.get(axis, axis)}
        buttons.append({"label": axis, "method": "update", "args": [along, title]})
    return {
        "height": 380 + 10 * len(case.cells),
        "margin": {"l": 56, "r": 12, "t": 44, "b": 40},
        "xaxis": {"title": {"text": TITLES.get(axes[0], axes[0])}},
        "yaxis": upwards,
        "legend": {"orientation": "h", "y": -0.22},
        "updatemenus": [{"x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "buttons": buttons}],
    }
