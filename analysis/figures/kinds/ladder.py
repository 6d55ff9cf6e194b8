"""Ladder: the loss over training compute, and what each change is worth in compute at each rung, with its trend."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablate import evidence
from ablate.config.ladder import RUNG, number_of
from ablate.formatting import listed
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import legend, limits, log_axis, reach
from analysis.figures.kind import Kind, Page

FAR = 4.0  # how far the axis of multipliers reaches beyond them, as a factor
REFERENCE = " (reference)"
STEPS = [1, 2, 2.5, 5, 10]  # of ticks, so that 1 is among them
COLUMNS = ["panel", "cell", "label", "rung", "compute", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell of the ladder, other learning rates left out (`panel` loss): its training compute, its mean with
    the 95 % t-interval over seeds.  A row per change and rung (multiplier), over the reference's compute, and per
    change its trend at the lowest rung and the top one.  A study judged by an earlier method has the table of then."""
    manifest = case.study.manifest
    if manifest.design != "ladder":
        return None
    found = None
    if "ladder" in case.study.figures:
        made = case.study.figures["ladder"].reindex(columns=COLUMNS)
        losses = made[made["panel"] == "loss"]
        made = made[made["compute"] <= losses["compute"].max()]  # nothing beyond what was trained
    else:
        found = evidence.ladder(case.study)
        made = pandas.DataFrame([*_losses(case), *_multipliers(found)], columns=COLUMNS)
        changed = evidence.changes(manifest)
        base = f"{listed(naming.assigned(manifest, *each) for each in manifest.reference.items())}{REFERENCE}"
        ids = [cell.id for cell in manifest.cells]
        names = {cell: naming.assigned(manifest, *changed[cell]) if cell in changed else base for cell in ids}
        made["label"] = made["cell"].map(names)
    made.attrs = {"y": captions.axis_label(case.study), "caption": captions.caption("ladder", case, made, found=found)}
    made.attrs |= {"empty": "no finished run"} if made.empty else {}
    return made


def _losses(case: Case) -> Iterator[dict[str, Any]]:
    """The mean score of each cell at the ladder's learning rate."""
    values = evidence.scores(case.study)
    diverged = set(case.cells.loc[case.cells["diverged"] > 0, "cell"])
    for cell in case.study.manifest.cells:
        scored = evidence.paired(values[cell.id].dropna().to_numpy())
        if not number_of(cell.levels[RUNG]) or not scored.n or cell.id in diverged:
            continue
        low, high = evidence.interval(scored, evidence.ALPHA)
        about = {"panel": "loss", "cell": cell.id, "rung": cell.levels[RUNG], "compute": cell.training_flops}
        yield about | {"mean": scored.mean, "low": low, "high": high, "n": scored.n}


def _multipliers(found: pandas.DataFrame) -> Iterator[dict[str, Any]]:
    """The multiplier of each change at each rung where it is known, and two points of its trend."""
    known = found[np.isfinite(found["multiplier"].astype(float)) & found["multiplier"].gt(0)]
    known = known.assign(panel="multiplier", mean=known["multiplier"])
    yield from known.to_dict("records")
    for _, change in known[known["trend"].notna()].groupby("label", sort=False):
        x = np.log10(change["compute"].to_numpy(float))
        middle = np.log(change["multiplier"].to_numpy(float)).mean()
        slope = float(change["trend"].iloc[0])
        for place in (0, -1):
            row = change.iloc[place]
            mean = math.exp(middle + slope * (x[place] - x.mean()))
            yield {"panel": "trend", "cell": row["cell"], "compute": row["compute"], "mean": mean, "n": row["n"]}


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The loss of every cell; the multiplier of every change with its trend."""
    encodings = {row.label: page.encodings[row.cell] for row in named_rows(table.drop_duplicates("label"))}
    below = legend(encodings, page, line=False)
    drawn = page.figure(table, (4.2 if page.narrow else 2.3) + below.height)
    left, right = drawn.subplots(*((2, 1) if page.narrow else (1, 2)))
    losses = table[table["panel"] == "loss"]
    for row in named_rows(losses):
        colour, _, marker = encodings[row.label]
        left.errorbar(row.compute, row.mean, reach(row), fmt=marker, ms=3.5, lw=1.1, color=colour, zorder=3)
    base = losses[losses["label"].str.endswith(REFERENCE)].sort_values("compute")
    left.plot(base["compute"], base["mean"], color=style.INK, lw=0.9)
    left.set(xlabel="training compute (FLOPs)", ylabel=style.fold(table.attrs["y"], 1.9, 7))
    right.set(xlabel="compute of the reference (FLOPs)", ylabel="compute multiplier")
    for axis, rows in ((left, losses), (right, table.drop(losses.index))):
        if len(rows):
            log_axis(axis.xaxis, rows["compute"].min() / 1.5, rows["compute"].max() * 1.5, most=5)
        else:
            style.say(axis, "not known")
            axis.set(xticks=[], yticks=[])
    if len(losses) < len(table):
        _draw_multipliers(right, table.drop(losses.index), encodings)
    below.draw(drawn)
    return drawn


def _draw_multipliers(axis: Axes, rows: pandas.DataFrame, encodings: dict[str, style.Encoding]) -> None:
    measured = rows[rows["panel"] == "multiplier"]
    axis.axhline(1, color=style.INK, lw=0.6, zorder=1)
    labels = list(dict.fromkeys(measured["label"]))
    for place, label in enumerate(labels):
        colour, _, marker = encodings[label]
        aside = 1.14 ** (place - (len(labels) - 1) / 2)  # intervals beside each other
        look: dict[str, Any] = {"fmt": marker, "ms": 3.8, "lw": 1.1, "color": colour, "zorder": 3}
        for row in named_rows(measured[measured["label"] == label]):
            ends = row._replace(low=max(row.low, row.mean / FAR), high=min(row.high, row.mean * FAR))
            axis.errorbar(row.compute * aside, row.mean, reach(ends), **look)
        line = rows[(rows["panel"] == "trend") & (rows["label"] == label)]
        axis.plot(line["compute"], line["mean"], color=colour, lw=0.8)
    least, most = rows["mean"].min() / FAR, rows["mean"].max() * FAR
    ends = [1.0, *rows["mean"], *rows[["low", "high"]].to_numpy(float).clip(least, most).ravel()]
    low, high = map(math.exp, limits([math.log(end) for end in ends if math.isfinite(end)]))
    ticks = [tick for tick in MaxNLocator(6, steps=STEPS).tick_values(low, high) if low <= tick <= high]
    log_axis(axis.yaxis, low, high, ticks if high < FAR * low else ())


KIND = Kind("the loss over training compute, and what each change is worth in compute", table, draw, most=1000)
