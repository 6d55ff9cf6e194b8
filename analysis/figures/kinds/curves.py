"""Learning curves: validation loss against tokens and, for runs timed alone, seconds; a band over seeds."""

import math
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import end_at_shares, logged, metrics_of, over_seeds
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import bands_by_cell, legend, limits, lines_by_cell, log_axis, name_at
from analysis.figures.kind import Kind, Page

LATE = 2 / 3  # latest start of the enlarged panel, as a share of the run
LARGE = 10_000  # tokens or steps from which on they are counted in thousands
FACETS = 6  # rows of panels in one figure
COLUMNS = ["cell", "label", "facet", "metric", "status", "seed", "tokens", "seconds", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per evaluation: for a cell the mean and mean ± SD over its done seeds, for a diverged run its values and
    seed.  Seconds are those of training steps, averaged over seeds; NaN if runs shared the machine."""
    study, known = case.study, logged(case.study)
    by = "tokens" if "tokens" in known else "step"  # imported runs may have no tokens
    if by not in known:
        return None
    known = known.rename(columns={by: "tokens"}).dropna(subset="tokens")
    timed = ("seconds",) * ("seconds" in known)
    metrics, order = metrics_of(study), {cell.id: i for i, cell in enumerate(study.manifest.cells)}
    done = over_seeds(known[known["status"] == "done"], ["cell", "tokens"], timed).sort_values("tokens", kind="stable")
    done = end_at_shares(done, study.manifest, metrics)
    diverged = known[known["status"] == "diverged"].rename(columns={"value": "mean"})
    result = pandas.concat([done.assign(status="done"), diverged])
    about = _names(case) | {"metric": metrics}
    result = result.assign(**{name: result["cell"].map(texts) for name, texts in about.items()})
    result = result.reindex(columns=COLUMNS).sort_values("cell", key=lambda ids: ids.map(order), kind="stable")
    cut = any((group["tokens"] == 0).any() and _start(group) > 0 for group in _groups(result))
    caption = captions.caption("curves", case, result, enlarged=_enlarged(result), cut=cut)
    units = {metric: naming.metric_name(study.manifest, metric) for metric in metrics.values()}
    result.attrs = {"x": f"training {by}".replace("step", "steps"), "caption": caption, "units": units}
    return result.reset_index(drop=True)


def _names(case: Case) -> dict[str, dict[str, str]]:
    """By cell, its panel (levels of factors that are neither colour nor dash, and the task if there are several), and
    its name in the legend: with the counts of its runs; over several panels, each encoding once."""
    manifest, cells, tasks = case.study.manifest, case.cells, case.study.manifest.tasks
    apart, labels, facets = style.roles(manifest)[2], dict[str, str](), dict[str, str]()
    for cell in manifest.cells:
        own = {name: naming.assigned(manifest, name, level) for name, level in cell.levels.items()}
        labels[cell.id] = " + ".join(own[name] for name in manifest.factors if name in own and name not in apart)
        facets[cell.id] = ", ".join([*map(own.__getitem__, apart), *[tasks[cell.task].title] * (len(tasks) > 1)])
    if not apart:
        few = [f"n = {row.n}" if 0 < row.n < cells["n"].max() else "" for row in named_rows(cells)]
        labels = {row.cell: captions.with_losses(row, n) for row, n in zip(named_rows(cells), few, strict=True)}
    return {"label": labels, "facet": facets}


def _groups(rows: pandas.DataFrame) -> list[pandas.DataFrame]:
    return [group for _, group in rows.groupby("facet", sort=False)]


def _known_at(rows: pandas.DataFrame) -> list[float]:
    return sorted(set(rows.loc[np.isfinite(rows["mean"]) & (rows["tokens"] > 0), "tokens"]))


def _start(rows: pandas.DataFrame) -> float:
    """The start of the enlarged end: an evaluation after step 0, so that no line crosses the frame."""
    done = _known_at(rows[rows["status"] == "done"])
    early = [place for place in done if place <= LATE * rows["tokens"].max()]
    return max(early or done[:1] if len(done) > 1 else [], default=0.0)


def _enlarged(rows: pandas.DataFrame) -> bool:
    """Whether the end is shorter than the whole run in any panel; with two or three evaluations it is not."""
    return any(min(_known_at(group), default=math.inf) < _start(group) for group in _groups(rows))


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The whole run on a log axis, its end enlarged, and its end against seconds; a row of panels per facet.  If the
    end would be the whole run, only the whole run is shown, on a linear axis."""
    tokens, enlarged = table.attrs["x"] + _unit(table)[1], _enlarged(table)
    names = {f"{tokens}, log scale": "whole", f"{tokens}, the end": "end"} if enlarged else {tokens: "all"}
    names |= {"seconds" + ", the end" * enlarged: "clock"} if table["seconds"].notna().any() else {}
    facets = _groups(table)
    columns = len(names)
    below = legend({row.label: page.encodings[row.cell] for row in named_rows(table.drop_duplicates("cell"))}, page)
    many = [f"{FACETS} of {len(facets)} panels shown; subset in figures.yaml chooses"] * (len(facets) > FACETS)
    facets = facets[:FACETS]
    shape = (len(facets) * columns, 1) if page.narrow else (len(facets), columns)
    drawn = page.figure(table, (1.5 if page.narrow else 1.9) * shape[0] + 0.3 + below.height, many)
    if not np.isfinite(table["mean"]).any():
        return style.nothing(drawn, "no finished run")
    panels = drawn.subplots(*shape, squeeze=False).reshape(len(facets), columns)
    for axes in panels if page.narrow else panels[-1:]:
        for axis, name in zip(axes, names, strict=True):
            axis.set_xlabel(style.fold(name, page.width / shape[1] - 0.3, 7))
    ends: list[Any] = []
    for group, row in zip(facets, panels, strict=True):
        _facet(group, dict(zip(names.values(), row, strict=True)), page, _unit(table)[0])
        last = group[group["status"] == "done"].groupby("cell", sort=False).tail(1).dropna(subset="mean")
        at = last["seconds"] if "seconds" in names else last["tokens"] / _unit(table)[0]
        shades = [page.encodings[cell].colour for cell in last["cell"]]
        ends.append((row[-1], dict(zip(last["label"], zip(at, last["mean"], shades, strict=True), strict=True))))
        row[0].set_title(group["facet"].iloc[0])
        for axis in row if page.narrow else row[:1]:
            axis.set_ylabel(table.attrs["units"][group["metric"].iloc[0]])
    name_at(drawn, below, ends, (page.width / shape[1] - 0.5, 1.2))
    return drawn


def _unit(rows: pandas.DataFrame) -> tuple[float, str]:
    sizes = ((1e9, 1e9, " (billions)"), (1e6, 1e6, " (millions)"), (LARGE, 1e3, " (thousands)"))
    most = rows["tokens"].max()
    return next(((unit, name) for least, unit, name in sizes if most >= least), (1.0, ""))


def _facet(rows: pandas.DataFrame, panels: dict[str, Axes], page: Page, unit: float) -> None:
    """Draw the lines of one row of panels; a diverged run leaves the first panel at the top."""
    rows, start = rows.assign(x=rows["tokens"] / unit), _start(rows) / unit
    bands, whole = rows[rows["status"] == "done"], next(iter(panels.values()))
    for name, panel in panels.items():
        x = "seconds" if name == "clock" else "x"
        longest = int(bands.groupby("cell").size().max()) if len(bands) else 1
        step = max(1, longest // 12)
        every = ((longest - 1) % step, step)  # some markers, one of them at the end
        lines_by_cell(panel, bands, x, page, markers=name != "whole", ms=3, markevery=every)
        bands_by_cell(panel, bands, x, page, min(0.15, 0.8 / max(1, bands["cell"].nunique())))
        lone = rows.assign(low=rows["mean"], high=rows["mean"])  # of diverged runs only
        if name == "whole":
            _limit(panel, (lone if bands.empty else bands).query("x > 0"))
            if rows["x"].gt(0).any():
                log_axis(panel.xaxis, rows.loc[rows["x"] > 0, "x"].min(), rows["x"].max() * 1.04)
        elif name == "all" and bands.empty:
            _limit(panel, lone)
        else:  # the axis of tokens ends where the longest run ended
            last = bands[bands["x"] >= start]
            low, high = last[x].min(), rows["x"].max() if x == "x" else last[x].max()
            if high > low:
                panel.set_xlim(low, high + 0.02 * (high - low))
                panel.locator_params(axis="x", nbins=5)  # room for labels of four digits
            _limit(panel, last)
    for (cell, _), run in rows[rows["status"] == "diverged"].groupby(["cell", "seed"], sort=False):
        encoding = page.encodings[str(cell)]
        low, top = whole.get_ylim()
        known = run[np.isfinite(run["mean"]) & (run["x"] > 0)]
        whole.plot(known["x"], known["mean"], color=encoding.colour, linestyle=encoding.dash, lw=0.7)
        y = min(max(known["mean"].iloc[-1], low), top) if len(known) else top
        whole.plot(run["x"].max(), y, "x", color=encoding.colour, ms=5, mew=1.4, clip_on=False, zorder=5)
        if len(known) and known["mean"].iloc[-1] > top:  # beyond the axis: its number
            number = f"{known['mean'].iloc[-1]:.3g}"
            whole.text(run["x"].max(), y, f"{number}  ", ha="right", va="bottom", fontsize=6, color=encoding.colour)


def _limit(axis: Axes, shown: pandas.DataFrame) -> None:
    """Set the y range of a panel by the bands of done runs; without any, say so."""
    if shown["low"].notna().any():
        axis.set_ylim(*limits(shown[["low", "high"]], 0.06))
        return
    style.say(axis, "no finished run")
    axis.set(xticks=[], yticks=[], xlabel="")


KIND = Kind("the validation metric while training", table, draw)
