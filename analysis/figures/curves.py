"""Learning curves: validation loss against tokens, a line per cell with a band over seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate import evidence, words
from ablate.results import Study
from analysis.figures import style

Cell = dict[str, Any]
LATE = 2 / 3  # where the right panel begins at the latest, as a share of the run


def draw(study: Study) -> Figure:
    """The curves of every cell: the whole run on the left, its end enlarged on the right; a row of panels per facet."""
    metric = "val/" + evidence.endpoint(study.manifest).split("/")[-1]
    rows, facets = _rows(study, metric), _facets(study.manifest)
    entries = _entries(study, len(facets) > 1)
    if not np.isfinite(rows["value"]).any():
        return style.nothing(style.figure(study.manifest, [], 1.0), "no finished run")
    # Entries of the legend fill its columns evenly; a character is about .046 inches wide, a line with its marker .5.
    columns = max(1, min(4, int(style.WIDTH / (0.046 * max(map(len, entries)) + 0.5))))
    lines = math.ceil(len(entries) / columns)
    height = 1.9 * len(facets) + 0.3 + 0.14 * lines
    figure = style.figure(study.manifest, [_caption(study, rows, metric)], height)
    panels = figure.subplots(len(facets), 2, squeeze=False)
    for (name, cells), (whole, late) in zip(facets, panels, strict=True):
        _facet(study, rows[rows["cell"].isin([cell["id"] for cell in cells])], whole, late)
        whole.set(title=name, ylabel=metric + words.unit(study.manifest, metric))
    for axis in panels[-1]:
        axis.set_xlabel(f"training tokens{_unit(rows)[1]}")
    handles = [Line2D([], [], color=e.colour, linestyle=e.dash, marker=e.marker, ms=3) for e in entries.values()]
    figure.legend(
        handles, list(entries), loc="outside lower left", ncols=math.ceil(len(entries) / lines), handlelength=3
    )
    return figure


def _rows(study: Study, metric: str) -> pandas.DataFrame:
    """What done and diverged runs logged of the metric: cell, seed, status, tokens, value, and x: tokens as drawn."""
    curves = study.curves.reindex(columns=["cell", "seed", "tokens", metric])
    rows = curves.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    rows = rows.assign(value=pandas.to_numeric(rows[metric], errors="coerce"), tokens=pandas.to_numeric(rows["tokens"]))
    # A diverged run's last row may hold no finite loss; its tokens still say where it ended.
    known = np.isfinite(rows["value"]) & (rows["status"] == "done") | (rows["status"] == "diverged")
    rows = rows[known & rows["tokens"].notna()]
    return rows.assign(x=rows["tokens"] / _unit(rows)[0])


def _unit(rows: pandas.DataFrame) -> tuple[float, str]:
    sizes = ((1e9, " (billions)"), (1e6, " (millions)"), (1e3, " (thousands)"))
    return next((size for size in sizes if rows["tokens"].max() >= size[0]), (1.0, ""))


def _facets(manifest: dict[str, Any]) -> list[tuple[str, list[Cell]]]:
    apart = style.roles(manifest)[2]
    found: dict[str, list[Cell]] = {}
    for cell in manifest["cells"]:
        found.setdefault(", ".join(f"{name}={words.show(cell['levels'][name])}" for name in apart), []).append(cell)
    return list(found.items())


def _entries(study: Study, facets: bool) -> dict[str, style.Look]:
    """The legend: each cell with what became of its runs; over several facets, each look once."""
    looks, (colour, second, _) = style.looks(study.manifest), style.roles(study.manifest)
    if facets:
        names = [name for name in study.manifest["factors"] if name in (colour, second)]
        return {
            " + ".join(words.show(cell["levels"][name]) for name in names): looks[cell["id"]]
            for cell in study.manifest["cells"]
        }
    cells = evidence.cells(study)
    few = [[f"n = {row.n}"] if 0 < row.n < cells["n"].max() else [] for row in cells.itertuples()]
    remarks = [n + words.lost(row) for n, row in zip(few, cells.itertuples(), strict=True)]
    labels = [name + f" ({'; '.join(r)})" * bool(r) for name, r in zip(cells["name"], remarks, strict=True)]
    return dict(zip(labels, (looks[name] for name in cells["cell"]), strict=True))


def band(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Mean and SD over a cell's done runs, by x, where every one of them was evaluated; SD is 0 for one seed."""
    done = rows[rows["status"] == "done"]
    table = done.groupby("x")["value"].agg(["mean", "std", "count"])
    table = table[table["count"] == done["seed"].nunique()].fillna({"std": 0.0})
    return table.assign(low=table["mean"] - table["std"], high=table["mean"] + table["std"])


def _facet(study: Study, rows: pandas.DataFrame, whole: Axes, late: Axes) -> None:
    looks = style.looks(study.manifest)
    bands = {str(cell): band(group) for cell, group in rows.groupby("cell", sort=False)}
    faint = min(0.15, 0.8 / max(1, len(bands)))
    for cell, table in bands.items():
        step = max(1, len(table) // 12)
        every = ((len(table) - 1) % step, step)  # some markers on the right, one of them at the end
        for axis, marker in ((whole, "none"), (late, looks[cell].marker)):
            colour = looks[cell].colour
            axis.plot(table["mean"], linestyle=looks[cell].dash, marker=marker, ms=3, markevery=every, color=colour)
            axis.fill_between(table.index, table["low"], table["high"], alpha=faint, lw=0, color=colour)
    ended = pandas.concat(bands.values()) if bands else pandas.DataFrame(columns=["low", "high"])
    diverged, end = rows[rows["status"] == "diverged"], rows["x"].max()
    # Limits come from the runs that ended well and from where all began: a diverged run leaves through the top.
    first = rows.groupby(["cell", "seed"])["value"].first()
    _limit(whole, [*ended["low"], *first], [*ended["high"], *first])
    for (cell, _), run in diverged.groupby(["cell", "seed"]):
        _diverged(whole, run, looks[str(cell)])
    # From an evaluation on, so that no line comes in through the frame.
    start = max(ended.index[ended.index <= LATE * end], default=0.0)
    last = ended[ended.index >= start]
    late.set_xlim(start, end + 0.02 * (end - start))
    _limit(late, list(last["low"]), list(last["high"]))


def _limit(axis: Axes, lows: list[float], highs: list[float]) -> None:
    if not lows:
        axis.text(0.5, 0.5, "no finished run", ha="center", transform=axis.transAxes, color=style.MUTED)
        axis.set_yticks([])
        return
    margin = 0.06 * (max(highs) - min(lows)) or 0.01
    axis.set_ylim(min(lows) - margin, max(highs) + margin)


def _diverged(axis: Axes, run: pandas.DataFrame, look: style.Look) -> None:
    low, top = axis.get_ylim()
    known = run[np.isfinite(run["value"])]
    axis.plot(known["x"], known["value"], color=look.colour, linestyle=look.dash, lw=0.7)
    y = min(max(known["value"].iloc[-1], low), top) if len(known) else top
    axis.plot(run["x"].max(), y, "x", color=look.colour, ms=5, mew=1.4, clip_on=False, zorder=5)


def _caption(study: Study, rows: pandas.DataFrame, metric: str) -> str:
    most = int(evidence.cells(study)["n"].max())
    over = (
        f"mean over {most} seeds, band ± 1 SD over seeds"
        if most > 1
        else "one seed, no band"
        if most
        else "no finished run"
    )
    cross = "; × where a diverged run ended" * bool((rows["status"] == "diverged").any())
    return f"{metric}: {over}; right: the end enlarged{cross}"
