"""A study of imported runs, as evidence reads it: the manifest that a plan would have written, runs and curves."""

import math
from dataclasses import replace

import numpy as np
import pandas

from ablate.config.errors import Refused
from ablate.formatting import listed, show
from ablate.runs.logs import lower_is_better, words_of
from ablate.runs.naming import measured_as
from ablate.runs.records import Cell, Manifest, MarginEntry, PlannedRun, TaskFacts, Way
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.sources import Request
from analysis.sources.design import arrange, label_of
from analysis.sources.logged import AXES, RUN, SHAPE, Logged, note, numbers
from analysis.sources.points import with_results
from analysis.sources.roles import Roles, choose_roles

TASK = "runs"
DENSE = 0.5  # if a larger share of the pairs of configuration and seed has a row, the other pairs are named


def study_of(logged: Logged, request: Request, study: str, source: str, created: str) -> Study:
    """Convert logged runs to a study called `study`.  `source` is the file or project, `created` when it was written.
    Raises `Refused`, with the command to write, where what nobody named is doubtful."""
    asked = request
    doubts: list[str] = []
    runs, roles, notes = choose_roles(logged, request, doubts)
    runs = in_cells(runs, roles)
    runs, left_out = without_reruns(runs, roles, logged.is_table)
    runs, curves = by_run(runs, logged, roles)
    if runs["seed"].nunique() > 1 and runs["cell"].is_unique:
        raise Refused(f"no two runs have the same {listed(roles.factors)}; name what is compared: --factors COLUMN")
    batches, pairing = batches_of(runs, request.unpaired)
    cells = cells_of(runs, roles.factors, batches)
    plan = arrange(cells, request, doubts)
    runs["label"] = runs["cell"].map({cell.id: cell.label for cell in cells})
    runs, on_points, request = with_results(runs, curves, roles, request, doubts)
    absent = note_on_absent(runs)
    request = request._replace(
        factors=tuple(roles.factors),
        metrics=request.metrics or (roles.metrics[0],),
        lower=roles.lower,
        reference=tuple((name, show(level)) for name, level in plan.reference.items()),
        seed_from="" if roles.seed == "seed" else roles.seed,
    )
    if doubts:
        raise Refused(f"{'; '.join([*doubts, *notes])}; to compare as proposed, write: {request.command}")
    runs = runs.reset_index(drop=True)
    plan = replace(
        plan,
        study=study,
        source=source,
        created=created,
        updated=created,
        command=request.command,
        tasks={TASK: task_of(source, roles)},
        seeds=sorted({int(seed) for seed in runs["seed"]}),
        runs=[PlannedRun(cell=run.cell, seed=int(run.seed), path=run.path) for run in named_rows(runs)],
        margin=MarginEntry(value=request.margin) if request.margin else None,
        endpoint=roles.metrics[0],
    )
    remarks = remarks_of(plan, roles.lower, pairing)
    if request != asked:
        remarks.append(f"inferred, and not doubtful; to name it all write: {request.command}")
    notes = [*notes, *left_out, *on_points, *absent]
    return Study(replace(plan, remarks=remarks), runs, with_runs(curves, runs, roles.factors), notes)


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
        notes = note(runs.index.difference(newest.index), "left out, whose configuration and seed were run again")
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
    columns = dict.fromkeys([*RUN, "status", *roles.factors, *SHAPE, "batches"])
    runs = runs[runs.columns.intersection([*columns], sort=False)]
    runs = runs.assign(path=runs.index, error=None).drop_duplicates(RUN, keep="last")
    return runs.set_index(RUN, drop=False).loc[in_order], curves


def batches_of(runs: pandas.DataFrame, unpaired: bool) -> tuple[pandas.Series, str]:
    """By configuration a key of its batches, equal where runs of one seed pair (by the column `batches`, or else all);
    and a description of the pairing."""
    if unpaired or runs.groupby(level="seed").size().max() < 2:
        pairing = "unpaired, as asked" if unpaired else "unpaired: no two configurations have a seed in common"
        keys = runs["cell"]
    elif "batches" in runs:
        pairing = "paired by seed where batches are equal"
        keys = runs["batches"]
    else:
        pairing = "paired by seed, which is valid whatever runs of one seed share"
        keys = pandas.Series("seed", runs.index)
    return keys.sort_index(level="seed").groupby(level="cell").first(), pairing


def cells_of(runs: pandas.DataFrame, factors: list[str], batches: pandas.Series) -> list[Cell]:
    """The configurations of the runs, with their sizes where the runs have them."""
    cells = []
    for name, rows in runs.groupby(level="cell", sort=False):
        levels = rows[factors].iloc[0].to_dict()
        sizes = {}
        for column in rows.columns.intersection(SHAPE):
            values = pandas.to_numeric(rows[column].astype(str), errors="coerce")
            finite = values[np.isfinite(values)].tolist()
            sizes[column] = finite[0] if finite else None
        label = label_of(levels)
        facts = {"batches": batches[name], "reference": False, **sizes}
        cells.append(Cell(id=name, name=label, label=label, task=TASK, levels=levels, **facts))
    return cells


def note_on_absent(runs: pandas.DataFrame) -> list[str]:
    """A note on the pairs of configuration and seed without a row, if most pairs have one."""
    labels = runs.groupby(level="cell", sort=False)["label"].first()
    pairs = pandas.MultiIndex.from_product([labels.index, sorted({*runs["seed"]})])
    absent = pairs.difference(runs.index, sort=False)
    if len(runs) <= DENSE * len(pairs):
        return []
    return note([f"{labels[cell]} seed {seed}" for cell, seed in absent], "without a row")


def with_runs(curves: pandas.DataFrame, runs: pandas.DataFrame, factors: list[str]) -> pandas.DataFrame:
    """The curves with what tells their runs apart, as those of ablate; none where each run has one row."""
    if not curves.index.has_duplicates:
        curves = curves[:0]
    columns = dict.fromkeys([*RUN, "label", "path", *factors])
    return curves.reset_index().merge(runs[list(columns)])


def task_of(source: str, roles: Roles) -> TaskFacts:
    """What is known of the task: the metrics, the one that is compared first, and which of their values are better."""
    ways: dict[str, Way] = {measured_as(roles.metrics[0]): "min" if roles.lower else "max"}
    for metric in roles.metrics[1:]:
        lower = lower_is_better(metric)
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
