"""Scores of a study's runs: the endpoint, a table of cells, what tuning chose, notes on looks and on overfitting."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas

from ablate import formatting
from ablate.config.depth import chosen_at
from ablate.config.schema import BY_STEPS
from ablate.evidence.contrasts import contrasts, strata
from ablate.evidence.exact import is_solved
from ablate.evidence.statistics import correlated, paired, wilson
from ablate.formatting import SPEED, counted, first_of
from ablate.results.naming import key_name, measured_as, named
from ablate.results.records import SOLVED, STATUSES, Cell, Manifest, TaskFacts
from ablate.results.study import Study

SIZES = ("params", "params_vs_reference", "flops_per_token", "shared_draws")


def endpoint(manifest: Manifest) -> str:
    """The first cell's endpoint, at the last step of the schedule: see `endpoints`."""
    return next(iter(endpoints(manifest).values()))


def endpoints(manifest: Manifest) -> dict[str, str]:
    """By cell, the metric that it is compared by: its task's first on the test split, unless the manifest names another
    endpoint, as those of tuning do; one that is no task's first metric is used for every task that has it."""
    if manifest.endpoint and len(manifest.tasks) == 1:  # in imported runs it may lack the form split/metric
        return {cell.id: str(manifest.endpoint) for cell in manifest.cells}
    split, _, wanted = (manifest.endpoint or "test/").partition("/")
    named = {name: str(next(iter(task.metrics))) for name, task in manifest.tasks.items()}
    if wanted not in named.values():
        named |= {name: wanted for name, task in manifest.tasks.items() if measured_as(wanted) in task.metrics}
    fallback = next(iter(named.values()))
    return {cell.id: f"{split}/{named.get(cell.task, fallback)}" for cell in manifest.cells}


def validated(manifest: Manifest) -> dict[str, str]:
    """By cell, its endpoint on the validation split; for the share solved, the metric that decides if a run did."""
    found = {cell: f"val/{metric.split('/')[-1]}" for cell, metric in endpoints(manifest).items()}
    return found | _measured(manifest, found)


def _measured(manifest: Manifest, metrics: dict[str, str]) -> dict[str, str]:
    """For each cell whose metric is the share solved, the metric that decides whether a run solved the task."""
    first = {cell.id: manifest.tasks[cell.task].measured for cell in manifest.cells if cell.task in manifest.tasks}
    return {cell: name.replace(SOLVED, first[cell]) for cell, name in metrics.items() if is_solved(name)}


def measures(manifest: Manifest) -> list[str]:
    """The metrics that cells are compared by: one, unless a study has several tasks."""
    return list(dict.fromkeys(endpoints(manifest).values()))


def lower_is_better(manifest: Manifest, metric: str) -> bool:
    """Whether lower values of a metric, at any length, are better according to the study's tasks."""
    name = measured_as(metric)
    known = {key: way for task in manifest.tasks.values() for key, way in task.metrics.items()}
    if metric in SPEED:
        return SPEED[metric] == "min"
    if name not in known:
        raise ValueError(f"no direction is known for {metric}; the tasks have {', '.join(known)}")
    return bool(known[name] == "min")


def is_share(task: TaskFacts, metric: str) -> bool:
    """Whether a metric, at any length, is a share: in [0, 1] and best at 1."""
    return metric.split("/")[-1].split("@")[0] in task.shares


def by_cell(manifest: Manifest, metric: str | dict[str, str] | None = None) -> dict[str, str]:
    """The metric that each cell is scored by: its endpoint, unless one is given, for all or for each."""
    own = endpoints(manifest)
    return own if metric is None else dict.fromkeys(own, metric) if isinstance(metric, str) else metric


def scores(study: Study, metric: str | dict[str, str] | None = None) -> pandas.DataFrame:
    """The metric of the runs with status done: a row per seed, a column per cell, NaN for all other runs.  Without
    `metric` each cell is scored by its endpoint.  Raises ValueError for two runs of one cell and seed."""
    runs, wanted = study.runs, by_cell(study.manifest, metric)
    measured = _measured(study.manifest, wanted)
    values, status, whose = values_of(runs, wanted | measured).to_numpy(), runs["status"].to_numpy(), list(runs["cell"])
    usable = np.where((status == "done") & np.isfinite(values), values, np.nan)
    if measured:
        at = {cell.id: study.manifest.tasks[cell.task].solved_at for cell in study.manifest.cells}
        least = np.array([at.get(cell) for cell in whose], float)
        reached = np.where(np.isnan(usable), np.nan, (usable >= least).astype(float))
        reached = np.where(status == "diverged", 0.0, reached)
        # NaN if the cell's task has no threshold for being solved.
        solved = np.array([cell in measured for cell in whose], bool)
        usable = np.where(solved, np.where(np.isnan(least), np.nan, reached), usable)
    table = pandas.DataFrame({"seed": runs["seed"].to_numpy(), "cell": whose, "score": usable})
    if table.duplicated(["seed", "cell"]).any():
        raise ValueError("a cell has two runs with one seed")
    found = table.pivot(index="seed", columns="cell", values="score")
    return found.reindex(columns=pandas.Index(list(wanted), name="cell"))


def values_of(table: pandas.DataFrame, metrics: dict[str, str]) -> pandas.Series:
    """Each row's value of its cell's metric, NaN where it has none."""
    wanted, values = table["cell"].map(metrics).to_numpy(), np.full(len(table), np.nan)
    for name in set(metrics.values()) & set(table):
        values = np.where(wanted == name, pandas.to_numeric(table[name], errors="coerce"), values)
    return pandas.Series(values.astype(float), table.index)


def unadjusted(manifest: Manifest) -> str:
    """A sentence saying that intervals are too narrow because of looks other than those of `seeds=auto`; else ""."""
    present, sequence = set(manifest.seeds), manifest.sequential.looks if manifest.sequential else []
    # A planned look has the plan of this sequence, and the first seeds up to one of its numbers.
    first = [list(range(n)) for n in sequence]
    others = [look for look in manifest.looks if look.planned != sequence or look.seeds not in first]
    seen = {len(look.seeds) for look in others if set() < set(look.seeds) < present}
    studies = sorted({look.study for look in others if look.study})  # said if all looks were theirs
    where = f" (in {', '.join(studies)})" * bool(studies and all(look.study for look in others))
    # Looks of this study at all of its seeds under another plan: their results decided whether seeds would be added.
    turned = [look for look in others if look.study is None and set(look.seeds) == present]
    if sequence and (seen or turned):
        seen |= {len(present)} if turned else set()
        how = f"an interim analysis at {_counts(seen)} seeds{where} was not one of seeds=auto at {_counts(sequence)}"
    elif seen:
        how = f"seeds were added after an interim analysis of {_counts(seen)} of the {len(present)}{where}"
    elif any(look.planned for look in turned):
        how = f"seeds=auto stopped at these {len(present)} seeds"
    else:
        return ""
    return f"unadjusted: {how}, so these intervals miss the truth more often than they say"


def _counts(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def cells(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per cell: status counts, mean and SD of the metric over done seeds, Wilson's 95 % interval of divergence.

    Rows are in the order of the strata.  `name` is the label with the reference marked; `correlation` is Pearson's over
    seeds with the stratum's reference, if both have the same batches; `metric` is the cell's endpoint unless one is
    given.  A matched study adds `match`, the key (`chosen`) and value that were adjusted, and `match_difference`, the
    remaining difference as a share of the reference's quantity.  Runs that started from pretrained vectors add
    `vectors_seconds`, the mean time that training those took.
    """
    values, own = scores(study, metric), endpoints(study.manifest)
    rows, alone = [], len(study.manifest.cells) == 1
    ends = study.runs.groupby(["cell", "status"]).size().to_dict()
    for stratum, members in strata(study.manifest):
        reference = next((cell for cell in members if cell.reference), None)
        for cell in members:
            name = cell.label + " (reference)" * (cell.reference and not alone)
            count = {status: int(ends.get((cell.id, status), 0)) for status in STATUSES}
            low, high = wilson(count["diverged"], count["diverged"] + count["done"])
            found = paired(values[cell.id].dropna().to_numpy())
            row = {"name": name, "cell": cell.id, "label": cell.label, "stratum": stratum, "reference": cell.reference}
            row |= {"runs": sum(count.values()), **count, "n": found.n, "mean": found.mean, "sd": found.sd}
            row |= {"diverged_low": low, "diverged_high": high} | {size: getattr(cell, size) for size in SIZES}
            row |= matched(study.manifest, cell)
            if tuning := study.manifest.tuning:
                chosen = tuning.cells[cell.id]
                row |= {"tuned": tuning.key, "tuned_value": chosen.value, "tuned_at_edge": chosen.edge}
            row["notes"] = "; ".join(cell.notes)
            if "vectors_seconds" in study.runs:
                own_runs = study.runs["cell"] == cell.id
                row["vectors_seconds"] = float(study.runs.loc[own_runs, "vectors_seconds"].mean())
            row["correlation"] = math.nan
            if reference and cell is not reference and cell.batches == reference.batches:
                both = values[[cell.id, reference.id]].dropna().to_numpy()
                row["correlation"] = correlated(both[:, 0], both[:, 1])
            rows.append(row | {"metric": metric or own[cell.id]})
    table = pandas.DataFrame(rows)
    return table.drop(columns=[size for size in SIZES if table[size].isna().all()])  # unknown of another program's runs


def matched(manifest: Manifest, cell: Cell) -> dict[str, Any]:
    """What matching chose for a cell, and the remaining difference; empty if the study was not matched."""
    how = manifest.match
    if how == "none" or cell.matched is None:
        return {}
    chosen = "train.steps" if how == BY_STEPS else "ffn.hidden"
    value = chosen_at(cell.planned_config.as_json(), chosen.split("."))
    found = {"match": how, "chosen": chosen, "chosen_value": value}
    return found | {"match_difference": cell.matched.difference}


def overfit(study: Study) -> pandas.Series:
    """By run, final over lowest validation loss if that rose while training loss fell; NaN for other runs."""
    found = study.runs.get("overfits", pandas.Series(math.nan, study.runs.index))
    return pandas.to_numeric(found, errors="coerce").where(study.runs["status"] == "done")


def overfitting(study: Study) -> str:
    """A sentence on the runs that overfit; "" if none did."""
    times = overfit(study).dropna()
    if times.empty:
        return ""
    counts = study.runs.loc[times.index, "label"].value_counts(sort=False)
    which = first_of((f"{label} ({count})" for label, count in counts.items()), 4)
    validated, trained = (named(study.manifest, metric) for metric in ("val/loss", "train/loss"))
    ends = f"{validated} ends up to {times.max():.2f} times its lowest while {trained} fell"
    return f"overfits: {counted(len(times), 'run')}: {which}: {ends}; a note, the numbers stand"


def given(manifest: Manifest) -> str:
    """The condition of every verdict after tuning; "" without it.

    Intervals cover the scored seeds only.  They ignore that other tuning seeds could have chosen other values, and more
    scored seeds only narrow them around the difference between these choices.
    """
    tuning = manifest.tuning
    if not tuning:
        return ""
    key = "learning rate" if tuning.key == "optim.lr" else tuning.key
    return f"each at its own {key}"


def common(manifest: Manifest) -> dict[str, list[float]]:
    """For each main effect and interaction, the difference at each tuned value, with all cells at the same value.

    It is Σ w · mean over tuning seeds of the validation metric; NaN where a run of one of the cells diverged.  Effects
    over several tasks are left out.
    """
    tuning, found = manifest.tuning, dict[str, list[float]]()
    if not tuning:
        return found
    task = {cell.id: cell.task for cell in manifest.cells}
    for contrast in contrasts(manifest):
        if contrast.kind != "cell" and len({task[cell] for cell in contrast.weights}) == 1:
            scores = np.array([tuning.cells[cell].scores for cell in contrast.weights], float)  # None becomes NaN
            found[contrast.label] = [math.fsum(each * [*contrast.weights.values()]) for each in scores.T]
    return found


def common_rows(manifest: Manifest) -> tuple[str, list[list[str]]]:
    """A heading, and a row of texts per effect: its name, then the difference at each value, in rising order."""
    tuning = manifest.tuning
    if not tuning:
        return "", []
    values: list[Any] = tuning.values
    order = list(range(len(values)))
    if all(isinstance(value, int | float) for value in values):
        order.sort(key=lambda i: values[i])
    differences = common(manifest)
    every = [abs(value) for row in differences.values() for value in row]
    places = formatting.decimals([max((value for value in every if math.isfinite(value)), default=math.nan) / 10])
    rows = []
    for label, row in differences.items():
        shown = [formatting.number(row[i], places, signed=True) if math.isfinite(row[i]) else "diverged" for i in order]
        rows.append([label, *(f"{formatting.setting(values[i])} {text}" for i, text in zip(order, shown, strict=True))])
    seeds = counted(tuning.seeds, "tuning seed")
    return f"at each common {key_name(manifest, tuning.key)}, validation split, {seeds}, estimates only", rows
