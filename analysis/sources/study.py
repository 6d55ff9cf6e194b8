"""A study of imported runs, as evidence reads it: the manifest that a plan would have written, runs and curves."""

import dataclasses
import math
from typing import Any

import pandas

from ablate import formatting
from ablate.config.errors import Refused
from ablate.formatting import show
from ablate.runs.logs import lower_is_better, words_of
from ablate.runs.naming import measured_as
from ablate.runs.records import Manifest, MarginEntry, PlannedRun, TaskFacts, Way
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.sources import Request
from analysis.sources.design import TASK, Levels, arrange, label_of
from analysis.sources.logged import AXES, RUN, SHAPE, Logged, note, numbers
from analysis.sources.points import run_names, with_results
from analysis.sources.roles import Roles, choose_roles
from analysis.sources.study_file import claims_of

DENSE = 0.5  # if a larger share of the pairs of configuration and seed has a row, the other pairs are missing runs


def study_of(logged: Logged, request: Request, study: str, source: str, created: str) -> Study:
    """Convert logged runs to a study called `study`.  `source` is the file or project, `created` when it was written.
    Raises `Refused`, with the command to write, where what nobody named is doubtful."""
    asked = request
    doubts: list[str] = []
    runs, roles, notes = choose_roles(logged, request, doubts)
    factors = roles.factors
    runs = in_cells(runs, roles)
    runs, left_out = without_reruns(runs, roles, logged.is_table)
    runs, curves = by_run(runs, logged, roles)
    if runs["seed"].nunique() > 1 and runs["cell"].is_unique:
        why = f"no two runs have the same {formatting.listed(factors)}"
        counts = runs[factors].nunique()
        fewer = tuple(counts.index[counts < counts.max()])
        if fewer and runs.duplicated([*fewer]).any() and not runs.duplicated([*fewer, "seed"]).any():
            raise request.refusal(why, factors=fewer)
        raise Refused(f"{why}; name what is compared: --factors COLUMN")

    cells: dict[str, Levels] = runs.drop_duplicates("cell").set_index("cell", drop=False)[factors].to_dict("index")
    facts, pairing = facts_of(runs, request.unpaired)
    plan = arrange(cells, facts, request, logged.reference_first, doubts)
    runs["label"] = runs["cell"].map({cell.id: cell.label for cell in plan.cells})
    runs, on_points, request = with_results(runs, curves, roles, request, doubts)
    runs, missing = with_missing(runs)
    reference = next(cells[cell.id] for cell in plan.cells if cell.reference)
    request = request._replace(
        factors=tuple(factors),
        metrics=request.metrics or (roles.metrics[0],),
        lower=roles.lower,
        reference=tuple((name, show(level)) for name, level in reference.items() if name not in request.within),
        seed_from="" if roles.seed == "seed" else roles.seed,
    )
    if doubts:
        raise Refused(f"{'; '.join([*doubts, *notes])}; to compare as proposed, write: {request.command}")

    directions = {roles.metrics[0]: roles.lower} | {name: lower_is_better(name) for name in roles.metrics[1:]}
    runs, curves = in_columns(runs, curves, plan)
    plan = dataclasses.replace(
        plan,
        study=study,
        source=source,
        created=created,
        updated=created,
        command=request.command,
        tasks={TASK: task_of(source, directions)},
        seeds=sorted({int(seed) for seed in runs["seed"]}),
        runs=[PlannedRun(cell=run.cell, seed=int(run.seed), path=run.path) for run in named_rows(runs)],
        claims=claims_of(request, plan, directions),
        margin=MarginEntry(value=request.margin) if request.margin else None,
        question=request.question or None,
        endpoint=roles.metrics[0],
    )
    remarks = remarks_of(plan, roles.lower, pairing)
    if request != asked:
        remarks.append(f"inferred, and not doubtful; to name it all write: {request.command}")
    plan = dataclasses.replace(plan, remarks=remarks)
    return Study(plan, runs, curves, [*notes, *left_out, *on_points, *missing])


def in_cells(runs: pandas.DataFrame, roles: Roles) -> pandas.DataFrame:
    """The runs with the levels of their factors, and the id of their configuration in the column `cell`; runs without
    seeds are counted."""
    levels = runs[roles.factors].astype(object)
    levels = levels.where(levels.notna(), None)
    ids = "c" + runs.groupby(roles.factors, sort=False, dropna=False).ngroup().astype(str)
    if roles.factors == ["cell"]:
        ids = levels.pop("cell").map(show)
    runs = runs.assign(**levels, cell=ids)
    if not roles.seed:
        runs["seed"] = runs.groupby("cell")["seed"].rank("dense").astype(int) - 1
    return runs


def without_reruns(runs: pandas.DataFrame, roles: Roles, is_table: bool) -> tuple[pandas.DataFrame, list[str]]:
    """The runs, of those with equal configuration and seed only the newest where it is known when they were created,
    and a note on the others.  In a table with steps, rows of one run are equal only at the same step.  Raises `Refused`
    if two are still equal."""
    keys = RUN
    if is_table and roles.step:
        keys = [*RUN, roles.step]
    notes = []
    if "created" in runs:
        newest = runs.sort_values("created", kind="stable").drop_duplicates(keys, keep="last")
        older = runs.index.difference(newest.index)
        notes = note(older, "left out, whose configuration and seed were run again")
        runs = runs.loc[runs.index.intersection(newest.index)]
    equal = runs[runs.duplicated(keys, keep=False)]
    if len(equal):
        first = equal.iloc[0]
        equal_to_first = equal.index[(equal[keys] == first[keys]).all(axis=1)]
        what = f"{label_of(first[roles.factors].to_dict())}, seed {first['seed']}"
        how = "name the columns in which they differ with --factors, or the one that counts steps with --step-from"
        raise Refused(f"{equal_to_first[0]} and {equal_to_first[1]} are both {what}; {how}")
    return runs, notes


def by_run(runs: pandas.DataFrame, logged: Logged, roles: Roles) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The runs, and what they logged as numbers with a row per `step`, both indexed by configuration and seed."""
    rows = logged.rows[logged.rows.index.isin(runs.index)]
    curves = pandas.DataFrame(index=rows.index)
    for name in (*AXES, *roles.metrics):
        if name in rows and name not in roles.factors:
            curves[name] = numbers(rows[name])
    curves["step"] = numbers(rows[roles.step]).replace(math.inf, math.nan) if roles.step else math.nan
    in_order = pandas.MultiIndex.from_frame(runs[RUN].drop_duplicates())
    if logged.is_table:  # the last step says how a run ended
        runs = runs.loc[curves["step"].sort_values(kind="stable").index]
    curves = curves.join(runs[RUN])
    steps = curves.groupby(RUN)["step"]
    curves["step"] = steps.ffill().fillna(steps.bfill()).fillna(steps.cumcount())
    curves = curves.groupby([*RUN, "step"]).last().reset_index("step")
    columns = [name for name in dict.fromkeys([*RUN, "status", *roles.factors, *SHAPE, "batches"]) if name in runs]
    runs = runs[columns].assign(path=runs.index, error=None).drop_duplicates(RUN, keep="last")
    return runs.set_index(RUN, drop=False).loc[in_order], curves


def facts_of(runs: pandas.DataFrame, unpaired: bool) -> tuple[dict[str, dict[str, Any]], str]:
    """By configuration its sizes, where the runs have them, and a key of its batches, which is equal where runs of one
    seed pair: by the column `batches`, or else between all; and a description of the pairing."""
    facts: dict[str, dict[str, Any]] = {cell: {"batches": cell} for cell in runs["cell"]}
    pairing = "unpaired, as asked"
    if not unpaired and runs.groupby(level="seed").size().max() < 2:
        pairing = "unpaired: no two configurations have a seed in common"
    elif not unpaired:
        pairing = "paired by seed, which is valid whatever runs of one seed share"
        keys = pandas.Series("seed", runs.index)
        if "batches" in runs:
            pairing = "paired by seed where batches are equal"
            keys = runs["batches"]
        for cell, key in keys.sort_index(level="seed").groupby(level="cell").first().items():
            facts[cell]["batches"] = key
    for name in runs.columns.intersection(SHAPE):
        sizes = pandas.to_numeric(runs[name].astype(str), errors="coerce").replace(math.inf, math.nan)
        for cell, size in sizes.groupby(level="cell").first().dropna().items():
            facts[cell][name] = size
    return facts, pairing


def with_missing(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """The runs plus a row of status `missing` for each absent cell and seed, if most pairs are present; with a note."""
    labels = runs.groupby(level="cell", sort=False)["label"].first()
    pairs = pandas.MultiIndex.from_product([labels.index, sorted({*runs["seed"]})], names=RUN)
    absent = pairs.difference(runs.index, sort=False).to_frame()
    if absent.empty or len(runs) <= DENSE * len(pairs):
        return runs, []
    absent = absent.assign(label=absent["cell"].map(labels), status="missing", path="", error=None)
    return pandas.concat([runs, absent]), note(run_names(absent), "without a row, counted as missing")


def in_columns(
    runs: pandas.DataFrame, curves: pandas.DataFrame, plan: Manifest
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Runs and curves with the columns of studies of ablate, in their order; no curves where each run has one row."""
    levels = {cell.id: cell.levels for cell in plan.cells}
    runs = runs.reset_index(drop=True)
    for name in plan.factors:
        runs[name] = [levels[cell][name] for cell in runs["cell"]]
    first = list(dict.fromkeys(["cell", "label", "seed", "status", *plan.factors]))
    runs = runs[[*first, *runs.columns.difference(first, sort=False)]]
    if not curves.index.has_duplicates:
        curves = curves[:0]
    columns = dict.fromkeys([*RUN, "label", "path", *plan.factors])
    return runs, curves.reset_index().merge(runs[list(columns)])


def task_of(source: str, directions: dict[str, bool | None]) -> TaskFacts:
    """What is known of the task: the metrics, the one that is compared first, and which of their values are better."""
    ways: dict[str, Way] = {}
    for metric, lower in directions.items():
        if lower is not None:
            ways.setdefault(measured_as(metric), "min" if lower else "max")
    return TaskFacts(name=source, title=source, metrics=ways)


def remarks_of(plan: Manifest, lower: bool, pairing: str) -> list[str]:
    """What a reader of the study should know: metric, direction, reference and pairing."""
    reference = ", ".join(f"{name}={show(level)}" for name, level in plan.reference.items())
    better = f"{plan.endpoint}, {'lower' if lower else 'higher'} is better"
    remarks = [f"runs from {plan.source}: {better}; reference {reference}; {pairing}"]
    if "train" in words_of(plan.endpoint or ""):
        remarks.append(f"{plan.endpoint} is of training: no evaluation was logged, or it was not chosen")
    return remarks
