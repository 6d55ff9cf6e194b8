"""Learning curves: each run's metric during training, and the mean over seeds."""

import numpy as np
import pandas

from ablate import evidence
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import is_timed

AXES = ("step", "tokens", "seconds")


def metrics_of(study: Study) -> dict[str, str]:
    """The metric of each cell's curve: on the validation split, or the endpoint if only that was logged."""
    own, names = evidence.endpoints(study.manifest), evidence.validated(study.manifest)
    there = set(study.curves)
    return {cell: own[cell] if name not in there and own[cell] in there else name for cell, name in names.items()}


def logged(study: Study, *more: str) -> pandas.DataFrame:
    """The logged values of their cell's metric: cell, seed, status, value, and axes; of done and diverged runs, and of
    those with one of `more` statuses.

    Axes are step and tokens, if they were logged, and for timed runs the seconds of their training steps, without
    evaluation and compilation.
    """
    curves, metrics = study.curves, metrics_of(study)
    axes = [axis for axis in AXES if axis in curves and curves[axis].notna().any()]
    axes = [axis for axis in axes if axis != "seconds" or (is_timed(study.manifest) and "step" in axes)]
    if not axes or not set(metrics.values()) & set(curves):
        return pandas.DataFrame()
    rows = curves[["cell", "seed"]].assign(value=evidence.values_of(curves, metrics))
    rows[axes] = curves[axes].apply(pandas.to_numeric, errors="coerce")
    took = ["train/step_seconds"] * ("seconds" in axes)
    rows = rows.merge(study.runs[["cell", "seed", "status", *took]], on=["cell", "seed"])
    for name in took:
        rows["seconds"] = rows["step"] * rows.pop(name).astype(float)
    known = np.isfinite(rows["value"]) & rows["status"].isin(["done", "diverged", *more])
    # A diverged run's last row may have no finite loss, but it marks where the run ended.
    ends = (rows["status"] == "diverged") & ~rows.duplicated(["cell", "seed"], keep="last")
    return rows[known | ends]


def over_seeds(rows: pandas.DataFrame, by: list[str], also: tuple[str, ...] = ()) -> pandas.DataFrame:
    """Mean of `value` with `low` and `high` one SD away, and the means of `also`; SD is 0 for one seed.  It has a row
    for each group in which all of a cell's seeds have a value."""
    means = {name: (name, "mean") for name in also}
    found = rows.groupby(by, sort=False).agg(mean=("value", "mean"), sd=("value", "std"), n=("value", "count"), **means)
    found = found.reset_index().fillna({"sd": 0.0})
    whole = found["n"] == found["cell"].map(rows.groupby("cell")["seed"].nunique())
    return found.assign(low=found["mean"] - found["sd"], high=found["mean"] + found["sd"])[whole]


def end_at_shares(found: pandas.DataFrame, manifest: Manifest, metrics: dict[str, str]) -> pandas.DataFrame:
    """Means over seeds with the bands of shares clipped to [0, 1], unless the values are in per cent."""
    found = found.copy()
    for metric, own in found.groupby(found["cell"].map(metrics)):
        if any(evidence.is_share(task, str(metric)) for task in manifest.tasks.values()) and own["mean"].max() <= 1:
            found.loc[own.index, ["low", "high"]] = own[["low", "high"]].clip(0, 1)
    return found
