"""Learning curves: validation loss against tokens and against seconds, a line per cell with a band over seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate import evidence, words
from ablate.results import Study
from analysis.case import Case
from analysis.figures import style
from analysis.figures.kind import Kind, Page
from analysis.figures.legend import legend
from analysis.figures.scales import log_x

LATE = 2 / 3  # where the right panel begins at the latest, as a share of the run
FACETS = 6  # rows of panels in one figure
COLUMNS = ["cell", "label", "facet", "metric", "status", "seed", "tokens", "seconds", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per evaluation: of a cell the mean and mean ± SD over its done seeds, of a diverged run what it logged.

    Columns: cell, label, facet, metric, status (done, diverged), seed (of a diverged run), tokens, seconds, mean, low,
    high, n.  Seconds are counted from the first row that was logged, and averaged over seeds.
    """
    study, logged = case.study, case.study.curves
    metrics = metrics_of(study.manifest, set(logged))
    by = "tokens" if "tokens" in logged else "step"  # runs of other programs may not say how many tokens they saw
    logged = logged.rename(columns={by: "tokens"})
    if logged.empty or "tokens" not in logged or not set(metrics.values()) & set(logged):
        return None
    known = _known(study, logged, metrics)
    if known.empty:
        return None
    order = {cell["id"]: i for i, cell in enumerate(study.manifest["cells"])}
    result = pandas.concat([band(known), _diverged(known)])
    about = {"label": _labels(case), "facet": _facets(study.manifest), "metric": metrics}
    result = result.assign(**{name: result["cell"].map(texts) for name, texts in about.items()})
    result = result.reindex(columns=COLUMNS).sort_values("cell", key=lambda ids: ids.map(order), kind="stable")
    result.attrs = {
        "x": f"training {by}".replace("step", "steps"),
        "caption": [_caption(case, result)],
        "units": _units(study.manifest, metrics),
    }
    return result.reset_index(drop=True)


def metrics_of(manifest: dict[str, Any], logged: set[str]) -> dict[str, str]:
    """Of each cell the validation metric, or its endpoint where that alone was logged."""
    found = {cell: (f"val/{metric.split('/')[-1]}", metric) for cell, metric in evidence.endpoints(manifest).items()}
    return {cell: own if own in logged and name not in logged else name for cell, (name, own) in found.items()}


def _units(manifest: dict[str, Any], metrics: dict[str, str]) -> dict[str, str]:
    return {metric: metric + words.unit(manifest, metric) for metric in metrics.values()}


def _known(study: Study, logged: pandas.DataFrame, metrics: dict[str, str]) -> pandas.DataFrame:
    """What done and diverged runs logged of their metric: cell, seed, status, tokens, seconds, value."""
    rows = logged[["cell", "seed"]].assign(value=values_of(logged, metrics))
    for name in ("tokens", "seconds"):
        rows[name] = pandas.to_numeric(logged[name], errors="coerce") if name in logged else math.nan
    rows = rows.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    rows["seconds"] -= rows.groupby(["cell", "seed"])["seconds"].transform("min")
    # A diverged run's last row may hold no finite loss; its tokens still say where it ended.
    known = np.isfinite(rows["value"]) & (rows["status"] == "done") | (rows["status"] == "diverged")
    return rows[known & rows["tokens"].notna()]


def values_of(logged: pandas.DataFrame, metrics: dict[str, str]) -> pandas.Series:
    """What each row has of the metric of its cell, NaN where it has none."""
    whose, found = logged["cell"].map(metrics), pandas.Series(math.nan, logged.index)
    for metric in set(metrics.values()) & set(logged):
        found = found.where(whose != metric, pandas.to_numeric(logged[metric], errors="coerce"))
    return found


def band(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Mean and SD over a cell's done runs, by tokens, where every one of them was evaluated; SD is 0 for one seed."""
    done = rows[rows["status"] == "done"]
    grouped = done.groupby(["cell", "tokens"], sort=False)
    found = grouped["value"].agg(["mean", "std", "count"]).assign(seconds=grouped["seconds"].mean()).reset_index()
    everyone = found["cell"].map(done.groupby("cell")["seed"].nunique())
    found = found[found["count"] == everyone].sort_values("tokens", kind="stable").fillna({"std": 0.0})
    found = found.assign(low=found["mean"] - found["std"], high=found["mean"] + found["std"], status="done")
    return found.rename(columns={"count": "n"}).drop(columns="std")


def _diverged(rows: pandas.DataFrame) -> pandas.DataFrame:
    return rows[rows["status"] == "diverged"].rename(columns={"value": "mean"})


def _facets(manifest: dict[str, Any]) -> dict[str, str]:
    """The panel of each cell: the levels of factors that are neither colour nor dash, its task where there are more."""
    apart, tasks = style.roles(manifest)[2], manifest["tasks"]
    found = {}
    for cell in manifest["cells"]:
        parts = [words.assigned(manifest, name, cell["levels"][name]) for name in apart]
        parts += [tasks[cell["task"]]["title"]] * (len(tasks) > 1)
        found[cell["id"]] = ", ".join(parts)
    return found


def _labels(case: Case) -> dict[str, str]:
    """The legend: each cell with what became of its runs; over several facets, each look once."""
    manifest, cells = case.study.manifest, case.cells
    colour, second, apart = style.roles(manifest)
    if apart:
        names = [name for name in manifest["factors"] if name in (colour, second)]
        return {
            cell["id"]: " + ".join(words.named(manifest, cell["levels"][name]) for name in names)
            for cell in manifest["cells"]
        }
    few = [[f"n = {row.n}"] if 0 < row.n < cells["n"].max() else [] for row in cells.itertuples()]
    remarks = [n + words.lost(row) for n, row in zip(few, cells.itertuples(), strict=True)]
    labels = [name + f" ({'; '.join(r)})" * bool(r) for name, r in zip(cells["name"], remarks, strict=True)]
    return dict(zip(cells["cell"], labels, strict=True))


def _caption(case: Case, rows: pandas.DataFrame) -> str:
    most = int(case.cells["n"].max())
    over = f"mean over {most} seeds, band ± 1 SD over seeds" if most > 1 else "one seed, no band"
    cross = "; × where a diverged run ended" * bool((rows["status"] == "diverged").any())
    timed = "; seconds from the first step on, evaluation included" * bool(rows["seconds"].notna().any())
    shared = ", of runs that shared the machine" * (case.study.manifest.get("timing", "shared") != "isolated")
    what = ", ".join(dict.fromkeys(rows["metric"]))
    return f"{what}: {over if most else 'no finished run'}; enlarged: the end{timed}{shared * bool(timed)}{cross}"


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The whole run on a log axis, its end enlarged, and its end against seconds; a row of panels per facet."""
    facets = [group for _, group in table.groupby("facet", sort=False)]
    timed = table["seconds"].notna().any()
    columns = 3 if timed else 2
    below = legend({row.label: page.looks[row.cell] for row in table.drop_duplicates("cell").itertuples()}, page)
    many = [f"{FACETS} of {len(facets)} panels shown; subset in figures.yaml chooses"] * (len(facets) > FACETS)
    facets = facets[:FACETS]
    shape = (len(facets) * columns, 1) if page.narrow else (len(facets), columns)
    drawn = page.figure(table, (1.5 if page.narrow else 1.9) * shape[0] + 0.3 + below.height, many)
    if not np.isfinite(table["mean"]).any():
        return style.nothing(drawn, "no finished run")
    panels = drawn.subplots(*shape, squeeze=False).reshape(len(facets), columns)
    for axes in panels if page.narrow else panels[-1:]:
        for axis, name in zip(axes, _names(table, columns), strict=True):
            axis.set_xlabel(name)
    for group, (whole, late, *clock) in zip(facets, panels, strict=True):
        _facet(group, [whole, late, *clock], page)
        whole.set_title(group["facet"].iloc[0])
        for axis in (whole, late, *clock) if page.narrow else (whole,):
            axis.set_ylabel(table.attrs["units"][group["metric"].iloc[0]])
    below.draw(drawn)
    return drawn


def _names(table: pandas.DataFrame, columns: int) -> list[str]:
    tokens = table.attrs["x"] + _unit(table)[1]
    return [tokens, f"{tokens}, the end", "seconds, the end"][:columns]


def _unit(rows: pandas.DataFrame) -> tuple[float, str]:
    sizes = ((1e9, " (billions)"), (1e6, " (millions)"), (1e3, " (thousands)"))
    return next((size for size in sizes if rows["tokens"].max() >= size[0]), (1.0, ""))


def _facet(rows: pandas.DataFrame, axes: list[Axes], page: Page) -> None:
    """The lines of one row of panels; a diverged run leaves the first through its top."""
    whole, late, *clock = axes
    rows = rows.assign(x=rows["tokens"] / _unit(rows)[0])
    bands, end = rows[rows["status"] == "done"], rows["x"].max()
    for panel, x in ((whole, "x"), (late, "x"), *((axis, "seconds") for axis in clock)):
        _bands(panel, bands, x, page, marked=panel is not whole)
    moving = rows[rows["x"] > 0]
    shown = bands if len(bands) else moving.assign(low=moving["mean"], high=moving["mean"])
    _limit(whole, shown[shown["x"] > 0])
    if len(moving):
        log_x(whole, moving["x"].min(), end * 1.04)
    for (cell, _), run in rows[rows["status"] == "diverged"].groupby(["cell", "seed"], sort=False):
        _cross(whole, run, page.looks[str(cell)])
    # From an evaluation on, so that no line comes in through the frame.
    start = max(bands.loc[bands["x"] <= LATE * end, "x"], default=0.0)
    last = bands[bands["x"] >= start]
    _ending(late, last, "x", start, end)
    for axis in clock:
        _ending(axis, last, "seconds", last["seconds"].min(), last["seconds"].max())


def _bands(axis: Axes, bands: pandas.DataFrame, x: str, page: Page, marked: bool) -> None:
    faint = min(0.15, 0.8 / max(1, bands["cell"].nunique()))
    for cell, rows in bands.groupby("cell", sort=False):
        look, step = page.looks[str(cell)], max(1, len(rows) // 12)
        every = ((len(rows) - 1) % step, step)  # some markers, one of them at the end
        marker = look.marker if marked else "none"
        axis.plot(rows[x], rows["mean"], linestyle=look.dash, marker=marker, ms=3, markevery=every, color=look.colour)
        axis.fill_between(rows[x], rows["low"], rows["high"], alpha=faint, lw=0, color=look.colour)


def _ending(axis: Axes, last: pandas.DataFrame, x: str, start: float, end: float) -> None:
    if len(last) and np.isfinite(end) and end > start:
        axis.set_xlim(start, end + 0.02 * (end - start))
    _limit(axis, last)


def _limit(axis: Axes, shown: pandas.DataFrame) -> None:
    """The height of a panel: of what ended well, or where nothing did of what there is."""
    low, high = shown["low"].min(), shown["high"].max()
    if not np.isfinite(low):
        axis.text(0.5, 0.5, "no finished run", ha="center", transform=axis.transAxes, color=style.MUTED)
        axis.set(xticks=[], yticks=[], xlabel="")
        return
    margin = 0.06 * (high - low) or 0.01
    axis.set_ylim(low - margin, high + margin)


def _cross(axis: Axes, run: pandas.DataFrame, look: style.Look) -> None:
    low, top = axis.get_ylim()
    known = run[np.isfinite(run["mean"]) & (run["x"] > 0)]
    axis.plot(known["x"], known["mean"], color=look.colour, linestyle=look.dash, lw=0.7)
    y = min(max(known["mean"].iloc[-1], low), top) if len(known) else top
    axis.plot(run["x"].max(), y, "x", color=look.colour, ms=5, mew=1.4, clip_on=False, zorder=5)


KIND = Kind("curves", "the validation metric while training, against tokens and seconds", table, draw)
