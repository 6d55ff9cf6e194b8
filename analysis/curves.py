"""Validation loss against tokens, a line per cell with a band over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate import evidence
from ablate.evidence import words
from ablate.results import Study
from analysis import style

Cell = dict[str, Any]


def draw(study: Study) -> Figure:
    """The curves of every cell: the whole run on the left, its last third on the right; a row of panels per facet."""
    metric = "val/" + evidence.endpoint(study.manifest).split("/")[-1]
    logged = _logged(study, metric)
    facets = _facets(study.manifest)
    figure = style.figure(2.1 * len(facets) + 0.7 + 0.14 * len(study.manifest["cells"]) / 3)
    figure.suptitle(_caption(study, logged, metric), x=0.01, ha="left")
    looks, unit = style.looks(study.manifest), _unit(logged["tokens"].max())
    axes = figure.subplots(len(facets), 2, squeeze=False)
    for (name, cells), (whole, late) in zip(facets, axes, strict=True):
        for cell in cells:
            _cell(whole, late, logged[logged["cell"] == cell["id"]], looks[cell["id"]], unit)
        _frame(whole, late, logged[logged["cell"].isin([cell["id"] for cell in cells])], unit)
        whole.set(title=name, ylabel=metric)
    for axis in axes[-1]:
        axis.set_xlabel(f"training tokens{unit[1]}")
    _legend(figure, study, looks)
    return figure


def _logged(study: Study, metric: str) -> pandas.DataFrame:
    """The rows of done and diverged runs that have the metric, with the run's status."""
    curves = study.curves.reindex(columns=["cell", "seed", "tokens", metric])
    rows = curves.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    rows = rows.assign(value=pandas.to_numeric(rows[metric], errors="coerce"), tokens=pandas.to_numeric(rows["tokens"]))
    ended = rows["status"].isin(["done", "diverged"])
    # A diverged run's last row may hold no finite loss; its tokens still say where it ended.
    known = np.isfinite(rows["value"]) | (rows["status"] == "diverged")
    return rows[ended & known & rows["tokens"].notna()]


def _facets(manifest: dict[str, Any]) -> list[tuple[str, list[Cell]]]:
    apart = style.roles(manifest)[2]
    found: dict[str, list[Cell]] = {}
    for cell in manifest["cells"]:
        found.setdefault(", ".join(f"{name}={words.show(cell['levels'][name])}" for name in apart), []).append(cell)
    return list(found.items())


def _unit(most: float) -> tuple[float, str]:
    sizes = ((1e9, " (billions)"), (1e6, " (millions)"), (1e3, " (thousands)"))
    return next((size for size in sizes if most >= size[0]), (1.0, ""))


def band(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Mean and SD over the done seeds, by tokens, where every one of them was evaluated; SD is 0 for one seed."""
    done = rows[rows["status"] == "done"]
    table = done.groupby("tokens")["value"].agg(["mean", "std", "count"])
    return table[table["count"] == done["seed"].nunique()].fillna({"std": 0.0})


def _cell(whole: Axes, late: Axes, rows: pandas.DataFrame, look: style.Look, unit: tuple[float, str]) -> None:
    table = band(rows)
    x = table.index.to_numpy() / unit[0]
    for axis in (whole, late):
        marker = look.marker if axis is late else "none"
        axis.plot(x, table["mean"], marker=marker, color=look.colour, linestyle=look.dash, ms=3, markevery=0.2)
        axis.fill_between(
            x, table["mean"] - table["std"], table["mean"] + table["std"], color=look.colour, alpha=0.15, lw=0
        )
    for _, run in rows[rows["status"] == "diverged"].groupby("seed"):
        finite = run[np.isfinite(run["value"])]
        whole.plot(finite["tokens"] / unit[0], finite["value"], color=look.colour, linestyle=look.dash, lw=0.7)


def _frame(whole: Axes, late: Axes, rows: pandas.DataFrame, unit: tuple[float, str]) -> None:
    """Limits set by what was trained to the end; diverged runs leave through the top, where a cross marks their end."""
    if rows.empty:
        for axis in (whole, late):
            axis.text(0.5, 0.5, "no finished run", ha="center", transform=axis.transAxes, color=style.MUTED)
            axis.set(xticks=[], yticks=[])
        return
    first, last = rows.groupby(["cell", "seed"])["value"].first(), rows["tokens"].max()
    bands = [band(group) for _, group in rows.groupby("cell")]
    tops = [first.max(), *(float((table["mean"] + table["std"]).max()) for table in bands if len(table))]
    lows = [float((table["mean"] - table["std"]).min()) for table in bands if len(table)]
    bottom, top = min([*lows, rows["value"].min()]), max(tops)
    whole.set_ylim(bottom - 0.05 * (top - bottom), top + 0.08 * (top - bottom))
    _crosses(whole, rows[rows["status"] == "diverged"], unit)
    late.set_xlim(last * 2 / 3 / unit[0], last * 1.01 / unit[0])
    ends = [table[table.index >= last * 2 / 3] for table in bands]
    low = [float((end["mean"] - end["std"]).min()) for end in ends if len(end)]
    high = [float((end["mean"] + end["std"]).max()) for end in ends if len(end)]
    if low:
        margin = 0.06 * (max(high) - min(low)) or 0.01
        late.set_ylim(min(low) - margin, max(high) + margin)
    else:
        late.text(0.5, 0.5, "no finished run", ha="center", transform=late.transAxes, color=style.MUTED)


def _crosses(axis: Axes, diverged: pandas.DataFrame, unit: tuple[float, str]) -> None:
    low, top = axis.get_ylim()
    for _, run in diverged.groupby(["cell", "seed"]):
        finite = run["value"][np.isfinite(run["value"])]
        y = min(max(float(finite.iloc[-1]), low), top) if len(finite) else top
        axis.plot(run["tokens"].max() / unit[0], y, "x", color=style.INK, ms=5, mew=1.2, clip_on=False, zorder=5)


def _caption(study: Study, logged: pandas.DataFrame, metric: str) -> str:
    done = study.runs[study.runs["status"] == "done"].groupby("cell")["seed"].nunique()
    most = int(done.max()) if len(done) else 0
    task = next(iter(study.manifest["tasks"].values()))["title"]
    text = f"{' x '.join(study.manifest['factors']) or study.manifest['study']} · {task}\n{metric}: "
    band_kind = (
        f"mean over {most} seeds, band ± 1 SD over seeds" if most > 1 else f"{words.counted(most, 'seed')}, no band"
    )
    return (
        text
        + band_kind
        + "; right: the last third"
        + "; × a diverged run's end" * bool((logged["status"] == "diverged").any())
    )


def _legend(figure: Figure, study: Study, looks: dict[str, style.Look]) -> None:
    cells = evidence.cells(study)
    most = int(cells["n"].max())
    handles = []
    for row in cells.itertuples():
        few = [f"n = {row.n}"] * (0 < row.n < most) + words.lost(row)
        label = row.label + " (reference)" * row.reference + f" ({', '.join(few)})" * bool(few)
        look = looks[row.cell]
        handles.append(Line2D([], [], color=look.colour, linestyle=look.dash, marker=look.marker, ms=3, label=label))
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(4, int(125 / (longest + 9))))
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, handlelength=3)
