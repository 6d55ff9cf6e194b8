"""Ladder: the loss over training compute, and what each change is worth in compute at each rung, with its trend."""

import math
from typing import Any

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablate import evidence
from ablate.config.ladder import RUNG, number_of
from ablate.formatting import listed
from ablate.results import naming
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import legend, limits, log_axis, reach
from analysis.figures.kind import Kind, Page

FAR = 4.0  # how far the axis of multipliers reaches beyond them, as a factor
REFERENCE = " (reference)"
STEPS = [1, 2, 2.5, 5, 10]  # of ticks, so that 1 is among them
COLUMNS = ["panel", "cell", "label", "rung", "compute", "mean", "low", "high", "n", "extrapolated"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per cell of the ladder, other learning rates left out (`panel` loss): its training compute, its mean with
    the 95 % t-interval over seeds.  A row per change and rung (multiplier), over the reference's compute, and per
    change its line at the lowest rung, the top one and ten times that compute (trend)."""
    found = case.further.get("ladder")
    if found is None:
        return None
    manifest, values, rows = case.study.manifest, evidence.scores(case.study), list[dict[str, Any]]()
    changed, diverged = evidence.changes(manifest), set(case.cells.loc[case.cells["diverged"] > 0, "cell"])
    base = f"{listed(naming.assigned(manifest, *each) for each in manifest.reference.items())}{REFERENCE}"
    cells = [cell for cell in manifest.cells if number_of(cell.levels[RUNG])]
    for cell in cells:
        own = evidence.paired(values[cell.id].dropna().to_numpy())
        if own.n and cell.id not in diverged:
            low, high = evidence.interval(own, evidence.ALPHA)
            about = {"panel": "loss", "cell": cell.id, "rung": cell.levels[RUNG], "compute": cell.training_flops}
            rows.append(about | {"mean": own.mean, "low": low, "high": high, "n": own.n})
    known = found[found["multiplier"].notna()].assign(panel="multiplier").rename(columns={"multiplier": "mean"})
    rows += known.to_dict("records")
    for _, arm in known.groupby("label", sort=False):
        top = next(named_rows(arm.tail(1)))
        far = [10 * top.compute] * (top.verdict != "undecided")
        for at in (arm["compute"].min(), top.compute, *far):
            mean = top.ten * math.exp(top.trend * math.log10(at / top.compute / 10))
            last = {"low": top.ten_low, "high": top.ten_high} if at > top.compute else {}
            rows.append({"panel": "trend", "cell": top.cell, "compute": at, "mean": mean, "n": top.n, **last})
    made = pandas.DataFrame(rows, columns=COLUMNS)
    names = {cell.id: naming.assigned(manifest, *changed[cell.id]) if cell.id in changed else base for cell in cells}
    made["label"] = made["cell"].map(names)
    made.attrs = {"y": captions.axis_label(case.study), "caption": captions.caption("ladder", case, made, found=found)}
    made.attrs |= {"empty": "no finished run"} if made.empty else {}
    return made


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The loss of every cell; the multiplier of every change with its trend, dashed beyond the top if it is decided."""
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
            style.say(axis, "withheld")
            axis.set(xticks=[], yticks=[])
    if len(losses) < len(table):
        _multipliers(right, table.drop(losses.index), encodings)
    below.draw(drawn)
    return drawn


def _multipliers(axis: Axes, rows: pandas.DataFrame, encodings: dict[str, style.Encoding]) -> None:
    measured = rows[rows["panel"] == "multiplier"]
    axis.axhline(1, color=style.INK, lw=0.6, zorder=1)
    labels = list(dict.fromkeys(measured["label"]))
    for place, label in enumerate(labels):
        colour, _, marker = encodings[label]
        aside = 1.14 ** (place - (len(labels) - 1) / 2)  # intervals beside each other
        look: dict[str, Any] = {"fmt": marker, "ms": 3.8, "lw": 1.1, "color": colour, "zorder": 3}
        for row in named_rows(measured[measured["label"] == label]):
            look["mfc"] = "white" if row.extrapolated else colour
            axis.errorbar(row.compute * aside, row.mean, reach(row), **look)
        line = rows[(rows["panel"] == "trend") & (rows["label"] == label)]
        axis.plot(line["compute"][:2], line["mean"][:2], color=colour, lw=0.8)
        axis.plot(line["compute"][1:], line["mean"][1:], color=colour, lw=0.8, ls="--")
        for row in named_rows(line[line["high"].notna()]):
            axis.errorbar(row.compute * aside, row.mean, reach(row), **look | {"fmt": "none", "alpha": 0.4})
    least, most = rows["mean"].min() / FAR, rows["mean"].max() * FAR
    ends = [1.0, *rows["mean"], *rows[["low", "high"]].to_numpy(float).clip(least, most).ravel()]
    low, high = map(math.exp, limits([math.log(end) for end in ends if math.isfinite(end)]))
    ticks = [tick for tick in MaxNLocator(6, steps=STEPS).tick_values(low, high) if low <= tick <= high]
    log_axis(axis.yaxis, low, high, ticks if high < FAR * low else ())


KIND = Kind("the loss over training compute, and what each change is worth in compute", table, draw, most=1000)
