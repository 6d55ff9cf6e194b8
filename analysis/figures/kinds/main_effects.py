"""Main effects: the marginal mean at each level of every factor, a panel per factor."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.results import naming
from ablate.results.records import Cell
from ablate.results.study import Study
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import WHOLE, limits, name_ticks, panels
from analysis.figures.kind import Kind, Page

DESIGNS = ("grid", "fractional")
PANELS = 12
COLUMNS = ["facet", "factor", "level", "name", "mean", "low", "high", "n", "runs", "diverged", "failed", "missing"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per factor and level: the mean over its cells in the metric's unit, and a 95 % interval.

    For factorial designs with at least two compared factors, within each stratum (`facet`).  If paired, seeds are
    centred: SD over seeds of (mean of the level's cells − mean of all cells), times √(L/(L − 1)) for L levels (Morey
    2008), so that the interval shows the variation of differences between levels.  For the share solved it is exact,
    and diverged runs count as unsolved; for other metrics it is NaN if levels lost different numbers of runs.
    """
    study, manifest = case.study, case.study.manifest
    known, found = captions.one_metric(study), list[dict[str, Any]]()
    levels = manifest.factors if manifest.design in DESIGNS else {}
    factors = [name for name in levels if name in manifest.reference and len(levels[name]) > 1]
    if len(factors) < 2 or not known:
        return None
    for stratum, cells in itertools.islice(known, max(1, PANELS // len(factors))):
        found += [{"facet": stratum, **row} for factor in factors for row in _levels(case, factor, cells)]
    made = pandas.DataFrame(found, columns=COLUMNS)
    solved = all(map(evidence.is_solved, evidence.measures(manifest)))
    paired = all(len({cell.batches for cell in cells}) == 1 for _, cells in evidence.strata(manifest))
    differ = made.groupby(["facet", "factor"])["diverged"].transform("nunique") > 1
    facts = {"paired": paired, "withheld": (made["mean"].isna() & differ).any()}
    caption = captions.caption("main_effects", case, made, **facts)
    made.attrs = {"y": captions.axis_label(study), "solved": solved, "caption": caption}
    return made


def _levels(case: Case, factor: str, cells: list[Cell]) -> Iterator[dict[str, Any]]:
    levels = formatting.grouped((cell.levels[factor], cell.id) for cell in cells)
    known = case.cells.set_index("cell")
    counts = [known.loc[ids, ["runs", "diverged", "failed", "missing"]].sum().to_dict() for ids in levels.values()]
    solved = evidence.is_solved(evidence.endpoint(case.study.manifest))  # diverged runs count as unsolved
    comparable = solved or len({lost["diverged"] for lost in counts}) == 1
    groups = marginal(case.study, list(levels.values()), cells)
    for level, estimate, lost in zip(levels, groups, counts, strict=True):
        low, high = evidence.interval(estimate, evidence.ALPHA)
        shown = {"mean": estimate.mean, "low": low, "high": high} if comparable else {}
        named = {"level": formatting.show(level), "name": naming.named(case.study.manifest, level, factor)}
        yield {"factor": factor, **named, **shown, "n": estimate.n, **lost}


def marginal(study: Study, groups: list[list[str]], cells: list[Cell]) -> list[evidence.Estimate]:
    """The mean over each group of cells, with the error described in `table`; Welch's if cells saw different batches.
    For the share solved, each has the exact interval of its share."""
    metric = evidence.endpoints(study.manifest)[cells[0].id]  # the same for all of these cells
    values, found = evidence.scores(study, metric)[[cell.id for cell in cells]], list[evidence.Estimate]()
    unpaired, complete = len({cell.batches for cell in cells}) > 1, values.dropna()
    if not unpaired and complete.empty:
        return [evidence.paired(np.array([]))] * len(groups)
    grand, scale = complete.mean(axis=1).to_numpy(), math.sqrt(len(groups) / max(1, len(groups) - 1))
    for ids in groups:
        if unpaired:
            parts, weights = [values[[cell]].dropna().to_numpy() for cell in ids], [[1 / len(ids)]] * len(ids)
            estimate = evidence.welch([part[:, 0] / len(ids) for part in parts])
        else:
            parts, weights = [complete[ids].to_numpy()], [[1 / len(ids)] * len(ids)]
            mean = parts[0].mean(axis=1)
            estimate = evidence.paired((mean - grand) * scale)._replace(mean=float(mean.mean()))
        if evidence.is_solved(metric):
            estimate = estimate._replace(exact=evidence.counted(parts, weights, 1))
        found.append(estimate)
    return found


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A panel per factor, rows of panels per stratum; panels of a stratum share the axis of the metric."""
    blocks = [list(rows.groupby("factor", sort=False)) for _, rows in table.groupby("facet", sort=False)]
    across = min(len(blocks[0]), max(1, int(page.width / 1.35)))
    drawn = page.figure(table, 1.85 * math.ceil(len(blocks[0]) / across) * len(blocks))
    for part, block in zip(drawn.subfigures(len(blocks), squeeze=False)[:, 0], blocks, strict=True):
        axes = panels(part, len(block), across, sharey=True)
        for axis, (factor, rows) in zip(axes, block, strict=True):
            _panel(axis, rows, page, page.width / across - 0.5)
            axis.set_title(", ".join(filter(None, [page.label(factor), rows["facet"].iloc[0]])))
        known = pandas.concat([rows[["mean", "low", "high"]] for _, rows in block])
        axes[0].set_ylim(*(WHOLE if table.attrs["solved"] else limits(known)))
        if known["mean"].isna().all():
            axes[0].set_yticks([])
        for axis in axes[::across]:
            axis.set_ylabel(style.fold(table.attrs["y"], 0.8, 7))
    return drawn


def _panel(axis: Axes, rows: pandas.DataFrame, page: Page, inches: float) -> None:
    rows = rows.assign(x=range(len(rows)))
    shades = {row.level: page.colour(row.factor, row.level) for row in named_rows(rows)}
    axis.plot(rows["x"], rows["mean"], color=style.MUTED, lw=0.8, zorder=1)
    axis.vlines(rows["x"], rows["low"], rows["high"], colors=list(shades.values()), lw=1.3)
    axis.scatter(rows["x"], rows["mean"], s=22, c=list(shades.values()), linewidth=0, zorder=3)
    names = [row.name + f" ({row.diverged}/{row.runs} div.)" * bool(row.diverged) for row in named_rows(rows)]
    name_ticks(axis, names, inches)
    axis.set(xlim=(-0.5, len(rows) - 0.5), xlabel="", ylabel="")
    if rows["mean"].isna().all():
        style.say(axis, "withheld" if rows["diverged"].nunique() > 1 else "no seed\nhas every run")


KIND = Kind("the mean at each level of every factor", table, draw, most=200)
