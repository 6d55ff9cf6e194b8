"""Forest plot: effects with simultaneous intervals and their verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from ablate import evidence, words
from ablate.results import Study
from analysis.figures import style
from analysis.figures.rows import name_rows, pitch


def draw(study: Study, table: pandas.DataFrame) -> Figure:
    """Forest plot of the family: a point and a simultaneous interval per effect, its verdict and n, the zero line."""
    shown = evidence.headline(table)
    rows = _grouped(shown)
    names = [row if isinstance(row, str) else row.label.removesuffix(f" at {row.stratum}") for row in rows]
    drawn = style.figure(study.manifest, _caption(study, shown), 0.55 + pitch(names, 0.18))
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
    name_rows(axis, names, [_result(row, known) for row in rows])
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


def _caption(study: Study, shown: pandas.DataFrame) -> list[str]:
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
