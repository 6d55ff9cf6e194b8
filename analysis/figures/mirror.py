"""Mirror: the paper's figure or table, from `mirror` of the study file, beside this study's numbers."""

import math

import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.config.mirror import EPOCH, LENGTHS
from ablate.formatting import flat
from ablate.runs import naming
from analysis.case import Case
from analysis.case.learning_curves import with_band
from analysis.figures import captions, curves, lines
from analysis.figures.axes import band, limits, log_axis, value_axis
from analysis.figures.kind import Kind, Page

LOSSES = ("loss", "perplexity", "nats", "bits")  # a perplexity is a loss, too
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
    unit = mirror.trained or 1
    theirs = []
    mine = []
    absent = []
    for place, series in enumerate(mirror.series):
        label = " + ".join(naming.assigned(manifest, *pair) for pair in series.of.items())
        levels = (usual | series.of).items()  # of factors, or of keys that the command line has fixed
        cells = [c.id for c in manifest.cells if levels <= (flat(c.planned_config.as_json()) | c.levels).items()]
        if not cells:
            absent.append(label)
            continue
        value = math.nan if series.value is None else series.value
        rows = pandas.DataFrame(series.points or [(place * unit, value)], columns=["x", "mean"], dtype=float)
        theirs.append(rows.assign(x=rows["x"] / unit, cell=cells[0], label=label, facet=mirror.source, y=mirror.metric))
        mine.append(ours[ours["cell"].isin(cells)].fillna({"x": place}).assign(label=label, facet="this study"))
    if not any(rows["mean"].notna().any() for rows in theirs):
        return None
    caption = f"open: published, {mirror.source}; this study: mean ± 1 SD over seeds"
    if absent:
        caption += f"; published, without configurations here: {formatting.listed(absent)}"
    result = pandas.concat([*theirs, *mine], ignore_index=True)
    result = result[["facet", "cell", "label", "x", "mean", "low", "high", "y"]]
    result.attrs = {"x": AXES.get(mirror.x, naming.key_name(manifest, str(mirror.x))), "caption": [caption]}
    return result


def is_loss(metric: str) -> bool:
    """Whether less of a metric is better."""
    return any(word in metric.lower() for word in LOSSES)


def points(case: Case, x: str | None) -> pandas.DataFrame | None:
    """The points of all cells, from the tables of other figures; without x, each cell's one value."""
    if x is None:
        result = with_band(case.cells).assign(x=math.nan)
    elif x == EPOCH:
        result = curves.table(case)
    else:
        result = lines.extrapolation(case) if x == LENGTHS else lines.lines(case, x)
    if result is None:
        return None
    if x == EPOCH:
        result = result[result["status"] == "done"]
        result = result.assign(x=result["tokens"] / result.groupby("cell")["tokens"].transform("max"))
    if x == LENGTHS:
        result = result.assign(x=result["x"] / result["trained"])
    return result.assign(y=captions.axis_label(case.study))


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """The paper's panel and this study's, side by side; on a narrow page one above the other."""
    figure, panels = page.panels(table, 2.0, page.legend(table), across=2)
    for axis, rows in panels:
        for _, line in rows.groupby("label", sort=False):
            encoding = page.encodings[line["cell"].iloc[0]]
            band(axis, line, "x", encoding, mfc="white" if line["low"].isna().all() else encoding.colour)
            if not table.attrs["x"]:
                axis.vlines(line["x"], line["low"], line["high"], color=encoding.colour)
                axis.set_xticks([])
        axis.set_ylim(*limits(rows[["low", "high", "mean"]]))
        if table.attrs["x"] not in AXES.values():
            value_axis(axis, rows["x"], 8)
        if table.attrs["x"] and rows["mean"].max() > lines.TIMES * rows["mean"].min() > 0:
            log_axis(axis.yaxis)
        axis.set(xlabel=table.attrs["x"], ylabel=page.wrap(rows["y"].iloc[0], 0.4))
    return figure


KIND = Kind("the paper's figure beside this study's", table, draw, most=200)
