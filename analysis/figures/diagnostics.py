"""Diagnostics: gradients, attention and activations by layer and over steps (Wortsman 2023, figure 2; Shen 2020)."""

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate.runs.study import Study
from analysis.case import Case
from analysis.case.learning_curves import over_seeds
from analysis.figures import captions
from analysis.figures.axes import band, diverged, limits, log_axis
from analysis.figures.kind import Kind, Page
from analysis.figures.style import Encoding

KINDS = {
    "grad_norm": "gradient norm",
    "attention_logit": "largest attention logit",
    "activation_rms": "activation RMS",
    "drift": "drift of running statistics",
}
TIMES = 30  # the axis is logarithmic if values span more than this factor
COLUMNS = ["facet", "panel", "cell", "label", "step", "layer", "seed", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per point, by kind of diagnostic (`facet`), from the fixed batch of `train.diagnostics=true`.

    panel is `steps` (the largest value over layers at each logged step), `layers` (each layer at the run's last logged
    step), both as means with `low` and `high` one SD over done seeds away, or `diverged` (the largest value by step of
    a diverged run, with n = 0).
    """
    values = diagnostic_values(case.study)
    if values.empty:
        return None
    largest = values.groupby(["facet", "cell", "seed", "status", "step"], sort=False)["value"].max().reset_index()
    steps = over_seeds(largest[largest["status"] == "done"], ["facet", "cell", "step"])
    done = values[values["status"] == "done"]
    last = done[done["step"] == done.groupby(["cell", "seed"])["step"].transform("max")]
    layers = over_seeds(last, ["facet", "cell", "layer"])
    lost = largest[largest["status"] == "diverged"].rename(columns={"value": "mean"}).assign(n=0)
    parts = [steps.assign(panel="steps"), layers.assign(panel="layers"), lost.assign(panel="diverged")]
    result = pandas.concat(parts, ignore_index=True)
    result["label"] = result["cell"].map(case.cells.set_index("cell")["name"])
    result = result.reindex(columns=COLUMNS)
    band_text = captions.band_text(result["n"])
    caption = f"on one fixed batch, in evaluation mode; {band_text}; left: the largest over layers; right: at the end"
    if len(lost):
        caption += "; thin: a run that diverged"
    result.attrs = {"caption": [caption]}
    return result


def diagnostic_values(study: Study) -> pandas.DataFrame:
    """A row per finite value in the columns `diag/KIND/LAYER` of the curves, with its run's status; empty if there is
    none."""
    columns = [name for name in study.curves if str(name).startswith("diag/")]
    if not columns:
        return pandas.DataFrame()
    curves = study.curves.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    values = curves.melt(["cell", "seed", "status", "step"], columns, "key", "value")
    values["value"] = pandas.to_numeric(values["value"], errors="coerce")
    values = values[np.isfinite(values["value"])]
    if values.empty:
        return values
    parts = values["key"].str.split("/", n=2)
    return values.assign(facet=parts.str[1].replace(KINDS), layer=parts.str[2])


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row of two panels per kind of diagnostic: over steps, and by layer at the end."""
    looks = page.looks(table)
    facets = list(table.groupby("facet", sort=False))
    figure = page.figure(table, 1.6 * len(facets), page.legend(table))
    axes = figure.subplots(len(facets), 2, squeeze=False, sharey="row")
    for (facet, rows), (left, right) in zip(facets, axes, strict=True):
        for label, line in rows[rows["panel"] == "steps"].groupby("label", sort=False):
            band(left, line, "step", looks[str(label)], markevery=1 + len(line) // 8)
        diverged(left, rows[rows["panel"] == "diverged"], "step", looks)
        draw_layers(right, rows[rows["panel"] == "layers"], looks)
        means = rows[rows["n"] > 0]
        if means["mean"].min() > 0 and means["mean"].max() > TIMES * means["mean"].min():
            log_axis(left.yaxis)
            left.set_ylim(means["mean"].min() / 1.5, means["mean"].max() * 1.5)  # a band may end below zero
        else:
            left.set_ylim(*limits(means[["low", "high"]]))
        left.set_title(facet)
    axes[-1][0].set_xlabel("step")
    axes[-1][1].set_xlabel("layer")
    return figure


def draw_layers(axis: Axes, rows: pandas.DataFrame, looks: dict[str, Encoding]) -> None:
    """A line with its band per label over the layers in their order; of many layers, some are named."""
    layers = list(rows["layer"].unique())
    for label, line in rows.groupby("label", sort=False):
        band(axis, line.assign(place=line["layer"].map(layers.index)), "place", looks[str(label)])
    names = [layer.replace("blocks.", "").replace("norms.", "").replace("_norm", "") for layer in layers]
    every = 1 + len(layers) // 7
    axis.set_xticks(range(0, len(layers), every), names[::every])


KIND = Kind("gradients, attention logits, activations and statistics by layer", table, draw)
