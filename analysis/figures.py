"""The figures of a study; here the forest plot and the seed strip."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from ablate import evidence, words
from ablate.results import Study
from analysis import curves, style

WRAP = 44  # characters of a row's name


def write(study: Study, table: pandas.DataFrame, folder: Path) -> list[Path]:
    """Draw curves, effects and seeds as PDF and PNG; `table` holds the effects."""
    with matplotlib.rc_context(style.RC):
        drawn = {"curves": curves.draw(study), "effects": effects(study, table), "seeds": seeds(study)}
        return [file for name, figure in drawn.items() for file in style.save(figure, folder, name)]


def effects(study: Study, table: pandas.DataFrame) -> Figure:
    """Forest plot of the family: a point and a simultaneous interval per effect, its verdict and n, the zero line."""
    shown = evidence.headline(table)
    rows = _grouped(shown)
    names = [row if isinstance(row, str) else row.label.removesuffix(f" at {row.stratum}") for row in rows]
    drawn = style.figure(study.manifest, _effects_caption(study, shown), 0.55 + _pitch(names, 0.18))
    if shown.empty:
        return style.nothing(drawn, "one cell: nothing to compare")
    axis, known = drawn.subplots(), shown[shown["mean"].notna() & (shown["verdict"] != "withheld")]
    axis.axvline(0, color=style.INK, lw=0.8)
    cap, palette = _cap(known), style.colours(study.manifest)
    for y, row in enumerate(rows):
        if not isinstance(row, str) and row.Index in known.index:
            _effect(axis, y, row, cap, palette.get((row.factor, row.level), style.INK))
    axis.locator_params(axis="x", nbins=5, steps=[1, 2, 2.5, 5, 10])
    axis.xaxis.set_major_formatter(_Short())
    if known.empty:
        axis.set(xlim=(-1, 1), xticks=[0])
    axis.set_xlabel(_difference(study))
    _names(axis, names, [_result(row, known) for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if isinstance(row, str) else "normal")
    return drawn


class _Short(ScalarFormatter):
    """Ticks in the manner of the numbers beside them: −.05, 0, .05."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        text = super().__call__(x, pos)
        return "0" if x == 0 else text.replace("0.", ".", 1) if abs(x) < 1 else text


def _grouped(shown: pandas.DataFrame) -> list[Any]:
    """The rows of the forest from top to bottom, each stratum under its name, exploratory rows under theirs."""
    rows: list[Any] = []
    for (family, stratum), group in shown.groupby(["family", "stratum"], sort=False):
        heading = str(stratum) if family else f"exploratory {stratum}".strip()
        rows += [heading] * bool(heading) + list(group.itertuples())
    return rows


def _cap(known: pandas.DataFrame) -> float:
    """How far from zero the axis may reach: to all points and decided intervals, else to thrice the median interval.

    One cell with two noisy seeds would otherwise press all other rows into a dot.
    """
    reach = known[["low", "high"]].abs().max(axis=1)
    needed = [*known["mean"].abs(), *reach[known["verdict"].isin(["better", "worse"])], 3 * reach.median()]
    return float(np.nanmax([*needed, 0.0])) * 1.05 or 1.0


def _effect(axis: Axes, y: int, row: Any, cap: float, colour: str) -> None:
    if np.isfinite(row.low):
        ends = np.clip([row.low, row.high], -cap, cap)
        axis.plot(ends, [y, y], color=colour, lw=1.4, solid_capstyle="butt")
        for end, true, arrow in zip(ends, (row.low, row.high), "<>", strict=True):
            axis.plot(end, y, marker="|" if end == true else arrow, color=colour, ms=4, clip_on=False)
    inside = colour if row.verdict in ("better", "worse") else "white"
    axis.plot(row.mean, y, "o", ms=4.5, color=colour, markerfacecolor=inside, zorder=3)


def _result(row: Any, known: pandas.DataFrame) -> str:
    if isinstance(row, str):
        return ""
    if row.verdict == "withheld" or row.n == 0:
        return f"{row.verdict}: {row.note}"
    places = words.decimals((known["high"] - known["low"]) / 2)
    n = f"  n = {row.n}" if known["n"].nunique() > 1 else ""
    note = f": {row.note}" if row.sd == 0 else ""  # the caption has the other reasons
    return f"{words.span(row.mean, row.low, row.high, places)}{n}  {row.verdict}{note}"


def _pitch(names: list[str], inches: float) -> float:
    """The height of all rows: more where a name takes several lines."""
    lines = max((_wrapped(name).count("\n") + 1 for name in names), default=1)
    return max(2, len(names)) * (inches + 0.1 * (lines - 1))


def _wrapped(name: str) -> str:
    return textwrap.fill(name, WRAP, break_on_hyphens=False)


def _names(axis: Axes, names: list[str], results: list[str]) -> None:
    """Rows from the top, their names on the left; results on the right, as an axis' labels, so that the layout fits."""
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(range(len(names)), [_wrapped(name) for name in names])
    side = axis.secondary_yaxis("right")
    side.set_yticks(range(len(results)), results)
    for each, spine in ((axis, "left"), (side, "right")):
        each.tick_params(axis="y", length=0)
        each.spines[spine].set_visible(False)


def _effects_caption(study: Study, shown: pandas.DataFrame) -> list[str]:
    known, family = shown[shown["low"].notna()], int(shown["family"].sum())
    if known.empty:
        return ["no interval: one seed can conclude nothing" * bool(shown["n"].eq(1).any())]
    how = f"simultaneous 95 % intervals (Bonferroni-t, family of {family})" if known["family"].any() else ""
    how = how or "95 % intervals of cells against the reference, false coverage rate 5 %"
    pairing = "paired" if known["paired"].all() else "unpaired where batches differ (verdicts from 5 seeds on)"
    seeds = f", {words.counted(known['n'].iloc[0], 'seed')}" if known["n"].nunique() == 1 else ""
    return [f"{how}{seeds}, {pairing}; filled: decided", evidence.unadjusted(study.manifest) or ""]


def _difference(study: Study) -> str:
    metric = evidence.endpoint(study.manifest)
    better = "lower" if evidence.lower_is_better(study.manifest, metric) else "higher"
    return f"difference in {metric}{words.unit(study.manifest, metric)} ({better} is better)"


def seeds(study: Study) -> Figure:
    """Seed strip: a dot per run, lines that join the runs of a seed that saw equal batches, losses at the margin."""
    metric, cells = evidence.endpoint(study.manifest), evidence.cells(study)
    names = list(cells["name"])
    drawn = style.figure(study.manifest, _seeds_caption(study), 0.6 + _pitch(names, 0.22))
    values, looks, axis = evidence.scores(study, metric), style.looks(study.manifest), drawn.subplots()
    axis.add_collection(LineCollection(_lines(study, cells, values), colors=style.MUTED, linewidths=0.5, zorder=1))
    for y, row in enumerate(cells.itertuples()):
        scored, look = values[row.cell].dropna(), looks[row.cell]
        axis.plot(scored, [y] * len(scored), look.marker, color=look.colour, ms=4, mec="white", mew=0.4, zorder=3)
        if row.n > 1:
            axis.plot(row.mean, y, "|", color=style.INK, ms=11, mew=1.2, zorder=4)
    if cells["n"].max() == 0:
        axis.text(0.5, 0.5, "no finished run", ha="center", transform=axis.transAxes, color=style.MUTED)
        axis.set_xticks([])
    axis.set_xlabel(metric + words.unit(study.manifest, metric))
    axis.grid(axis="y", lw=0.4, color=style.FAINT)
    _names(axis, names, ["; ".join(words.lost(row)) for row in cells.itertuples()])
    return drawn


def _lines(study: Study, cells: pandas.DataFrame, values: pandas.DataFrame) -> list[list[tuple[float, float]]]:
    """Segments between neighbours of one seed; a run without a number, other batches or another stratum break them."""
    batches = {cell["id"]: cell["batches"] for cell in study.manifest["cells"]}
    kin = [(stratum, batches[cell]) for cell, stratum in zip(cells["cell"], cells["stratum"], strict=True)]
    return [
        [(start, y), (end, y + 1)]
        for y, (one, other) in enumerate(itertools.pairwise(cells["cell"]))
        if kin[y] == kin[y + 1]
        for start, end in values[[one, other]].dropna().to_numpy()
    ]


def _seeds_caption(study: Study) -> list[str]:
    runs = f"a dot per run, {words.counted(len(study.manifest['seeds']), 'seed')} per cell"
    return [f"{runs}; bar: mean; lines join the runs of a seed that saw equal batches"]
