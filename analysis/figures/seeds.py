"""Every run's score, a row per configuration."""

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.figures import captions, style
from analysis.figures.kind import Kind, Page


def table(case: Case) -> pandas.DataFrame | None:
    """A row per run: cell, name, facet (a metric with its unit), seed, value, batches; `result` names lost runs.  None
    if no run has a score."""
    study = case.study
    if case.cells["mean"].isna().all():
        return None
    batches = {cell.id: cell.batches for cell in study.manifest.cells}
    scores = evidence.scores(study)
    rows = []
    for cell in named_rows(case.cells):
        row = {"cell": cell.cell, "name": cell.name, "facet": captions.axis_label(study, cell.metric)}
        row |= {"result": "; ".join(formatting.lost(cell)), "batches": f"{cell.stratum}|{batches[cell.cell]}"}
        for seed, value in scores[cell.cell].items():
            rows.append({**row, "seed": seed, "value": value})
    result = pandas.DataFrame(rows)
    caption = f"a dot per run, {captions.seeds(case.cells['runs'])} per configuration; bar: mean"
    if {*batches.values()} - {"seed", None, ""}:  # unknown of other programs
        caption += "; lines join the runs of a seed that saw equal batches"
    result.attrs = {"caption": [caption]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row per cell, a dot per run, lines that join the runs of a seed; counts of lost runs at the right."""
    figure, panels = page.rows(table.drop_duplicates(["cell", "facet"]), 0.22)
    for axis, cells in panels:
        rows = table[table["cell"].isin(cells["cell"])]
        rows = rows.assign(y=rows["cell"].map(dict(zip(cells["cell"], cells.index, strict=True))))
        for _, runs in rows.groupby(["seed", "batches"], sort=False):
            axis.plot(runs["value"], runs["y"], color=style.MUTED, lw=0.4, zorder=1)
        for cell, runs in rows.groupby("cell", sort=False):
            colour, _, marker = page.encodings[str(cell)]
            axis.plot(runs["value"], runs["y"], marker, color=colour, mec="white", mew=0.3, clip_on=False)
        means = rows.groupby("y")["value"].mean()
        axis.plot(means, means.index, "|", color=style.INK, ms=10, mew=1.2, zorder=4)
        axis.grid(axis="y", lw=0.4, color=style.FAINT)
    return figure


KIND = Kind("every run's score, the runs of a seed joined", table, draw)
