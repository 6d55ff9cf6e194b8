"""Learning curves: the validation metric against training tokens, and the differences to the first configuration."""

import numpy as np
import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ablate.runs import naming
from analysis.case import Case
from analysis.case.learning_curves import curve_values, end_at_shares, metrics_of, over_seeds
from analysis.figures import captions
from analysis.figures.axes import band, diverged, limits, log_axis, on_two_lines
from analysis.figures.kind import Kind, Page

LATE = 1 / 3  # share of training from which on the axis of the differences fits them
COLUMNS = ["cell", "label", "facet", "status", "seed", "tokens", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per evaluation: for a cell the mean and mean ± SD over its done seeds, for a diverged run its values and
    seed; a panel per stratum (`facet`).  None if no finished run was evaluated at two steps after the
    start."""
    values = curve_values(case.study)
    by = "tokens" if "tokens" in values else "step"  # imported runs may have no tokens
    if by not in values:
        return None
    values = values.assign(tokens=values[by])
    done = values[values["status"] == "done"]
    if not done[done["tokens"] > 0].groupby(["cell", "seed"])["tokens"].nunique().max() > 1:
        return None
    metrics = metrics_of(case.study)
    means = end_at_shares(over_seeds(done, ["cell", "tokens"]), case.study.manifest, metrics)
    means = means.sort_values("tokens", kind="stable")
    lost = values[values["status"] == "diverged"].rename(columns={"value": "mean"})
    lines = pandas.concat([means.assign(status="done"), lost])
    names = captions.lines_of(case)
    result = names.merge(lines, on="cell").reindex(columns=COLUMNS)
    name = naming.metric_name(case.study.manifest, *dict.fromkeys(metrics.values()))
    caption = f"{name}: {captions.band_text(result['n'])}; right: differences of means to the first configuration"
    if len(lost):
        caption += "; thin: a run that diverged"
    result.attrs = names.attrs | {"x": f"training {by.removesuffix('s')}s", "y": name, "caption": [caption]}
    return result


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row of two panels per facet: the curves on a log axis, and their differences to the first cell's."""
    looks = page.looks(table)
    facets = list(table.groupby("facet", sort=False))
    down = len(facets) * (2 if page.narrow else 1)
    figure = page.figure(table, 1.8 * down, page.legend(table))
    axes = figure.subplots(down, 2 * len(facets) // down, squeeze=False).reshape(-1, 2)
    for (facet, rows), (left, right) in zip(facets, axes, strict=True):
        after = rows[rows["tokens"] > 0]
        done = after[after["status"] == "done"]
        first = done[done["label"] == rows["label"].iloc[0]]
        late = []
        for label, line in done.groupby("label", sort=False):
            every = 1 + len(line) // 12
            band(left, line, "tokens", looks[str(label)], markevery=every)
            if len(first):
                change = line["mean"] - np.interp(line["tokens"], first["tokens"], first["mean"], right=np.nan)
                changes = line.assign(mean=change, low=change, high=change)
                band(right, changes, "tokens", looks[str(label)], markevery=every)
                late += list(change[line["tokens"] >= LATE * line["tokens"].max()])
        left.set_ylim(*limits(done[["low", "high"]]))
        right.set_ylim(*limits(late))
        diverged(left, after[after["status"] == "diverged"], "tokens", looks)
        left.set(title=facet, xlabel=f"{table.attrs['x']}, log scale", ylabel=on_two_lines(table.attrs["y"]))
        right.set(xlabel=table.attrs["x"], ylabel="difference\nto the first")
        right.locator_params(axis="x", nbins=5)
        log_axis(left.xaxis)
        left.xaxis.set_major_formatter(EngFormatter())
        right.xaxis.set_major_formatter(EngFormatter())
    return figure


KIND = Kind("the validation metric while training", table, draw)
