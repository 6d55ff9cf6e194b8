"""Learning curves: the validation metric against training tokens, and the end or the differences enlarged."""

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ablate.runs import naming
from analysis.case import Case
from analysis.case.learning_curves import curve_values, end_at_shares, metrics_of, over_seeds
from analysis.figures import captions, style
from analysis.figures.axes import band, limits, log_axis, on_two_lines
from analysis.figures.kind import Kind, Page

END = 2 / 3  # of the longest run, where the enlarged end starts
FEWEST = 4  # evaluations from which on the end is enlarged
COLUMNS = ["cell", "label", "facet", "status", "seed", "tokens", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per evaluation: for a cell the mean and mean ± SD over its done seeds, for a diverged run its values and
    seed; a panel per stratum (`facet`).  None if no run was evaluated at two steps after the start."""
    manifest = case.study.manifest
    values = curve_values(case.study)
    by = "tokens" if "tokens" in values else "step"  # imported runs may have no tokens
    if by not in values:
        return None
    values = values.assign(tokens=values[by])
    if values[values["tokens"] > 0].groupby(["cell", "seed"])["tokens"].nunique().max() < 2:
        return None
    metrics = metrics_of(case.study)
    done = over_seeds(values[values["status"] == "done"], ["cell", "tokens"])
    done = end_at_shares(done, manifest, metrics).sort_values("tokens", kind="stable")
    diverged = values[values["status"] == "diverged"].rename(columns={"value": "mean"})
    names = captions.lines_of(case)
    result = names.merge(pandas.concat([done.assign(status="done"), diverged]), on="cell").reindex(columns=COLUMNS)
    name = naming.metric_name(manifest, *dict.fromkeys(metrics.values()))
    caption = f"{name}: {captions.band_text(result['n'])}; right: "
    caption += "the last third" if is_long(result) else "differences to the first configuration, without a band"
    if len(diverged):
        caption += "; × where a diverged run ended"
    result.attrs = names.attrs | {"x": f"training {by.removesuffix('s')}s", "y": name, "caption": [caption]}
    return result


def is_long(rows: pandas.DataFrame) -> bool:
    """Whether there are enough evaluations after the start for the last third to be a curve."""
    evaluations = rows[(rows["status"] == "done") & (rows["tokens"] > 0)]
    return bool(evaluations.groupby("cell").size().max() >= FEWEST)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row of two panels per facet: the whole run on a log axis; its end, or the difference to the first cell."""
    page = page.for_lines(table)
    facets = list(table.groupby("facet", sort=False))
    down = len(facets) * (2 if page.narrow else 1)
    figure = page.figure(table, 1.8 * down, page.legend(table))
    axes = figure.subplots(down, 2 * len(facets) // down, squeeze=False).reshape(-1, 2)
    for (facet, rows), (left, right) in zip(facets, axes, strict=True):
        done = rows[(rows["status"] == "done") & (rows["tokens"] > 0)]
        draw_lines(left, done, page)
        draw_diverged(left, rows[rows["status"] == "diverged"], page)
        left.set(title=facet, xlabel=f"{table.attrs['x']}, log scale", ylabel=on_two_lines(table.attrs["y"]))
        if is_long(done):
            draw_lines(right, done[done["tokens"] >= END * rows["tokens"].max()], page)
            right.set(xlabel=f"{table.attrs['x']}, the end")
        else:
            first = done[done["cell"] == rows["cell"].iloc[0]].set_index("tokens")["mean"]
            change = done["mean"] - done["tokens"].map(first)
            draw_lines(right, done.assign(mean=change, low=change, high=change), page)  # the band is not of differences
            right.set(xlabel=table.attrs["x"], ylabel="difference\nto the first")
        right.locator_params(axis="x", nbins=5)
        log_axis(left.xaxis)
        left.xaxis.set_major_formatter(EngFormatter())
        right.xaxis.set_major_formatter(EngFormatter())
    return figure


def draw_lines(axis: Axes, rows: pandas.DataFrame, page: Page) -> None:
    """The mean of each cell with its band."""
    for cell, line in rows.groupby("cell", sort=False):
        band(axis, line, "tokens", page.encodings[str(cell)], markevery=1 + len(line) // 12)
    axis.set_ylim(*limits(rows[["low", "high"]]))
    if rows.empty:
        style.write_in(axis, "no finished run")


def draw_diverged(axis: Axes, rows: pandas.DataFrame, page: Page) -> None:
    """The values of each diverged run as a thin line, with × at its last finite value, at the panel's edge if that lies
    outside, at the top if it has none."""
    low, top = axis.get_ylim()
    for (cell, _), run in rows.groupby(["cell", "seed"], sort=False):
        colour = page.encodings[str(cell)].colour
        values = run["mean"].ffill().fillna(top).clip(low, top)
        axis.plot(run["tokens"], run["mean"], color=colour, lw=0.7)
        axis.plot(run["tokens"].max(), values.iloc[-1], "x", color=colour, clip_on=False, zorder=5)
    axis.set_ylim(low, top)


NEEDS = "runs that were evaluated at two or more steps after the start"
KIND = Kind("the validation metric while training", table, draw, needs=NEEDS)
