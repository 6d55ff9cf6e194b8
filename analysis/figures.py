"""Learning curves, forest plot and seed strip of a study."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence
from ablate.evidence import words
from ablate.results import Study
from analysis import curves, style


def write(study: Study, table: pandas.DataFrame, folder: Path) -> list[Path]:
    """Draw curves, effects and seeds as PDF and PNG; `table` holds the effects."""
    with matplotlib.rc_context(style.RC):
        drawn = {"curves": curves.draw(study), "effects": effects(study, table), "seeds": seeds(study)}
        return [file for name, figure in drawn.items() for file in style.save(figure, folder, name)]


def effects(study: Study, table: pandas.DataFrame) -> Figure:
    """Forest plot of the family: a point and a simultaneous interval per effect, its verdict and n, the zero line."""
    family = table[table["family"]]
    rows = _grouped(family)
    drawn = style.figure(1.15 + 0.19 * max(1, len(rows)))
    drawn.suptitle(_effects_caption(study, family), x=0.01, ha="left")
    axis = drawn.subplots()
    if family.empty:
        return _nothing(drawn, axis, "one cell: nothing to compare")
    axis.axvline(0, color=style.INK, lw=0.8)
    limit = _limit(family)
    palette = style.colours(study.manifest)
    for y, row in enumerate(rows):
        if not isinstance(row, str):
            _effect(axis, y, row, limit, palette.get((row.factor, row.level), style.INK))
    axis.set(xlim=(-limit, limit), ylim=(len(rows) - 0.4, -0.6), xlabel=_difference_label(study))
    names = [row if isinstance(row, str) else row.label.removesuffix(f" at {row.stratum}") for row in rows]
    axis.set_yticks(range(len(rows)), [textwrap.fill(name, 44) for name in names])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if isinstance(row, str) else "normal")
    _right(axis, [_result(row, family) for row in rows])
    return drawn


def _grouped(family: pandas.DataFrame) -> list[Any]:
    """The rows of the forest from top to bottom, each stratum under its name."""
    rows: list[Any] = []
    for stratum, group in family.groupby("stratum", sort=False):
        rows += [str(stratum)] * bool(stratum) + list(group.itertuples())
    return rows


def _limit(family: pandas.DataFrame) -> float:
    """How far the axis reaches: to the widest interval, but no further than three times the median one."""
    reach = np.fmax(family[["low", "high"]].abs().max(axis=1), family["mean"].abs()).dropna()
    if reach.empty:
        return 1.0
    return float(min(reach.max(), 3 * reach.median()) * 1.08) or 1.0


def _effect(axis: Axes, y: int, row: Any, limit: float, colour: str) -> None:
    if row.verdict == "withheld" or not np.isfinite(row.mean):
        return
    filled = row.verdict in ("better", "worse")
    if np.isfinite(row.low):
        ends = np.clip([row.low, row.high], -limit, limit)
        axis.plot(ends, [y, y], color=colour, lw=1.4, solid_capstyle="butt")
        for end, true, arrow in zip(ends, (row.low, row.high), "<>", strict=True):
            axis.plot(end, y, marker=arrow if end != true else "|", color=colour, ms=4, clip_on=False)
    if abs(row.mean) <= limit:
        axis.plot(row.mean, y, "o", ms=4.5, color=colour, markerfacecolor=colour if filled else "white", zorder=3)


def _result(row: Any, family: pandas.DataFrame) -> str:
    if isinstance(row, str):
        return ""
    if row.verdict == "withheld":
        return f"withheld: {row.note}"
    places = words.decimals((family["high"] - family["low"]) / 2)
    return f"{words.span(row.mean, row.low, row.high, places)}  {row.verdict}  n = {row.n}"


def _right(axis: Axes, texts: list[str]) -> None:
    """Texts beside the rows, as the labels of an axis on the right: the layout then makes room for them."""
    side = axis.secondary_yaxis("right")
    side.set_yticks(range(len(texts)), texts)
    side.tick_params(length=0)
    side.spines["right"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)


def _effects_caption(study: Study, family: pandas.DataFrame) -> str:
    known = family[family["low"].notna()]
    how = "no interval: a difference needs two seeds on both sides"
    if len(known):
        pairing = "paired within seeds" if known["paired"].all() else "unpaired where the batches differ"
        how = f"simultaneous 95 % intervals over seeds (Bonferroni-t, family of {len(family)}), {pairing}"
    return _titled(study, f"{how}; filled: decided" if len(known) else how)


def _difference_label(study: Study) -> str:
    metric = evidence.endpoint(study.manifest)
    better = "lower" if evidence.lower_is_better(study.manifest, metric) else "higher"
    return f"difference in {metric}{_unit(study)} ({better} is better)"


def _unit(study: Study) -> str:
    token = next(iter(study.manifest["tasks"].values()))["token"]
    return f", nats per {token}" if evidence.endpoint(study.manifest).endswith("loss") else ""


def _titled(study: Study, text: str) -> str:
    tasks = dict.fromkeys(task["title"] for task in study.manifest["tasks"].values())
    lines = [f"{' x '.join(study.manifest['factors']) or study.manifest['study']} · {', '.join(tasks)}", text]
    lines += [evidence.unadjusted(study.manifest) or ""]
    return "\n".join(textwrap.fill(line, 125) for line in lines if line)


def _nothing(drawn: Figure, axis: Axes, why: str) -> Figure:
    axis.text(0.5, 0.5, why, ha="center", transform=axis.transAxes, color=style.MUTED)
    axis.set(xticks=[], yticks=[])
    return drawn


def seeds(study: Study) -> Figure:
    """Seed strip: a dot per run, lines that join the runs of a seed that saw equal batches, losses at the margin."""
    metric, cells = evidence.endpoint(study.manifest), evidence.cells(study)
    values, looks = evidence.scores(study, metric), style.looks(study.manifest)
    drawn = style.figure(1.2 + 0.24 * len(cells))
    drawn.suptitle(_seeds_caption(study, values), x=0.01, ha="left")
    axis = drawn.subplots()
    if values.notna().to_numpy().any():
        _lines(axis, study, values)
    else:
        axis.text(0.5, 0.5, "no finished run", ha="center", transform=axis.transAxes, color=style.MUTED)
        axis.set_xticks([])
    for y, row in enumerate(cells.itertuples()):
        look, scored = looks[row.cell], values[row.cell].dropna()
        axis.plot(scored, [y] * len(scored), look.marker, color=look.colour, ms=4, mec="white", mew=0.4, zorder=3)
        axis.plot(row.mean, y, "|", color=style.INK, ms=11, mew=1.2, zorder=4)
    axis.set(ylim=(len(cells) - 0.5, -0.5), xlabel=f"{metric}{_unit(study)}")
    axis.grid(axis="y", lw=0.4, color="#e5e5e5")
    axis.set_yticks(
        range(len(cells)), [textwrap.fill(r.label + " (reference)" * r.reference, 44) for r in cells.itertuples()]
    )
    _right(axis, ["; ".join(words.lost(row)) for row in cells.itertuples()])
    return drawn


def _lines(axis: Axes, study: Study, values: pandas.DataFrame) -> None:
    """Join neighbouring rows of one seed; a run without a number, or other batches, breaks the line."""
    cells = study.manifest["cells"]
    for y, (one, other) in enumerate(itertools.pairwise(cells)):
        if one["batches"] == other["batches"]:
            for pair in values[[one["id"], other["id"]]].dropna().to_numpy():
                axis.plot(pair, [y, y + 1], color=style.MUTED, lw=0.5, zorder=1)


def _seeds_caption(study: Study, values: pandas.DataFrame) -> str:
    text = f"a dot per run ({words.counted(len(study.manifest['seeds']), 'seed')} per cell), bar: mean of the done runs"
    return _titled(study, text + "; lines join runs of one seed that saw equal batches")
