"""Scores of a study's runs: the metric that each cell is compared by, seeds × cells, and a table of cells."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas

from ablate.config.depth import chosen_at
from ablate.config.schema import BY_STEPS
from ablate.evidence.contrasts import reference_cell, strata
from ablate.evidence.proportions import is_solved, wilson
from ablate.formatting import SPEED, counted, first_of
from ablate.runs.naming import directions, measured_as, named
from ablate.runs.records import SOLVED, STATUSES, Cell, Manifest, TaskFacts
from ablate.runs.study import Study

MIN_SEEDS_OF_CORRELATION = 3
SIZES = ("params", "params_vs_reference", "flops_per_token", "shared_draws")


# Metrics


def endpoint(manifest: Manifest) -> str:
    """The first cell's endpoint, at the last step of the schedule: see `endpoints`."""
    return next(iter(endpoints(manifest).values()))


def endpoints(manifest: Manifest) -> dict[str, str]:
    """By cell, the metric that it is compared by: its task's first on the test split.

    The manifest may name another endpoint, as those of tuning do.  With one task it is taken as it is.  With several
    its split holds for all; its metric, if no task has it first, replaces that of each task that has it.
    """
    if manifest.endpoint and len(manifest.tasks) == 1:  # in imported runs it may lack the form split/metric
        return {cell.id: str(manifest.endpoint) for cell in manifest.cells}
    split, _, requested = (manifest.endpoint or "test/").partition("/")
    metric_of_task = {name: str(next(iter(task.metrics))) for name, task in manifest.tasks.items()}
    if requested not in metric_of_task.values():
        for name, task in manifest.tasks.items():
            if measured_as(requested) in task.metrics:
                metric_of_task[name] = requested
    fallback = next(iter(metric_of_task.values()))
    return {cell.id: f"{split}/{metric_of_task.get(cell.task, fallback)}" for cell in manifest.cells}


def validated(manifest: Manifest) -> dict[str, str]:
    """By cell, its endpoint on the validation split; for the share solved, the metric that decides if a run did."""
    metrics = {cell: f"val/{metric.split('/')[-1]}" for cell, metric in endpoints(manifest).items()}
    return metrics | deciding_metrics(manifest, metrics)


def deciding_metrics(manifest: Manifest, metrics: dict[str, str]) -> dict[str, str]:
    """For each cell whose metric is the share solved, the metric that decides whether a run solved the task."""
    result = {}
    for cell in manifest.cells:
        metric = metrics.get(cell.id, "")
        if is_solved(metric):
            result[cell.id] = metric.replace(SOLVED, manifest.tasks[cell.task].measured)
    return result


def measures(manifest: Manifest) -> list[str]:
    """The metrics that cells are compared by: one, unless a study has several tasks."""
    return list(dict.fromkeys(endpoints(manifest).values()))


def metrics_of_cells(manifest: Manifest, metric: str | dict[str, str] | None = None) -> dict[str, str]:
    """The metric that each cell is scored by: its endpoint, unless one is given, for all or for each."""
    if metric is None:
        return endpoints(manifest)
    if isinstance(metric, str):
        return {cell.id: metric for cell in manifest.cells}
    return metric


def lower_is_better(manifest: Manifest, metric: str) -> bool:
    """Whether lower values of a metric, at any length, are better according to the study's tasks."""
    if metric in SPEED:
        return SPEED[metric] == "min"
    name = measured_as(metric)
    ways = directions(manifest.tasks.values())
    if name not in ways:
        raise ValueError(f"no direction is known for {metric}; the tasks have {', '.join(ways)}")
    return ways[name] == "min"


def is_share(task: TaskFacts, metric: str) -> bool:
    """Whether a metric, at any length, is a share: in [0, 1] and best at 1."""
    return metric.split("/")[-1].split("@")[0] in task.shares


# Scores


def scores(study: Study, metric: str | dict[str, str] | None = None) -> pandas.DataFrame:
    """The metric of the runs with status done: a row per seed, a column per cell, NaN for all other runs.  Without
    `metric` each cell is scored by its endpoint.  Raises ValueError for two runs of one cell and seed."""
    runs = study.runs
    metrics = metrics_of_cells(study.manifest, metric)
    deciding = deciding_metrics(study.manifest, metrics)
    values = values_of(runs, metrics | deciding)
    values = values.where(runs["status"].eq("done") & np.isfinite(values))
    if deciding:
        values = values.mask(runs["cell"].isin([*deciding]), solved_or_not(study, values))
    table = pandas.DataFrame({"seed": runs["seed"], "cell": runs["cell"], "score": values})
    if table.duplicated(["seed", "cell"]).any():
        raise ValueError("a cell has two runs with one seed")
    by_seed = table.pivot(index="seed", columns="cell", values="score")
    return by_seed.reindex(columns=pandas.Index(list(metrics), name="cell"))


def values_of(table: pandas.DataFrame, metrics: dict[str, str]) -> pandas.Series:
    """Each row's value of its cell's metric, NaN where it has none."""
    metric_of_row = table["cell"].map(metrics)
    values = pandas.Series(np.nan, table.index)
    for metric in set(metrics.values()):
        if metric in table:
            values = values.mask(metric_of_row.eq(metric), pandas.to_numeric(table[metric], errors="coerce"))
    return values.astype(float)


def solved_or_not(study: Study, values: pandas.Series) -> pandas.Series:
    """1 for a run whose deciding metric reaches the threshold of its task, else 0, also for a diverged run; NaN for a
    run without a value and where the task has no threshold."""
    runs = study.runs
    thresholds = {cell.id: study.manifest.tasks[cell.task].solved_at for cell in study.manifest.cells}
    threshold = runs["cell"].map(thresholds).astype(float)
    solved = (values >= threshold).astype(float).where(values.notna())
    solved = solved.mask(runs["status"].eq("diverged"), 0.0)
    return solved.where(threshold.notna())


@dataclass(frozen=True)
class StudyScores:
    """A study's scores with the metric of each cell, computed once for all of its contrasts."""

    study: Study
    cells: dict[str, Cell]
    metrics: dict[str, str]
    lower_is_better: dict[str, bool]
    values: pandas.DataFrame  # a row per seed, a column per cell, NaN where a run has no number
    ranked: pandas.DataFrame  # the same with diverged runs infinitely bad: for ranks only, never for a mean
    trained: pandas.DataFrame  # the scores by each cell's endpoint, that is, on the task it was trained on
    run_counts: Counter[tuple[str, str]]  # the number of runs by cell and status

    def count(self, status: str, cells: Iterable[str]) -> int:
        """The number of runs of these cells with a status."""
        return sum(self.run_counts[cell, status] for cell in cells)


def study_scores(study: Study, metric: str | dict[str, str] | None = None) -> StudyScores:
    """The scores of a study by each cell's endpoint, by one metric, or by one for each cell."""
    manifest = study.manifest
    values = scores(study, metric)
    metrics = metrics_of_cells(manifest, metric)
    lower = {cell: lower_is_better(manifest, name) for cell, name in metrics.items()}
    ranked = values.copy()
    diverged = study.runs[study.runs["status"] == "diverged"]
    for cell, seed in zip(diverged["cell"], diverged["seed"], strict=True):
        if not is_solved(metrics[cell]):
            ranked.loc[seed, cell] = math.inf if lower[cell] else -math.inf
    return StudyScores(
        study=study,
        cells={cell.id: cell for cell in manifest.cells},
        metrics=metrics,
        lower_is_better=lower,
        values=values,
        ranked=ranked,
        trained=values if metric is None else scores(study),
        run_counts=Counter(zip(study.runs["cell"], study.runs["status"], strict=True)),
    )


def second_metric(cell: str, metric: str) -> str:
    """The id of the copy of a cell that is scored by the second of two metrics."""
    return f"{cell} by {metric}"


def scores_by_two_metrics(study: Study, first: str, second: str) -> StudyScores:
    """A study's scores by one metric and, in copies of all cells named by `second_metric`, by another.  Both scores of
    a cell come from the same runs, so their difference is taken within seeds."""
    copies = {cell.id: second_metric(cell.id, second) for cell in study.manifest.cells}
    cells = [*study.manifest.cells, *(replace(cell, id=copies[cell.id]) for cell in study.manifest.cells)]
    copied_runs = study.runs.assign(cell=study.runs["cell"].map(copies))
    runs = pandas.concat([study.runs, copied_runs], ignore_index=True)
    doubled = replace(study, manifest=replace(study.manifest, cells=cells), runs=runs)
    return study_scores(doubled, dict.fromkeys(copies, first) | dict.fromkeys(copies.values(), second))


# The table of cells


def cells(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per cell: status counts, mean and SD of the metric over done seeds, Wilson's 95 % interval of divergence.

    Rows are in the order of the strata.  `name` is the label with the reference marked; `correlation` is Pearson's over
    seeds with the stratum's reference, if both have the same batches; `metric` is the cell's endpoint unless one is
    given.  A matched study adds `match`, the key (`chosen`) and value that were adjusted, and `match_difference`, the
    remaining difference as a share of the reference's quantity.  Runs that started from pretrained vectors add
    `vectors_seconds`, the mean time that training those took.
    """
    manifest = study.manifest
    values = scores(study, metric)
    metrics = metrics_of_cells(manifest, metric)
    run_counts = Counter(zip(study.runs["cell"], study.runs["status"], strict=True))
    rows = []
    for stratum, members in strata(manifest):
        reference = reference_cell(members)
        for cell in members:
            is_marked = cell.reference and len(manifest.cells) > 1
            scored = values[cell.id]
            counts = {status: run_counts[cell.id, status] for status in STATUSES}
            diverged_low, diverged_high = wilson(counts["diverged"], counts["diverged"] + counts["done"])
            row = {
                "name": f"{cell.label} (reference)" if is_marked else cell.label,
                "cell": cell.id,
                "label": cell.label,
                "stratum": stratum,
                "reference": cell.reference,
                "runs": sum(counts.values()),
                **counts,
                "n": scored.count(),
                "mean": scored.mean(),
                "sd": scored.std(),
                "diverged_low": diverged_low,
                "diverged_high": diverged_high,
                **{size: getattr(cell, size) for size in SIZES},
                **matched(manifest, cell),
            }
            if manifest.tuning:
                tuned = manifest.tuning.cells[cell.id]
                row |= {"tuned": manifest.tuning.key, "tuned_value": tuned.value, "tuned_at_edge": tuned.edge}
            row["notes"] = "; ".join(cell.notes)
            if "vectors_seconds" in study.runs:
                row["vectors_seconds"] = study.runs.loc[study.runs["cell"] == cell.id, "vectors_seconds"].mean()
            row["correlation"] = math.nan
            if reference and cell is not reference and cell.batches == reference.batches:
                row["correlation"], _ = pairing(values[cell.id].to_numpy(), values[reference.id].to_numpy())
            row["metric"] = metrics[cell.id]
            rows.append(row)
    table = pandas.DataFrame(rows)
    unknown = [size for size in SIZES if table[size].isna().all()]  # of another program's runs
    return table.drop(columns=unknown)


def pairing(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Pearson's correlation r over the seeds that both have, and the variance of the paired difference as a multiple of
    that of unpaired seeds, Var(one − other) / (Var(one) + Var(other)); NaN below three and where one has no spread."""
    complete = np.isfinite(one) & np.isfinite(other)
    one = one[complete]
    other = other[complete]
    if len(one) < MIN_SEEDS_OF_CORRELATION or not np.ptp(one) or not np.ptp(other):
        return math.nan, math.nan
    ratio = np.var(one - other) / (np.var(one) + np.var(other))
    return float(np.corrcoef(one, other)[0, 1]), float(ratio)


def matched(manifest: Manifest, cell: Cell) -> dict[str, Any]:
    """What matching chose for a cell, and the remaining difference; empty if the study was not matched."""
    if manifest.match == "none" or cell.matched is None:
        return {}
    chosen = "train.steps" if manifest.match == BY_STEPS else "ffn.hidden"
    return {
        "match": manifest.match,
        "chosen": chosen,
        "chosen_value": chosen_at(cell.planned_config.as_json(), chosen.split(".")),
        "match_difference": cell.matched.difference,
    }


# Overfitting


def overfit(study: Study) -> pandas.Series:
    """By run, final over lowest validation loss if that rose while training loss fell; NaN for other runs."""
    if "overfits" not in study.runs:
        return pandas.Series(math.nan, study.runs.index)
    times = pandas.to_numeric(study.runs["overfits"], errors="coerce")
    return times.where(study.runs["status"] == "done")


def overfitting(study: Study) -> str:
    """A sentence on the runs that overfit; "" if none did."""
    times = overfit(study).dropna()
    if times.empty:
        return ""
    counts = study.runs.loc[times.index, "label"].value_counts(sort=False)
    labels = first_of((f"{label} ({count})" for label, count in counts.items()), 4)
    validation_loss = named(study.manifest, "val/loss")
    training_loss = named(study.manifest, "train/loss")
    end = f"{validation_loss} ends up to {times.max():.2f} times its lowest while {training_loss} fell"
    return f"overfits: {counted(len(times), 'run')}: {labels}: {end}; a note, the numbers stand"
