"""What runs logged of their metric while they trained, and its mean over seeds."""

from __future__ import annotations

import numpy as np
import pandas

from ablate import evidence
from ablate.results.study import Study

AXES = ("step", "tokens", "seconds")


def metrics_of(study: Study) -> dict[str, str]:
    """Of each cell the validation metric, or its endpoint where that alone was logged."""
    own, names = evidence.endpoints(study.manifest), evidence.validated(study.manifest)
    there = set(study.curves)
    return {cell: own[cell] if name not in there and own[cell] in there else name for cell, name in names.items()}


def logged(study: Study) -> pandas.DataFrame:
    """What done and diverged runs logged of the metric of their cell: cell, seed, status, value, and axes.

    Axes are those of step, tokens and seconds that were logged.  Seconds count from the first row, since how long a
    start took is no part of training, and are there only where each run had the machine for itself.
    """
    curves, metrics = study.curves, metrics_of(study)
    axes = [axis for axis in AXES if axis in curves and curves[axis].notna().any()]
    axes = [axis for axis in axes if axis != "seconds" or study.manifest.timing == "isolated"]
    if not axes or not set(metrics.values()) & set(curves):
        return pandas.DataFrame()
    rows = curves[["cell", "seed"]].assign(value=evidence.values_of(curves, metrics))
    rows[axes] = curves[axes].apply(pandas.to_numeric, errors="coerce")
    if "seconds" in axes:
        rows["seconds"] -= rows.groupby(["cell", "seed"])["seconds"].transform("min")
    rows = rows.merge(study.runs[["cell", "seed", "status"]], on=["cell", "seed"])
    known = np.isfinite(rows["value"]) & rows["status"].isin(["done", "diverged"])
    # A diverged run's last row may hold no finite loss; it still says where the run ended.
    ends = (rows["status"] == "diverged") & ~rows.duplicated(["cell", "seed"], keep="last")
    return rows[known | ends]


def over_seeds(rows: pandas.DataFrame, by: list[str], also: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Mean of `value` with `low` and `high` one SD away, and the means of `also`; SD is 0 for one seed.

    A row for each group where all of a cell's seeds have a value.
    """
    means = {name: (name, "mean") for name in also}
    found = rows.groupby(by, sort=False).agg(mean=("value", "mean"), sd=("value", "std"), n=("value", "count"), **means)
    found = found.reset_index().fillna({"sd": 0.0})
    whole = found["n"] == found["cell"].map(rows.groupby("cell")["seed"].nunique())
    return found.assign(low=found["mean"] - found["sd"], high=found["mean"] + found["sd"])[whole]
