"""Diagnostics: gradients, attention and activations by layer and over steps (Wortsman 2023, figure 2; Shen 2020)."""

import math
import re
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from ablate.runs.study import Study
from analysis.case import Case
from analysis.case.learning_curves import over_seeds
from analysis.figures.draw import captions, style
from analysis.figures.draw.axes import bands_by_cell, legend, limits, lines_by_cell, log_axis
from analysis.figures.kind import Kind, Page

KINDS = {
    "grad_norm": "gradient norm",
    "attention_logit": "largest attention logit",
    "activation_rms": "activation RMS",
    "drift": "drift of running statistics",
}
TICKS = 6  # layers along x that are labelled
COLUMNS = ["facet", "side", "cell", "name", "step", "layer", "place", "seed", "mean", "low", "high", "n"]


def table(case: Case) -> pandas.DataFrame | None:
    """A row per point, by kind of diagnostic (`facet`), from the fixed batch of `train.diagnostics=true`.

    side is `steps` (the largest value over layers at each logged step), `layers` (each layer at the run's last logged
    step), both as means with `low` and `high` one SD over done seeds away, or `diverged` (the largest value by step of
    a diverged run, with n = 0).
    """
    logged = _logged(case.study)
    if logged.empty:
        return None
    largest = logged.groupby(["kind", "cell", "seed", "status", "step"], sort=False)["value"].max().reset_index()
    done, diverged = largest[largest["status"] == "done"], largest[largest["status"] == "diverged"]
    last = logged["step"] == logged.groupby(["cell", "seed"])["step"].transform("max")
    found = [
        over_seeds(done, ["kind", "cell", "step"]).assign(side="steps"),
        over_seeds(logged[last & (logged["status"] == "done")], ["kind", "cell", "layer"]).assign(side="layers"),
        diverged.rename(columns={"value": "mean"}).assign(side="diverged", n=0),
    ]
    made = pandas.concat([part for part in found if len(part)], ignore_index=True).reindex(columns=[*COLUMNS, "kind"])
    order = {cell: i for i, cell in enumerate(case.cells["cell"])}
    layers = sorted(made["layer"].dropna().unique(), key=_natural)
    made["name"] = made["cell"].map(case.cells.set_index("cell")["name"])
    made["facet"] = made["kind"].map(lambda kind: KINDS.get(kind, kind))
    made["place"] = made["layer"].map({layer: i for i, layer in enumerate(layers)})
    ranks = made["kind"].map({kind: i for i, kind in enumerate(KINDS)}).fillna(len(KINDS))
    sides = ["rank", "kind", "side", "order", "seed", "step", "place"]
    made = made.assign(rank=ranks, order=made["cell"].map(order)).sort_values(sides, kind="stable", ignore_index=True)
    made = made[COLUMNS]
    made.attrs = {"caption": captions.caption("diagnostics", case, made)}
    return made


def _logged(study: Study) -> pandas.DataFrame:
    """Every logged value of done and diverged runs: kind, layer, cell, seed, status, step, value."""
    columns = [name for name in study.curves if str(name).startswith("diag/")]
    if not columns:
        return pandas.DataFrame()
    whose = study.runs[["cell", "seed", "status"]]
    curves = study.curves[["cell", "seed", "step", *columns]].merge(whose, on=["cell", "seed"])
    long = curves.melt(["cell", "seed", "status", "step"], columns, "key", "value")
    long["value"] = pandas.to_numeric(long["value"], errors="coerce")
    long = long[np.isfinite(long["value"]) & long["status"].isin(["done", "diverged"])]
    pieces = long["key"].str.split("/", n=2)
    return long.assign(kind=pieces.str[1], layer=pieces.str[2].fillna(""), step=pandas.to_numeric(long["step"]))


def _natural(layer: str) -> list[Any]:
    """The sort key of a layer: embeddings first, blocks.2 before blocks.10."""
    parts = re.split(r"(\d+)", layer)
    return [not layer.startswith("embed"), *(int(part) if part.isdigit() else part for part in parts)]


def draw(table: pandas.DataFrame, page: Page) -> Figure:
    """A row of two panels per kind of diagnostic: over steps, and by layer at the end."""
    kinds = list(table.groupby("facet", sort=False))
    names = dict(zip(table["cell"], table["name"], strict=True))
    below = legend({name: page.encodings[cell] for cell, name in names.items()}, page)
    drawn = page.figure(table, 1.5 * len(kinds) + below.height + 0.3)
    axes = drawn.subplots(len(kinds), 2, squeeze=False)
    for (title, rows), (left, right) in zip(kinds, axes, strict=True):
        steps, diverged = rows[rows["side"] == "steps"], rows[rows["side"] == "diverged"]
        lines_by_cell(left, steps, "step", page)
        bands_by_cell(left, steps, "step", page, 0.13)
        lines_by_cell(left, diverged, "step", page, "seed", lw=0.6)
        for (cell, _), run in diverged.groupby(["cell", "seed"], sort=False):
            end = run.iloc[-1]
            left.plot(end["step"], end["mean"], "x", color=page.encodings[str(cell)].colour, ms=5, mew=1.3)
        shown = rows[rows["side"] == "layers"]
        layers = shown.drop_duplicates("layer").sort_values("place", kind="stable")["layer"].tolist()
        shown = shown.assign(at=shown["layer"].map({layer: i for i, layer in enumerate(layers)}))
        lines_by_cell(right, shown, "at", page, markers=True, ms=3)
        shades = [page.encodings[cell].colour for cell in shown["cell"]]
        right.vlines(shown["at"], shown["low"], shown["high"], colors=shades, lw=0.7)
        ticks = range(0, len(layers), math.ceil(len(layers) / TICKS) or 1)
        right.set_xticks(ticks, [_short(layers[i]) for i in ticks])
        if not layers:
            style.say(right, "no finished run")
        left.set_title(title)
        known = rows[rows["n"] > 0]
        least, most = known["mean"].min(), known["mean"].max()
        for axis in (left, right):
            if least > 0 and most / least > 30:
                log_axis(axis.yaxis, least / 1.5, most * 1.5)
            else:
                axis.set_ylim(*limits(known[["low", "high"]]))
    axes[-1][0].set_xlabel("step")
    axes[-1][1].set_xlabel("layer")
    below.draw(drawn)
    return drawn


def _short(layer: str) -> str:
    """A short name of a layer: blocks.3 is 3, blocks.3.norms.0 is 3.0."""
    return layer.replace("blocks.", "").replace("norms.", "").replace("_norm", "").replace("embed", "emb.")


KIND = Kind("gradients, attention logits, activations and statistics by layer", table, draw, most=12)
