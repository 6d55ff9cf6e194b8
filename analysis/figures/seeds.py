"""Seed strip: a dot per run, lines that join a seed."""

from __future__ import annotations

import itertools

import pandas
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ablate import evidence, words
from ablate.results import Study
from analysis.figures import style
from analysis.figures.rows import name_rows, pitch


def draw(study: Study) -> Figure:
    """Seed strip: a dot per run, lines that join the runs of a seed that saw equal batches, losses at the margin."""
    metric, cells = evidence.endpoint(study.manifest), evidence.cells(study)
    names = list(cells["name"])
    drawn = style.figure(study.manifest, _caption(study), 0.6 + pitch(names, 0.22))
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
    name_rows(axis, names, ["; ".join(words.lost(row)) for row in cells.itertuples()])
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


def _caption(study: Study) -> list[str]:
    runs = f"a dot per run, {words.counted(len(study.manifest['seeds']), 'seed')} per cell"
    return [f"{runs}; bar: mean; lines join the runs of a seed that saw equal batches"]
