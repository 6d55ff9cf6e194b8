"""Seed strip: a dot per run, with lines that join the runs of a seed."""

import math
from typing import Any

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import WHOLE, dots_by_cell, name_x, spread, stacked
from analysis.figures.kind import Kind, Page


def table(case: Case) -> pandas.DataFrame:
    """A row per run: cell, name, facet (a metric with its unit), seed, value, kin (runs of equal kin are joined).

    Cells are in the design's order, if it has one, else by mean after the stratum's reference.  A run without a number
    has no value; `lost` counts such runs of its cell, `mean` is over the others.
    """
    study = case.study
    batches = {cell.id: cell.batches for cell in study.manifest.cells}
    tasks = {cell.id: study.manifest.tasks[cell.task] for cell in study.manifest.cells}
    scores, rows = evidence.scores(study), []
    for cell in _ordered(case):
        values = scores[cell.cell]
        known, facet = values.dropna(), captions.axis_label(study, cell.metric)
        about = {"cell": cell.cell, "name": cell.name, "facet": facet}
        about |= {"share": evidence.is_share(tasks[cell.cell], cell.metric)}
        about |= {"mean": known.mean() if len(known) > 1 else math.nan, "lost": "; ".join(formatting.lost(cell))}
        kin = f"{cell.stratum}|{batches[cell.cell]}"
        rows += [about | {"seed": seed, "value": value, "kin": kin} for seed, value in values.items()]
    found = pandas.DataFrame(rows)
    known = set(batches.values()) != {"seed"}  # unknown if read from a bare CSV
    counts = case.cells["runs"]
    found.attrs = {"caption": captions.caption("seeds", case, found, known=known, counts=counts), "most": counts.max()}
    return found


def _ordered(case: Case) -> list[Any]:
    manifest, rows = case.study.manifest, list(named_rows(case.cells))
    compared = [manifest.factors[name] for name in manifest.reference]
    if manifest.design == "cumulative" or any(style.numeric(levels) for levels in compared):
        return rows
    lower = {metric: evidence.lower_is_better(manifest, metric) for metric in evidence.measures(manifest)}
    strata = list(dict.fromkeys(row.stratum for row in rows))

    def key(row: Any) -> tuple[int, bool, float]:
        score = row.mean if lower[row.metric] else -row.mean
        return strata.index(row.stratum), not row.reference, score if math.isfinite(score) else math.inf

    return sorted(rows, key=key)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row per cell, a dot per run, lines that join the runs of a seed; counts of lost runs at the right."""
    panels = [group for _, group in table.groupby("facet", sort=False)]
    firsts = [group.drop_duplicates("cell") for group in panels]
    drawn, axes = stacked(table, page, [(first["name"], first["lost"]) for first in firsts], 0.22)
    for axis, rows in zip(axes, panels, strict=True):
        cells = list(dict.fromkeys(rows["cell"]))
        rows = rows.assign(y=rows["cell"].map(cells.index)).sort_values(["seed", "y"], kind="stable")
        # A line joins neighbouring runs of a seed, and breaks at a run without a number or with other batches.
        broken = rows["value"].isna() | (rows["kin"] != rows.groupby("seed")["kin"].shift())
        rows = rows.assign(line=broken.cumsum())
        known, few = rows.dropna(subset="value"), table.attrs["most"] <= style.DOTS
        if known.empty:
            style.say(axis, "no finished run")
            axis.set_xticks([])
        else:
            many = known.groupby(["cell", "y", "share"])["value"] if not few else ()
            for (cell, y, share), own in many:
                shade = page.encodings[str(cell)].colour
                axis.plot(spread(own, share), [y, y], lw=7, color=shade, alpha=0.4, solid_capstyle="butt")
            if few:
                for _, joined in known.groupby("line"):
                    axis.plot(joined["value"], joined["y"], zorder=1, mec="w", mew=0.75, color=style.MUTED, lw=0.5)
                dots_by_cell(axis, known, "value", page, True, s=16, linewidth=0.4, zorder=3)
            means = known.drop_duplicates("y").dropna(subset="mean")
            axis.plot(means["mean"], means["y"], "|", color=style.INK, ms=11, mew=1.2, zorder=4)
        axis.set(ylabel="")
        if known["value"].isin([0, 1]).all() and len(known):
            axis.set(xlim=WHOLE)
        name_x(axis, rows["facet"].iloc[0], page)
        axis.grid(axis="y", lw=0.4, color=style.FAINT)
    return drawn


KIND = Kind("every run's score, the runs of a seed joined", table, draw)
