"""Every run's score, a row per configuration; and how many runs diverged."""

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.kind import Kind, Page


def table(case: Case) -> pandas.DataFrame:
    """A row per run: cell, name, facet (a metric with its unit), seed, value, batches; `result` names lost runs."""
    study = case.study
    batches = {cell.id: cell.batches for cell in study.manifest.cells}
    scores = evidence.scores(study)
    rows = []
    for cell in named_rows(case.cells):
        row = {"cell": cell.cell, "name": cell.name, "facet": captions.axis_label(study, cell.metric)}
        row |= {"result": "; ".join(formatting.lost(cell)), "batches": f"{cell.stratum}|{batches[cell.cell]}"}
        for seed, value in scores[cell.cell].items():
            rows.append({**row, "seed": seed, "value": value})
    result = pandas.DataFrame(rows)
    marks = [f"a dot per run, {captions.seeds(case.cells['runs'])} per configuration", "bar: mean"]
    if set(batches.values()) != {"seed"}:  # unknown if read from a bare CSV
        marks.append("lines join the runs of a seed that saw equal batches")
    result.attrs = {"caption": ["; ".join(marks)]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row per cell, a dot per run, lines that join the runs of a seed; counts of lost runs at the right."""
    values = table.set_index(["cell", "seed"])
    figure, panels = page.rows(table.drop_duplicates(["cell", "facet"]), 0.22)
    for axis, cells in panels:
        rows = values.loc[cells["cell"].tolist()].reset_index()
        rows["y"] = rows["cell"].map({cell: place for place, cell in enumerate(cells["cell"])})
        for _, runs in rows.groupby(["seed", "batches"], sort=False):
            axis.plot(runs["value"], runs["y"], color=style.MUTED, lw=0.4, zorder=1)
        for cell, runs in rows.groupby("cell", sort=False):
            colour, _, marker = page.encodings[str(cell)]
            axis.plot(runs["value"], runs["y"], marker, color=colour, mec="white", mew=0.3, clip_on=False)
        means = rows.groupby("y")["value"].mean()
        axis.plot(means, means.index, "|", color=style.INK, ms=10, mew=1.2, zorder=4)
        if rows["value"].isna().all():
            style.write_in(axis, "no finished run")
        axis.grid(axis="y", lw=0.4, color=style.FAINT)
    return figure


def divergence_table(case: Case) -> pandas.DataFrame | None:
    """A row per cell with diverged runs: their share among the done and diverged ones, with its Wilson interval.
    Failed and missing runs are not counted."""
    cells = case.cells[case.cells["diverged"] > 0]
    if cells.empty:
        return None
    cells = cells.rename(columns={"diverged_low": "low", "diverged_high": "high"})
    cells = cells.sort_values("diverged", ascending=False, kind="stable", ignore_index=True)
    cells["mean"] = cells["diverged"] / (cells["diverged"] + cells["done"])
    result = [f"{row.diverged} of {row.diverged + row.done}" for row in named_rows(cells)]
    table = cells.assign(result=result, facet="share of runs that diverged")
    table = table[["cell", "name", "facet", "mean", "low", "high", "result"]]
    others = len(case.cells) - len(cells)
    caption = (
        f"of the runs that ended; Wilson 95 % intervals, not corrected; {others} configurations without a diverged run"
    )
    table.attrs = {"caption": [caption]}
    return table


def draw_divergence(table: pandas.DataFrame, page: Page) -> Figure:
    """A point and an interval per cell from 0 to 1."""
    figure, panels = page.rows(table)
    for axis, rows in panels:
        for row in named_rows(rows):
            colour = page.encodings[row.cell].colour
            axis.hlines(row.Index, row.low, row.high, color=colour)
            axis.plot(row.mean, row.Index, "o", color=colour, clip_on=False)
        axis.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    return figure


KIND = Kind("every run's score, the runs of a seed joined", table, draw)
DIVERGENCE = Kind("which variants diverge, and how often", divergence_table, draw_divergence)
