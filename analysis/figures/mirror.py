"""Mirror: the paper's figure or table, from `mirror` of the study file, beside this study's numbers."""

import math
from collections.abc import Mapping
from typing import Any

import pandas
from matplotlib.figure import Figure

from ablate import evidence
from ablate.config.mirror import EPOCH, LENGTHS
from ablate.formatting import flat
from ablate.runs import naming
from ablate.runs.records import Manifest
from analysis.case import Case
from analysis.case.learning_curves import with_band
from analysis.figures import captions, curves, lines
from analysis.figures.axes import band, limits, log_axis, value_axis
from analysis.figures.kind import Kind, Page

LOSSES = ("loss", "perplexity", "nats", "bits")  # a perplexity is a loss, too
TIMES = 8  # the y axis is logarithmic if values grow by more than this factor
AXES = {EPOCH: "share of training", LENGTHS: "length at evaluation / at training", None: ""}


def table(case: Case) -> pandas.DataFrame | None:
    """A row per point of the paper and of this study, a label per series, a panel for each; `x` is over the length of
    training for epochs and lengths.  None where the paper prints no numbers, or measures another kind of metric than
    this study."""
    manifest = case.study.manifest
    mirror = manifest.mirror
    if mirror is None or is_loss(mirror.metric) != is_loss(evidence.endpoint(manifest)):
        return None
    ours = points(case, mirror.x)
    if ours is None or ours["mean"].isna().all():
        return None
    usual = {name: levels[0] for name, levels in manifest.factors.items() if name != mirror.x}
    usual |= manifest.reference | mirror.at
    published = []
    measured = []
    for place, series in enumerate(mirror.series):
        label = " + ".join(naming.assigned(manifest, *pair) for pair in series.of.items())
        cells = cells_with(manifest, usual | series.of)
        if not cells:
            continue
        value = math.nan if series.value is None else series.value
        rows = pandas.DataFrame(series.points or [(place, value)], columns=["x", "mean"], dtype=float)
        rows["x"] /= mirror.trained or 1
        published.append(rows.assign(cell=cells[0], label=label, facet=mirror.source, y=mirror.metric))
        rows = ours[ours["cell"].isin(cells)].fillna({"x": place})
        measured.append(rows.assign(label=label, facet="this study", y=captions.axis_label(case.study)))
    if not any(rows["mean"].notna().any() for rows in published):
        return None
    caption = f"open: published, {mirror.source}; this study: mean ± 1 SD over seeds"
    result = pandas.concat([*published, *measured], ignore_index=True)
    result = result[["facet", "cell", "label", "x", "mean", "low", "high", "y"]]
    result.attrs = {"x": AXES.get(mirror.x, naming.key_name(manifest, str(mirror.x))), "caption": [caption]}
    return result


def is_loss(metric: str) -> bool:
    """Whether less of a metric is better."""
    return any(word in metric.lower() for word in LOSSES)


def cells_with(manifest: Manifest, wanted: Mapping[str, Any]) -> list[str]:
    """The ids of the cells with these levels of factors, or values of keys in their configurations."""
    ids = []
    for cell in manifest.cells:
        settings = flat(cell.planned_config.as_json()) | cell.levels
        if all(name in settings and settings[name] == level for name, level in wanted.items()):
            ids.append(cell.id)
    return ids


def points(case: Case, x: str | None) -> pandas.DataFrame | None:
    """This study's points, from the tables of other figures.  `x` is a factor, EPOCH or LENGTHS; without it, the
    one value of each cell."""
    if x is None:
        return with_band(case.cells).assign(x=math.nan)
    if x == EPOCH:
        result = curves.table(case)
        if result is not None:
            result = result[result["status"] == "done"]
            result = result.assign(x=result["tokens"] / result.groupby("cell")["tokens"].transform("max"))
        return result
    if x == LENGTHS:
        result = lines.extrapolation(case)
        return None if result is None else result.assign(x=result["x"] / result["trained"])
    return lines.lines(case, x)


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The paper's panel and this study's, side by side; on a narrow page one above the other."""
    looks = page.looks(table)
    figure, panels = page.panels(table, 2.0, page.legend(table), across=2)
    x = table.attrs["x"]
    for axis, rows in panels:
        for label, line in rows.groupby("label", sort=False):
            encoding = looks[str(label)]
            band(axis, line, "x", encoding, mfc="white" if line["low"].isna().all() else encoding.colour)
            if not x:
                axis.vlines(line["x"], line["low"], line["high"], color=encoding.colour)
                axis.set_xticks([])
        axis.set_ylim(*limits(rows[["low", "high", "mean"]]))
        if x not in AXES.values():
            value_axis(axis, rows["x"], 8)
        if x and rows["mean"].max() > TIMES * rows["mean"].min() > 0:
            log_axis(axis.yaxis)
        axis.set(xlabel=x, ylabel=page.wrap(rows["y"].iloc[0], 0.4))
    return figure


KIND = Kind("the paper's figure beside this study's", table, draw)
