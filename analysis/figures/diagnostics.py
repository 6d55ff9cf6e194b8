"""Diagnostics: gradients, attention and activations by layer and over steps (Wortsman 2023, figure 2; Shen 2020)."""

import numpy as np
import pandas
from matplotlib.figure import Figure

from ablate.runs.study import Study
from analysis.case import Case
from analysis.case.learning_curves import over_seeds
from analysis.figures import captions
from analysis.figures.axes import band, limits, log_axis
from analysis.figures.kind import Kind, Page

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
    done = values[values["status"] == "done"]
    last_steps = done.groupby(["cell", "seed"])["step"].transform("max")
    last = done[done["step"] == last_steps]
    steps = over_seeds(largest[largest["status"] == "done"], ["facet", "cell", "step"]).assign(panel="steps")
    by_layer = over_seeds(last, ["facet", "cell", "layer"]).assign(panel="layers")
    diverged = largest[largest["status"] == "diverged"].rename(columns={"value": "mean"}).assign(panel="diverged", n=0)
    result = pandas.concat([steps, by_layer, diverged], ignore_index=True)
    result["label"] = result["cell"].map(case.cells.set_index("cell")["name"])
    caption = (
        f"on one fixed batch, in evaluation mode; {captions.band_text(result['n'])}; left: the largest over layers"
    )
    caption += "; right: at the end" + ("; thin, ending in ×: a run that diverged" if len(diverged) else "")
    result = result.reindex(columns=COLUMNS)
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
    kinds = parts.str[1]
    return values.assign(facet=kinds.map(lambda kind: KINDS.get(kind, kind)), layer=parts.str[2])


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row of two panels per kind of diagnostic: over steps, and by layer at the end."""
    facets = list(table.groupby("facet", sort=False))
    figure = page.figure(table, 1.6 * len(facets), page.legend(table))
    axes = figure.subplots(len(facets), 2, squeeze=False, sharey="row")
    for (facet, rows), (left, right) in zip(facets, axes, strict=True):
        layers = list(rows["layer"].dropna().unique())
        rows = rows.assign(place=rows["layer"].map({layer: place for place, layer in enumerate(layers)}))
        for (panel, cell), line in rows.groupby(["panel", "cell"], sort=False):
            encoding = page.encodings[str(cell)]
            if panel == "steps":
                band(left, line, "step", encoding, marker="")
            elif panel == "layers":
                band(right, line, "place", encoding)
            else:
                for _, run in line.groupby("seed"):
                    left.plot(run["step"], run["mean"], "-x", color=encoding.colour, lw=0.6, markevery=[-1])
        means = rows.loc[rows["n"] > 0, "mean"]
        if means.min() > 0 and means.max() > TIMES * means.min():
            log_axis(left.yaxis)
            left.set_ylim(means.min() / 1.5, means.max() * 1.5)
        else:
            left.set_ylim(*limits(rows.loc[rows["n"] > 0, ["low", "high"]]))
        every = 1 + len(layers) // 7
        names = [layer.replace("blocks.", "").replace("norms.", "").replace("_norm", "") for layer in layers]
        right.set_xticks(range(0, len(layers), every), names[::every])
        left.set_title(facet)
    axes[-1][0].set_xlabel("step")
    axes[-1][1].set_xlabel("layer")
    return figure


KIND = Kind("gradients, attention logits, activations and statistics by layer", table, draw, most=12)
