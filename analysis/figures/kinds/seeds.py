"""Seed strip: a dot per run, lines that join a seed."""

from __future__ import annotations

import math
from typing import Any

import pandas
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.results.records import Manifest
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import WHOLE, say
from analysis.figures.draw.marks import by_cell
from analysis.figures.draw.rows import name_x, stacked
from analysis.figures.kind import Kind, Page


def table(case: Case) -> pandas.DataFrame:
    """A row per run: cell, name, facet (a metric with its unit), seed, value, kin (runs of equal kin are joined).

    Cells in the order of their means, the reference of each stratum first; where a design has an order, in that.
    A run without a number has no value; `lost` says what became of such runs of its cell, `mean` is of the others.
    """
    study = case.study
    batches = {cell.id: cell.batches for cell in study.manifest.cells}
    scores, rows = evidence.scores(study), []
    for cell in _ordered(case):
        values = scores[cell.cell]
        known, facet = values.dropna(), captions.axis_label(study, cell.metric)
        about = {"cell": cell.cell, "name": cell.name, "facet": facet}
        about |= {"mean": known.mean() if len(known) > 1 else math.nan, "lost": "; ".join(formatting.lost(cell))}
        kin = f"{cell.stratum}|{batches[cell.cell]}"
        rows += [about | {"seed": seed, "value": value, "kin": kin} for seed, value in values.items()]
    found = pandas.DataFrame(rows)
    runs = f"a dot per run, {formatting.counted(len(study.manifest.seeds), 'seed')} per cell"
    alike = "" if set(batches.values()) == {"seed"} else " that saw equal batches"  # a CSV that says nothing of them
    found.attrs["caption"] = [f"{runs}; bar: mean; lines join the runs of a seed{alike}"]
    return found


def _ordered(case: Case) -> list[Any]:
    manifest = case.study.manifest
    rows = list(case.cells.itertuples())
    if manifest.design == "cumulative" or not _unordered(manifest):
        return rows
    lower = {metric: evidence.lower_is_better(manifest, metric) for metric in evidence.measures(manifest)}
    strata = list(dict.fromkeys(row.stratum for row in rows))

    def key(row: Any) -> tuple[int, bool, float]:
        score = row.mean if lower[row.metric] else -row.mean
        return strata.index(row.stratum), not row.reference, score if math.isfinite(score) else math.inf

    return sorted(rows, key=key)


def _unordered(manifest: Manifest) -> bool:
    """Whether what is compared has no order of its own, as numbers have."""
    compared = [manifest.factors[name] for name in manifest.reference]
    return not any(style.numeric(levels) for levels in compared)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row per cell, a dot per run, lines that join the runs of a seed; what gave no number at the margin."""
    panels = [group for _, group in table.groupby("facet", sort=False)]
    firsts = [group.drop_duplicates("cell") for group in panels]
    drawn, axes = stacked(table, page, [(first["name"], first["lost"]) for first in firsts], 0.22)
    for axis, group in zip(axes, panels, strict=True):
        _panel(axis, group, page)
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, page: Page) -> None:
    cells = list(dict.fromkeys(rows["cell"]))
    rows = _joined(rows.assign(y=rows["cell"].map(cells.index)))
    known, seeds = rows.dropna(subset="value"), rows["seed"].nunique()
    if known.empty:
        say(axis, "no finished run")
        axis.set_xticks([])
    else:
        thin = {"color": style.MUTED, "lw": 0.5, "alpha": min(1.0, 16 / seeds)}  # many lines must not hide the dots
        seaborn.lineplot(known, x="value", y="y", units="line", estimator=None, orient="y", ax=axis, zorder=1, **thin)
        crowd = min(1.0, 8 / seeds)  # many dots are drawn smaller
        dots = {"s": 16 * crowd, "linewidth": 0.4 * crowd**0.5, "zorder": 3}
        seaborn.scatterplot(known, x="value", y="y", ax=axis, **by_cell(known, page, "markers"), **dots)
        means = known.drop_duplicates("y").dropna(subset="mean")
        axis.plot(means["mean"], means["y"], "|", color=style.INK, ms=11, mew=1.2, zorder=4)
    axis.set(ylabel="")
    if rows["facet"].iloc[0] == captions.SHARE and len(known):
        axis.set(xlim=WHOLE)
    name_x(axis, rows["facet"].iloc[0], page)
    axis.grid(axis="y", lw=0.4, color=style.FAINT)


def _joined(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Rows with the `line` that each is on: neighbours of one seed, until a run without a number or other batches."""
    rows = rows.sort_values(["seed", "y"], kind="stable")
    broken = rows["value"].isna() | (rows["kin"] != rows.groupby("seed")["kin"].shift())
    return rows.assign(line=broken.cumsum())


KIND = Kind("every run's score, the runs of a seed joined", table, draw)
