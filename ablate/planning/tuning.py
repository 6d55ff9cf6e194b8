"""Tuning: chooses the best value of one key for each cell, with the same budget for each, as a separate study."""

import dataclasses
import json
import math
import shlex
import statistics
from collections.abc import Generator, Iterable, Sequence
from typing import Any, get_type_hints

import msgspec

from ablate.config.claims import level, spell
from ablate.config.errors import PlanError, Problem
from ablate.config.key_checks import CHOSEN
from ablate.config.schema import SECTIONS, TUNING_SEEDS, WHOLE
from ablate.config.words import key_of
from ablate.formatting import counted, flat, is_number, nearest, show
from ablate.planning.cells import inspected
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import PlannedStudy
from ablate.runs import records
from ablate.runs.folder import Run
from ablate.runs.manifest import readable
from ablate.runs.records import TaskFacts, TunedCell, Tuning

Grid = Sequence[Any]  # the values that are tried
Trials = list[list[float] | None]  # of a cell, at each value: the score of each tuning seed; None if a run diverged
Means = list[float | None]  # of a cell, at each value

LIMIT = 4  # values by which a grid is extended, on each side
# Keys of the study, the budget, the random numbers, and of what is scored, which all values share.
SHARED = (*WHOLE, "train", "eval", "data", "seed")


def tuned(study: PlannedStudy) -> Generator[Plan, None, PlannedStudy]:
    """Yields the plans of tuning until the grid is wide enough; returns the study with each cell at its best value."""
    tune = study.settings.tune
    requested = typed_values(str(tune.key), tune.values)
    grid = with_earlier_values(study, requested)
    tuning = tuning_study(study, grid)
    while True:
        plan = plan_runs(tuning)
        yield plan
        means: list[Means] = []
        best: list[int] = []
        ends: list[int] = []
        for row, trials in zip(study.rows, trials_of(study, plan), strict=True):
            means.append([None if scores is None else statistics.fmean(scores) for scores in trials])
            lowest = choose(means[-1], is_loss(study.tasks[row.task]))
            chosen = lowest if tune.rule == "best" else smallest_near(grid, trials, lowest)
            best.append(chosen)
            if trials[lowest] is not None:
                ends += [chosen, lowest]  # with one_se the grid has to go beyond the best mean, too
        wider = extended(grid, requested, ends) if tune.extend else grid
        if wider == grid:
            break
        try:
            tuning = tuning_study(study, wider)
        except PlanError:  # a cell cannot be trained at a new value
            break
        grid = wider
    result = tuned_study(study, grid, means, best)
    if study.settings.confirm:
        return result
    # Claims that were written before tuning keep their date, and edited ones their earlier texts.
    written = plan.manifest
    entries = result.entries | {"margin": written.margin, "replicated": written.replicated}
    return dataclasses.replace(result, entries=entries, written=written.claims)


def with_earlier_values(study: PlannedStudy, requested: list[Any]) -> list[Any]:
    """The requested values, with those that earlier commands have added."""
    earlier = readable(study.results, f"{study.base}-tune")
    if study.settings.tune.extend and earlier:
        tried = earlier.factors.get(str(study.settings.tune.key), [])
        if tried[: len(requested)] == requested:
            return tried
    return requested


def trials_of(study: PlannedStudy, plan: Plan) -> list[Trials]:
    """The scores of each cell's tuning runs: of the first metric of its task on the validation split."""
    cells = study.rows
    paths = {(run.cell, run.seed): run.path for run in plan.manifest.runs}
    trials: list[Trials] = [[] for _ in cells]
    for place, row in enumerate(plan.manifest.cells):  # value by value
        metric = validation_metric(study.tasks[row.task])
        scores = []
        for seed in tuning_seeds(study):
            result = Run(plan.results, paths[row.id, seed]).result()
            score = result.final.get(metric) if result else None
            if score is not None:
                scores.append(score)
        trials[place % len(cells)].append(scores if len(scores) == study.settings.tune.seeds else None)
    return trials


def validation_metric(task: TaskFacts) -> str:
    """The metric that the cells of a task are tuned by."""
    return f"val/{task.measured}"


def is_loss(task: TaskFacts) -> bool:
    """Whether a smaller score of a task is better."""
    return task.metrics[task.measured] == "min"


def tuning_seeds(study: PlannedStudy) -> list[int]:
    """The seeds that try each value."""
    return list(TUNING_SEEDS[: study.settings.tune.seeds])


def choose(means: Sequence[float | None], lower: bool) -> int:
    """Index of the best score, the first of equal ones; None (a diverged run) is the worst."""
    places = [place for place, score in enumerate(means) if score is not None]
    sign = 1 if lower else -1
    return min(places, key=lambda place: sign * (means[place] or 0.0), default=0)


def smallest_near(grid: Grid, trials: Trials, best: int) -> int:
    """Index of the smallest value whose mean difference to the best one's scores, seed by seed, is within the standard
    error of that difference."""
    least = best
    of_best = trials[best]
    for place, scores in enumerate(trials):
        if scores is None or of_best is None or grid[place] >= grid[least]:
            continue
        differences = [score - other for score, other in zip(scores, of_best, strict=True)]
        if abs(statistics.mean(differences)) <= statistics.stdev(differences) / math.sqrt(len(differences)):
            least = place
    return least


def tuning_study(study: PlannedStudy, grid: Grid) -> PlannedStudy:
    """Every cell at every value, value by value, on tuning seeds and the validation split.  Raises PlanError."""
    tune = study.settings.tune
    key = str(tune.key)
    values = [level(value) for value in grid]
    drafts = []
    for place, value in enumerate(grid):
        for draft in study.drafts:
            # Values are chosen by the whole validation split, regardless of speed.
            config = draft.config.with_value("eval.lengths", []).with_value("eval.val_share", 1.0)
            config = config.with_value("timing", "shared").with_value(key, value)
            label = f"{key}={spell(values[place])}"
            drafts.append(
                dataclasses.replace(
                    draft,
                    label=f"{draft.label} + {label}" if study.factors else label,
                    levels=draft.levels | {key: values[place]},
                    reference=place * len(study.drafts) + draft.reference if study.factors else 0,
                    config=config,
                )
            )
    settings = dataclasses.replace(
        study.settings, study=f"{study.base}-tune", seeds=tuning_seeds(study), confirm=None, timing="shared"
    )
    metrics = list(dict.fromkeys(validation_metric(study.tasks[row.task]) for row in study.rows))
    tuning = dataclasses.replace(
        study,
        settings=settings,
        factors=study.factors | {key: values},
        reference=study.reference or {key: values[0]},
        drafts=drafts,
        entries=study.entries
        | {"tunes": study.base, "tune": records.Tune(**dataclasses.asdict(tune)), "endpoint": metrics[0]},
        notes=[tuning_note(study, len(grid), metrics)],
        more=True,
    )
    return inspected(tuning)


def tuning_note(study: PlannedStudy, values: int, metrics: list[str]) -> str:
    """What a plan says of tuning and of what follows it."""
    tune = study.settings.tune
    cells = counted(len(study.rows), "configuration")
    note = f"tuning first: {tune.key} of {cells} at {values} values, {counted(tune.seeds, 'seed')} each, "
    return f"{note}by {' or '.join(metrics)}; then the study at the tuned values"


def tuned_study(study: PlannedStudy, grid: Grid, means: list[Means], best: list[int]) -> PlannedStudy:
    """The study with each cell at its best value, and the record of its tuning.  Raises PlanError."""
    tune = study.settings.tune
    key = str(tune.key)
    drafts = []
    for draft, place in zip(study.drafts, best, strict=True):
        drafts.append(dataclasses.replace(draft, config=draft.config.with_value(key, grid[place])))
    study = inspected(dataclasses.replace(study, drafts=drafts))
    rows = []
    chosen = {}
    values = []
    for row, place, scores in zip(study.rows, best, means, strict=True):
        reason = doubt(key, grid, place, scores)
        notes = [f"{row.label}: {reason}"] if reason else []
        rows.append(dataclasses.replace(row, notes=row.notes + notes))
        chosen[row.id] = TunedCell(value=level(grid[place]), scores=scores, edge=at_edge(grid, place))
        values.append(f"{row.label} {show(level(grid[place]))}")
    tuning = Tuning(
        key=key,
        seeds=tune.seeds,
        rule=tune.rule,
        values=[level(value) for value in grid],
        study=f"{study.base}-tune",
        cells=chosen,
    )
    rule = ""
    if tune.rule == "one_se":
        rule = " (the smallest that differs from the best by no more than a standard error)"
    return dataclasses.replace(
        study,
        rows=rows,
        entries=study.entries | {"tuning": tuning},
        notes=[*study.notes, f"{key} by tuning{rule}: {', '.join(values)}"],
    )


def doubt(key: str, grid: Grid, best: int, means: Means) -> str:
    """Why a cell may not have found its best value; "" if nothing speaks against it."""
    value = show(level(grid[best]))
    if means[best] is None:
        return f"runs diverged at every {key} that was tried; {value} is the first"
    if at_edge(grid, best):
        side = "largest" if grid[best] == max(grid) else "smallest"
        return f"the chosen {key} ({value}) is the {side} tried; tune.extend=true extends the grid"
    return ""


def typed_values(key: str, values: list[Any]) -> list[Any]:
    """The values converted to the key's type; those of components do not change.  Raises ValueError."""
    section, _, name = key.partition(".")
    kind: Any = Any
    if section in SECTIONS:
        kind = get_type_hints(SECTIONS[section]).get(name, Any)
    typed = []
    for value in values:
        try:
            typed.append(msgspec.convert(value, kind, strict=False))
        except msgspec.ValidationError:
            raise ValueError(f"{value!r} is not a value of {key}") from None
    return typed


def at_edge(grid: Grid, place: int) -> bool:
    """Whether a value is the smallest or largest of its grid; false if some values are not numbers."""
    return all(map(is_number, grid)) and grid[place] in (min(grid), max(grid))


def extended(grid: list[Any], requested: Sequence[Any], best: Iterable[int]) -> list[Any]:
    """The grid with another value on each side that has a best value at its end, by the ratio of the outermost two.
    Values have three digits; integers stay integers; at most LIMIT values are added on each side."""
    best_values = [grid[place] for place in best]
    ordered = sorted(grid)
    below = [value for value in grid if value < min(requested)]
    above = [value for value in grid if value > max(requested)]
    wider = list(grid)
    for end, neighbour, added in ((ordered[0], ordered[1], below), (ordered[-1], ordered[-2], above)):
        new: float = float(f"{end * (end / neighbour):.3g}")
        if all(isinstance(value, int) for value in grid):
            new = round(new)
        if end in best_values and len(added) < LIMIT and new > 0 and new not in grid:
            wider.append(new)
    return wider


def tuning_problems(study: PlannedStudy) -> list[Problem]:
    """Problems of the `tune` keys."""
    tune = study.settings.tune
    if tune.key is not None:
        problem = key_problem(study, tune.key) or values_problem(study)
        return [problem] if problem else []
    if tune.values or tune.extend or tune.rule != "best":
        return [Problem("tune.key", "is not given; write the key that is tuned, as in tune.key=optim.lr")]
    return []


def key_problem(study: PlannedStudy, key: str) -> Problem | None:
    """Why a key cannot be tuned, if so."""
    match = study.settings.match
    if key.split(".")[0] in SHARED:
        message = f"{key} is the same for all values; tune a key of the model or of optim, such as optim.lr"
        return Problem("tune.key", message)
    if key in study.swept:
        return Problem("tune.key", f"{key} is swept already; leave it out of the sweep, or out of tune.key")
    if key in [key_of(word) for word in shlex.split(study.command)]:
        return Problem("tune.key", f"{key} is given, too, and tuning chooses it; leave {key}=... out")
    if key in CHOSEN.get(match, ()):
        return Problem("tune.key", f"match={match} chooses {key}; tune another key, or write match=none")
    lacking = []
    for draft in study.drafts:
        if key not in flat(draft.config.as_json()):
            lacking.append(draft)
    if not lacking:
        return None
    names = [name for name in flat(lacking[0].config.as_json()) if "._" not in name]  # without targets
    near = nearest(key, names)
    hint = f"did you mean {near}?" if near else "tune a key that every configuration has"
    return Problem("tune.key", f"{lacking[0].label} has no {key}; {hint}")


def values_problem(study: PlannedStudy) -> Problem | None:
    """What is wrong with the values, or with how they are to be tried."""
    tune = study.settings.tune
    try:
        values = typed_values(str(tune.key), tune.values)
    except ValueError as error:
        return Problem("tune.values", str(error))
    if len({json.dumps(value) for value in values}) < max(2, len(values)):
        example = f"tune.key={tune.key} tune.values=[1e-3,3e-3,1e-2]"
        return Problem("tune.values", f"{tune.values} must be at least two different values, as in {example}")
    are_numbers = all(map(is_number, values))
    if tune.extend and not (are_numbers and min(values) > 0):
        return Problem("tune.extend", "goes on by the ratio of the outermost two values, which must be numbers > 0")
    if tune.rule == "one_se" and (tune.seeds < 2 or not are_numbers):
        return Problem("tune.rule", "one_se needs numbers, and tune.seeds=2 or more; leave it out")
    return None
