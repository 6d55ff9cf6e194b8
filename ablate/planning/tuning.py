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
from ablate.config.depth import patterned
from ablate.config.errors import PlanError, Problem
from ablate.config.key_checks import CHOSEN
from ablate.config.schema import COMPONENTS, SECTIONS, TUNING_SEEDS, WHOLE, Config
from ablate.config.words import key_of
from ablate.formatting import counted, first_of, flat, grouped, is_number, nearest, show
from ablate.planning.cells import recomposed, reconfigured
from ablate.planning.checks.validate import Checked
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy, Draft
from ablate.runs import records
from ablate.runs.folder import Run
from ablate.runs.manifest import readable
from ablate.runs.records import Manifest, TunedCell, Tuning

Grid = Sequence[Any]  # the values that are tried
Trials = list[list[float] | None]  # of a cell, at each value: the score of each tuning seed; None if a run diverged
Means = list[float | None]  # of a cell, at each value

LIMIT = 4  # values by which a grid is extended, on each side
NAMED = 4  # cells that a remark names
UNSCORED = ("eval", "data", "seed")  # sections that change what is scored, or the random numbers


def tuned(study: CheckedStudy) -> Generator[Plan, None, CheckedStudy]:
    """Yields the plans of tuning until the grid is wide enough; returns the study with each cell at its best value."""
    tune = study.settings.tune
    requested = typed_values(str(tune.key), tune.values)
    grid = requested
    earlier = readable(study.results, f"{study.base}-tune")
    if tune.extend and earlier:
        tried = earlier.factors.get(str(tune.key), [])
        if tried[: len(requested)] == requested:
            grid = tried  # with what earlier commands have added
    tuning = tuning_study(study, grid)
    while True:
        plan = plan_runs(tuning)
        yield plan
        means: list[Means] = []
        best: list[int] = []
        ends: list[int] = []
        for cell, trials in zip(study.cells.checked, trials_of(study, plan), strict=True):
            means.append([None if scores is None else statistics.fmean(scores) for scores in trials])
            lowest = choose(means[-1], is_loss(cell))
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
    # Tuning shows every cell: claims that are written later are post hoc, except for fresh seeds.
    written = plan.manifest
    entries = result.entries | {"margin": written.margin, "replicated": written.replicated}
    return dataclasses.replace(result, entries=entries, written=written.claims)


def trials_of(study: CheckedStudy, plan: Plan) -> list[Trials]:
    """The scores of each cell's tuning runs: of the first metric of its task on the validation split."""
    cells = study.cells.checked
    paths = {(run.cell, run.seed): run.path for run in plan.manifest.runs}
    trials: list[Trials] = [[] for _ in cells]
    for place, row in enumerate(plan.manifest.cells):  # value by value
        metric = validation_metric(cells[place % len(cells)])
        scores = []
        for seed in tuning_seeds(study):
            result = Run(plan.results, paths[row.id, seed]).result()
            score = result.final.get(metric) if result else None
            if score is not None:
                scores.append(score)
        trials[place % len(cells)].append(scores if len(scores) == study.settings.tune.seeds else None)
    return trials


def validation_metric(cell: Checked) -> str:
    """The metric that a cell is tuned by."""
    return f"val/{next(iter(cell.task.metrics))}"


def is_loss(cell: Checked) -> bool:
    """Whether a smaller score of a cell's task is better."""
    return bool(next(iter(cell.task.metrics.values())) == "min")


def tuning_seeds(study: CheckedStudy) -> list[int]:
    """The seeds that try each value."""
    return list(TUNING_SEEDS[: study.settings.tune.seeds])


def choose(means: Sequence[float | None], lower: bool) -> int:
    """Index of the best score, the first of equal ones; None (a diverged run) is the worst."""
    best = 0
    for place, score in enumerate(means):
        if score is None:
            continue
        first = means[best]
        if first is None or (score < first if lower else score > first):
            best = place
    return best


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


def tuning_study(study: CheckedStudy, grid: Grid) -> CheckedStudy:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune = study.settings.tune
    name = f"{study.base}-tune"
    settings = dataclasses.replace(study.settings, study=name, seeds=tuning_seeds(study), confirm=None, timing="shared")
    cells = tuning_cells(study.cells, settings, str(tune.key), grid)
    metrics = [validation_metric(cell) for cell in study.cells.checked]
    note = f"tuning first: {tune.key} at {len(grid)} values for {counted(len(study.cells.rows), 'configuration')}, "
    note += f"{counted(tune.seeds, 'seed')} each, by {' or '.join(dict.fromkeys(metrics))}"
    if tune.rule != "best":
        note += f", rule {tune.rule}"
    if tune.extend:
        note += f", with up to {2 * LIMIT} more at the ends"
    note += f"; then: {summary_of(study)} at the tuned values"
    entries = study.entries | {"tunes": study.base, "tune": tune_entry(study), "endpoint": metrics[0]}
    return dataclasses.replace(study, settings=settings, cells=cells, entries=entries, notes=[note], more=True)


def tune_entry(study: CheckedStudy) -> records.Tune:
    """The manifest's entry of what a study tunes."""
    return records.Tune(**dataclasses.asdict(study.settings.tune))


def tuning_cells(cells: Cells, settings: Config, key: str, grid: Grid) -> Cells:
    """Every cell at every value, value by value.  Raises PlanError."""
    values = [level(value) for value in grid]
    drafts = []
    for place, value in enumerate(grid):
        for draft in cells.drafts:
            # Values are chosen by the whole validation split, regardless of speed.
            config = draft.config.with_value("eval.lengths", []).with_value("eval.val_share", 1.0)
            config = config.with_value("timing", "shared").with_value(key, value)
            label = f"{key}={spell(values[place])}"
            drafts.append(
                Draft(
                    name=draft.name,
                    label=f"{draft.label} + {label}" if cells.factors else label,
                    levels=draft.levels | {key: values[place]},
                    reference=place * len(cells.drafts) + draft.reference if cells.factors else 0,
                    config=config,
                )
            )
    reference = cells.reference or {key: values[0]}
    return recomposed(settings, drafts, cells.factors | {key: values}, reference)


def summary_of(study: CheckedStudy) -> str:
    """The number of cells and seeds of a study, in words."""
    seeds = study.settings.confirm or study.settings.seeds
    if isinstance(seeds, list):
        seeds = len(seeds)
    text = f"{counted(len(study.cells.rows), 'configuration')} × "
    text += counted(seeds, "seed") if isinstance(seeds, int) else f"seeds={seeds}"
    if study.settings.step_equivalents:
        text += ", and references for other numbers of steps"
    return text


def tuned_study(study: CheckedStudy, grid: Grid, means: list[Means], best: list[int]) -> CheckedStudy:
    """The study with each cell at its best value, and the record of its tuning.  Raises PlanError if a cell that was
    scored at one value would now get another."""
    tune = study.settings.tune
    key = str(tune.key)
    configs = [draft.config.with_value(key, grid[i]) for draft, i in zip(study.cells.drafts, best, strict=True)]
    cells = reconfigured(study.cells, study.settings, configs)
    labels = [row.label for row in cells.rows]
    doubts = remarks(labels, key, grid, best, means, tune.extend)
    rows = [dataclasses.replace(row, notes=row.notes + notes) for row, notes in zip(cells.rows, doubts, strict=True)]
    chosen = {}
    for row, i, scores in zip(rows, best, means, strict=True):
        chosen[row.id] = TunedCell(value=level(grid[i]), scores=scores, edge=at_edge(grid, i))
    refuse_other_choice(study, rows, chosen)
    tuning = Tuning(
        key=key,
        seeds=tune.seeds,
        rule=tune.rule,
        values=[level(value) for value in grid],
        study=f"{study.base}-tune",
        cells=chosen,
    )
    values = ", ".join(f"{row.label} {show(chosen[row.id].value)}" for row in rows)
    rule = (
        " (the smallest that differs from the best by no more than a standard error)" if tune.rule == "one_se" else ""
    )
    return dataclasses.replace(
        study,
        cells=dataclasses.replace(cells, rows=rows),
        entries=study.entries | {"tuning": tuning},
        notes=[*study.notes, f"{key} by tuning{rule}: {values}"],
    )


def refuse_other_choice(study: CheckedStudy, rows: list[records.Cell], chosen: dict[str, TunedCell]) -> None:
    """Raise PlanError if a cell that was scored at one value would now get another."""
    earlier = readable(study.results, study.name)
    if earlier is None or earlier.tuning is None:
        return
    before = {cell.label: earlier.tuning.cells.get(cell.id) for cell in earlier.cells}
    for row in rows:
        old = before.get(row.label)
        new = chosen[row.id]
        if old and old.value != new.value:
            message = f"{study.name} scored {row.label} at {study.settings.tune.key}={show(old.value)}, and tuning now "
            message += f"chooses {show(new.value)}; write another study=NAME, which trains what is not there"
            raise PlanError([Problem("study", message)])


def remarks(
    labels: list[str], key: str, grid: Grid, best: list[int], means: list[Means], extends: bool
) -> list[list[str]]:
    """Notes on cells that may not have found their best value; those with the same reason share a line."""
    doubts = []
    for i, scores in zip(best, means, strict=True):
        value = show(level(grid[i]))
        doubt = ""
        if scores[i] is None:
            doubt = f"runs diverged at every {key} that was tried; {value} is the first"
        elif at_edge(grid, i):
            side = "largest" if grid[i] == max(grid) else "smallest"
            how = "the grid goes no further by itself" if extends else "tune.extend=true extends the grid"
            doubt = f"the chosen {key} ({value}) is the {side} tried; {how}"
        doubts.append(doubt)
    sharing = grouped(zip(doubts, labels, strict=True))
    return [[f"{first_of(sharing[doubt], NAMED)}: {doubt}"] if doubt else [] for doubt in doubts]


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


def at_edge(grid: Grid, i: int) -> bool:
    """Whether a value is the smallest or largest of its grid; false if some values are not numbers."""
    return all(map(is_number, grid)) and grid[i] in (min(grid), max(grid))


def extended(grid: list[Any], requested: Sequence[Any], best: Iterable[int]) -> list[Any]:
    """The grid with another value on each side that has a best value at its end, by the ratio of the outermost two.
    Values have three digits; integers stay integers; at most LIMIT values are added on each side."""
    best_values = [grid[i] for i in best]
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


def tuning_problems(study: CheckedStudy) -> list[Problem]:
    """Problems of the `tune` keys, given a study and its earlier manifests."""
    tune = study.settings.tune
    earlier = readable(study.results, study.base)
    if tune.key is not None:
        problem = key_problem(study, tune.key) or values_problem(study) or history_problem(study, earlier)
        return [problem] if problem else []
    if tune.values or tune.extend or tune.rule != "best":
        return [Problem("tune.key", "is not given; write the key that is tuned, as in tune.key=optim.lr")]
    if earlier and earlier.tuning:
        message = f"{study.base} was tuned ({earlier.tuning.key}); give the same tune.key and tune.values"
        return [Problem("study", f"{message}, or write another name")]
    return []


def key_problem(study: CheckedStudy, key: str) -> Problem | None:
    """Why a key cannot be tuned: the first of these reasons that holds."""
    section = key.split(".")[0]
    match = study.settings.match
    typed_keys = [key_of(word) for word in shlex.split(study.command)]
    configs = [draft.config for draft in study.cells.drafts]
    keys = [{name for name in flat(config.as_json()) if "._" not in name} for config in configs]  # without targets
    lacking = [draft.label for draft, names in zip(study.cells.drafts, keys, strict=True) if key not in names]
    near = nearest(key, set().union(*keys))
    hint = f"did you mean {near}?" if near else "see ablate --help"
    is_group = key in COMPONENTS or isinstance(configs[0].as_json().get(key), dict)
    is_pattern = any(section in dict(patterned(config)) for config in configs)
    reasons = {
        "is empty; write the key to tune, as in tune.key=optim.lr, or leave it out": not key,
        f"{key} belongs to the whole study; tune a key of the model or of training, such as optim.lr": section in WHOLE,
        f"{key} is part of the budget, which all values share; tune a key of the model or of optim": section == "train",
        f"{key} changes what is scored; tune a key of the model or of training, such as optim.lr": section in UNSCORED,
        f"{key} is a group; sweep it ({key}=...), or tune one of its keys, such as {key}.KEY": is_group,
        f"{key} is swept already; leave it out of the sweep, or out of tune.key": key in study.cells.swept,
        f"{key} is given, too, and tuning chooses it for each configuration; leave {key}=... out": key in typed_keys,
        f"match={match} chooses {key} for each configuration; tune another key, or write match=none": key
        in CHOSEN.get(match, ()),
        f"{section} changes over the layers, where its keys cannot be tuned; tune another key": is_pattern,
        f"no such key: {key}; {hint}": len(lacking) == len(keys),
        f"{''.join(lacking[:1])} has no {key}; tune a key that every configuration has": bool(lacking),
    }
    for reason, holds in reasons.items():
        if holds:
            return Problem("tune.key", reason)
    return None


def values_problem(study: CheckedStudy) -> Problem | None:
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


def history_problem(study: CheckedStudy, earlier: Manifest | None) -> Problem | None:
    """Whether the study was scored with other tuning, or with none: its cells would be replaced after a look."""
    tuning = readable(study.results, f"{study.base}-tune")
    before = tuning.tune if tuning else None
    if before and before != tune_entry(study):
        text = f"{before.key} in {', '.join(map(show, before.values))}, {before.seeds} seeds"
        if before.extend:
            text += ", tune.extend=true"
        if before.rule != "best":
            text += f", tune.rule={before.rule}"
        message = f"{study.base} was tuned otherwise ({text}); tune as before, or write another study=NAME"
        return Problem("tune", message)
    if earlier and not earlier.tuning:
        return Problem("tune", f"{study.base} was trained without tuning; write another study=NAME")
    return None
