"""Extrapolation: the test metric against the length that a trained model is tested at."""

from __future__ import annotations

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from analysis.case import Case
from analysis.figures.draw import style
from analysis.figures.draw.axes import log_y
from analysis.figures.draw.captions import band_text, with_losses
from analysis.figures.draw.lines import axes_of, draw_lines, mean_and_band
from analysis.figures.kind import Kind, Page

TIMES = 8  # how many times its best value a metric may reach before the axis is logarithmic


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and length `x`, see `lines`, a panel per metric; `trained` is the length of the cell's training.

    From columns such as `test/loss@128`.
    """
    study, metrics, rows = case.study, evidence.endpoints(case.study.manifest), []
    trained = {cell.id: cell.config.data.get("context") for cell in study.manifest.cells}
    for metric in dict.fromkeys(metrics.values()):
        for length, name in sorted(_lengths(study.runs, metric)):
            scores = evidence.scores(study, name)
            for row in (row for row in case.cells.itertuples() if metrics[row.cell] == metric):
                about = {"cell": row.cell, "label": with_losses(row), "metric": metric, "x": length}
                ended = {"runs": row.runs, "diverged": 0, "trained": trained[row.cell]}
                rows.append(about | mean_and_band(scores[row.cell].dropna()) | ended)
    found = pandas.DataFrame(rows)
    if not rows or found["x"].nunique() < 2 or not found["n"].any():
        return None
    found = found.assign(trained=pandas.to_numeric(found["trained"]), facet="")
    if found["metric"].nunique() > 1:
        found["facet"] = found["metric"]
    found.attrs = {"x": "length at evaluation, tokens", "lines": list(study.manifest.factors)}
    found.attrs |= axes_of(study.manifest, found)
    line = "; vertical line: the length of training" * bool(found["trained"].notna().any())
    measured = ", ".join(dict.fromkeys(found["metric"]))
    found.attrs["caption"] = [f"{measured} at other lengths: {band_text(found['n'])}{line}"]
    return found


def _lengths(runs: pandas.DataFrame, metric: str) -> list[tuple[int, str]]:
    found = []
    for name in runs:
        base, _, length = str(name).partition("@")
        if base == metric and length.isdigit() and runs[name].notna().any():
            found.append((int(length), str(name)))
    return found


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A line per cell against the length, on a log axis; a panel per metric."""
    drawn = draw_lines(table, page)
    for axis, (_, rows) in zip(drawn.axes, table.groupby("facet", sort=False), strict=False):
        for length in rows["trained"].dropna().unique():
            axis.axvline(length, color=style.MUTED, lw=0.8, linestyle=(0, (3, 2)), zorder=0)
        if rows["low"].min() > 0 and rows["high"].max() / rows["low"].min() > TIMES:
            log_y(axis, rows["low"].min() / 1.1, rows["high"].max() * 1.1)
    return drawn


KIND = Kind("the test metric against the length at evaluation", table, draw)
