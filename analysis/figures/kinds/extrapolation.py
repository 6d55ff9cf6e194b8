"""Extrapolation: the test metric against the length at which a trained model is tested."""

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import log_axis
from analysis.figures.draw.lines import axes_of, draw_lines, point
from analysis.figures.kind import Kind, Page
from analysis.stats.multi_task import task_factors

TIMES = 8  # the y axis is logarithmic if the largest value is more than so many times the smallest
COLUMNS = ["cell", "label", "metric", "x", "mean", "low", "high", "n", "runs", "diverged", "trained", "facet"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and length `x`, see `lines`, a panel per metric or task; `trained` is the length of training.
    From columns such as `test/loss@128`."""
    study, metrics, rows = case.study, evidence.endpoints(case.study.manifest), []
    facets = task_factors(study.manifest) if len(study.manifest.tasks) > 1 else []
    within = [name for name in study.manifest.factors if name not in facets]
    cells = {cell.id: cell for cell in study.manifest.cells}
    for metric in dict.fromkeys(metrics.values()):
        known = [name for name in study.runs if str(name).startswith(f"{metric}@") and study.runs[name].notna().any()]
        lengths = {name: str(name).partition("@")[2] for name in known}
        for length, name in sorted((int(text), name) for name, text in lengths.items() if text.isdigit()):
            scores = evidence.scores(study, name)
            for row in (row for row in named_rows(case.cells) if metrics[row.cell] == metric):
                about = point(study.manifest, cells[row.cell], scores[row.cell], metric, within, facets)
                about |= {} if facets else {"label": captions.with_losses(row)}
                # In the unit of `eval.lengths`, a task trains at its `length`, or its context.
                config = cells[row.cell].config
                trained = config.data.get("length", config.data.get("context")) if config else None
                lost = row.diverged if facets else 0  # else the label has the losses
                rows.append(about | {"x": length, "runs": row.runs, "diverged": lost, "trained": trained})
    found = pandas.DataFrame(rows, columns=COLUMNS)
    if found["x"].nunique() < 2 or not found["n"].any():
        return None
    found = found.assign(trained=pandas.to_numeric(found["trained"]))
    if found["metric"].nunique() > 1 and not facets:
        found["facet"] = [naming.metric_name(study.manifest, metric) for metric in found["metric"]]
    configs = study.manifest.configs
    unit = ", tokens" if configs and not any("length" in config.data for config in configs) else ""
    found.attrs = {"x": f"length at evaluation{unit}", "lines": within}
    found.attrs |= axes_of(study.manifest, found)
    found.attrs["caption"] = captions.caption("extrapolation", case, found)
    return found


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A line per cell against the length, on a log axis if a loss grows a lot; a panel per metric or task."""
    drawn = draw_lines(table, page)
    for axis, (_, rows) in zip(drawn.axes, table.groupby("facet", sort=False), strict=False):
        for length in rows["trained"].dropna().unique():
            axis.axvline(length, color=style.MUTED, lw=0.8, linestyle=(0, (3, 2)), zorder=0)
        loss, low, high = table.attrs["lower"][rows["metric"].iloc[0]], rows["low"].min(), rows["high"].max()
        if loss and low > 0 and high / low > TIMES:
            log_axis(axis.yaxis, low / 1.1, high * 1.1)
    return drawn


KIND = Kind("the test metric against the length at evaluation", table, draw)
