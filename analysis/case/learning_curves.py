"""Learning curves: each run's metric during training, and the mean over seeds."""

import numpy as np
import pandas

from ablate import evidence
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows

AXES = ("step", "tokens")


def metrics_of(study: Study) -> dict[str, str]:
    """The metric of each cell's curve: on the validation split, or the endpoint if only that was logged."""
    metrics = evidence.validated(study.manifest)
    for cell, endpoint in evidence.endpoints(study.manifest).items():
        if metrics[cell] not in study.curves and endpoint in study.curves:
            metrics[cell] = endpoint
    return metrics


def curve_values(study: Study, *further_statuses: str) -> pandas.DataFrame:
    """A row per logged step of a run, with its cell, seed, status, axes, and as `value` its cell's metric: of done and
    diverged runs, and of runs with one of the further statuses.  Empty if no run logged a metric and an axis."""
    curves = study.curves
    metrics = metrics_of(study)
    axes = [axis for axis in AXES if axis in curves and curves[axis].notna().any()]
    has_metric = any(metric in curves for metric in metrics.values())
    if not axes or not has_metric:
        return pandas.DataFrame()
    rows = curves[["cell", "seed"]].assign(value=evidence.values_of(curves, metrics))
    rows[axes] = curves[axes].apply(pandas.to_numeric, errors="coerce")
    rows = rows.merge(study.runs, on=["cell", "seed"], suffixes=("", " of run"))
    columns = ["cell", "seed", "value", *axes, "status"]
    is_finite = np.isfinite(rows["value"].astype(float))
    has_status = rows["status"].isin(["done", "diverged", *further_statuses])
    # A diverged run's last row may have no finite loss, but it marks where the run ended.
    is_end = (rows["status"] == "diverged") & ~rows.duplicated(["cell", "seed"], keep="last")
    return rows.loc[(is_finite & has_status) | is_end, columns]


def over_seeds(rows: pandas.DataFrame, by: list[str]) -> pandas.DataFrame:
    """Mean of `value` with `low` and `high` one SD away; SD is 0 for one seed.  It has a row for each group in which
    all of a cell's seeds have a value."""
    groups = rows.groupby(by, sort=False)
    means = groups["value"].agg(mean="mean", sd="std", n="count").reset_index()
    seeds = means["cell"].map(rows.groupby("cell")["seed"].nunique())
    return with_band(means[means["n"] == seeds])


def with_band(table: pandas.DataFrame) -> pandas.DataFrame:
    """The table with `low` and `high` one SD below and above the mean; the SD of one value is 0."""
    sd = table["sd"].fillna(0.0)
    return table.assign(low=table["mean"] - sd, high=table["mean"] + sd)


def end_at_shares(table: pandas.DataFrame, manifest: Manifest, metrics: dict[str, str]) -> pandas.DataFrame:
    """Means over seeds with the bands of shares clipped to [0, 1], unless the values are in per cent; of runs that are
    solved or not, Wilson's 95 % intervals."""
    table = table.copy()
    for metric, rows in table.groupby(table["cell"].map(metrics)):
        is_share = any(evidence.is_share(task, str(metric)) for task in manifest.tasks.values())
        if evidence.is_solved(str(metric)):
            intervals = [
                evidence.wilson(round(row.mean * row.n), row.n) if row.n else (np.nan, np.nan)
                for row in named_rows(rows)
            ]
            table.loc[rows.index, ["low", "high"]] = intervals
        elif is_share and rows["mean"].max() <= 1:
            table.loc[rows.index, ["low", "high"]] = rows[["low", "high"]].clip(0, 1)
    return table
