"""Extrapolation: the test metric against the length that a trained model is tested at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, format
from ablate.results import naming
from analysis.case import Case
from analysis.figures.draw import style
from analysis.figures.draw.axes import spread, value_axis
from analysis.figures.draw.legend import legend
from analysis.figures.kind import Kind, Page

TIMES = 8  # how many times its best value a metric may reach before the axis is logarithmic


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell and length: cell, label, facet (the metric), length, mean, low, high (mean ± SD), n, trained.

    From columns such as `test/loss@128`; `trained` is the length of the cell's training.
    """
    study, metrics, rows = case.study, evidence.endpoints(case.study.manifest), []
    trained = {cell.id: cell.config.data.get("context") for cell in study.manifest.cells}
    for metric in dict.fromkeys(metrics.values()):
        for length, name in sorted(_lengths(study.runs, metric)):
            scores = evidence.scores(study, name)
            for row in case.cells.itertuples():
                if metrics[row.cell] == metric:
                    known = scores[row.cell].dropna()
                    rows.append(_row(row, metric, length, known) | {"trained": trained[row.cell] or math.nan})
    found = pandas.DataFrame(rows)
    if not rows or found["length"].nunique() < 2 or not found["n"].any():
        return None
    found["facet"] = [metric + naming.unit(study.manifest, metric) for metric in found["facet"]]
    found.attrs["caption"] = [_caption(found)]
    return found


def _lengths(runs: pandas.DataFrame, metric: str) -> list[tuple[int, str]]:
    found = []
    for name in runs:
        base, _, length = str(name).partition("@")
        if base == metric and length.isdigit() and runs[name].notna().any():
            found.append((int(length), str(name)))
    return found


def _row(row: Any, metric: str, length: int, known: pandas.Series) -> dict[str, Any]:
    sd = known.std(ddof=1) if len(known) > 1 else 0.0
    mean = known.mean() if len(known) else math.nan
    lost = format.lost(row)
    label = row.name + f" ({'; '.join(lost)})" * bool(lost)
    about = {"cell": row.cell, "label": label, "facet": metric, "length": length}
    return about | {"mean": mean, "low": mean - sd, "high": mean + sd, "n": len(known)}


def _caption(found: pandas.DataFrame) -> str:
    most = int(found["n"].max())
    over = f"mean over {most} seeds, band ± 1 SD over seeds" if most > 1 else "one seed, no band"
    metrics = ", ".join(dict.fromkeys(name.split(",")[0] for name in found["facet"]))
    line = "; vertical line: the length of training" * bool(found["trained"].notna().any())
    return f"{metrics} at other lengths: {over}{line}"


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A line per cell against the length, on a log axis; a panel per metric."""
    panels = [group for _, group in table.groupby("facet", sort=False)]
    below = legend({row.label: page.encodings[row.cell] for row in table.drop_duplicates("cell").itertuples()}, page)
    drawn = page.figure(table, 2.0 * len(panels) + 0.3 + below.height)
    for axis, rows in zip(drawn.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _panel(axis, rows, page)
        axis.set_ylabel(rows["facet"].iloc[0])
        axis.set_xlabel("length at evaluation, tokens")
    below.draw(drawn)
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, page: Page) -> None:
    for cell, line in rows.groupby("cell", sort=False):
        encoding = page.encodings[str(cell)]
        axis.plot(
            line["length"], line["mean"], linestyle=encoding.dash, marker=encoding.marker, ms=3.5, color=encoding.colour
        )
        axis.fill_between(line["length"], line["low"], line["high"], color=encoding.colour, alpha=0.15, lw=0)
    for length in rows["trained"].dropna().unique():
        axis.axvline(length, color=style.MUTED, lw=0.8, linestyle=(0, (3, 2)), zorder=0)
    value_axis(axis, sorted(map(float, rows["length"].unique())))
    low, high = spread(rows[["low", "high"]].to_numpy())
    if low > 0 and high / low > TIMES:
        axis.set_yscale("log")
    elif np.isfinite(low):
        axis.set_ylim(low - 0.06 * (high - low or 0.01), high + 0.06 * (high - low or 0.01))


KIND = Kind("extrapolation", "the test metric against the length at evaluation", table, draw)
