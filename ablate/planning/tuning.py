"""Tuning: chooses the best value of one key for each cell, with the same budget for each, as a separate study."""

import dataclasses
import json
import math
import shlex
import statistics
from collections.abc import Generator, Iterable, Sequence
from typing import Any, get_type_hints

import msgspec

from ablate import formatting
from ablate.config.claims import level, spell
from ablate.config.depth import patterned
from ablate.config.errors import PlanError, Problem
from ablate.config.key_checks import CHOSEN
from ablate.config.schema import COMPONENTS, SECTIONS, TUNING_SEEDS, WHOLE, Config
from ablate.formatting import flat, is_number, nearest
from ablate.planning.cells import recomposed, reconfigured
from ablate.planning.checks.validate import Checked
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy, Layout
from ablate.runs import records
from ablate.runs.folder import Run
from ablate.runs.records import TunedCell, Tuning

Grid = Sequence[Any]  # the values that are tried
Scores = list[list[float | None]]  # of each cell, at each value
Chosen = tuple[Scores, list[int]]  # with the index of each cell's best value

LIMIT = 4  # values by which a grid is extended, on each side
UNSCORED = ("eval", "data", "seed")  # sections that change what is scored, or the random numbers


def tuned(study: CheckedStudy) -> Generator[Plan, None, CheckedStudy]:
    """Yields the plans of tuning until the grid is wide enough; returns the study with each cell at its best value."""
    tune = study.settings.tune
    asked, earlier = typed_values(str(tune.key), tune.values), read_earlier(study.results, f"{study.base}-tune")
    tried = earlier.manifest.factors.get(str(tune.key), []) if earlier.manifest else []
    grid = tried if tune.extend and tried[: len(asked)] == asked else asked  # with what earlier commands have added
    tuning = tuning_study(study, grid)
    while True:
        plan = plan_runs(tuning)
        yield plan
        scores, best = chosen(study, plan, grid)
        # With one_se the grid has to go beyond the best mean, too.
        ends = [*zip(scores, best, strict=True)]
        ends += [(at, choose(at, is_loss(cell))) for at, cell in zip(scores, study.cells.checked, strict=True)]
        live = [i for at, i in ends if at[i] is not None]
        wider = extended(grid, asked, live) if tune.extend else grid
        if wider == grid:
            break
        try:
            tuning = tuning_study(study, wider)
        except PlanError:  # a cell cannot be trained at a new value
            break
        grid = wider
    made = tuned_study(study, grid, scores, best)
    if study.settings.confirm:
        return made
    # Tuning shows every cell: claims that are written later are post hoc, except for fresh seeds.
    known = plan.manifest
    entries = made.entries | {"margin": known.margin, "replicated": known.replicated}
    return dataclasses.replace(made, entries=entries, written=known.claims)


def chosen(study: CheckedStudy, plan: Plan, grid: Grid) -> Chosen:
    """Each cell's mean score over the tuning seeds at each value, and the index of its best value.

    The score is the first metric of the cell's task on the validation split, None if a run diverged.  With the rule
    `one_se` the smallest value counts as best whose mean difference to the best mean is within the standard error of
    that difference.
    """
    cells, rule, seeds = study.cells, study.settings.tune.rule, tuning_seeds(study)
    count, finals = len(cells.checked), list[list[Any]]()
    for i, cell in enumerate(plan.manifest.cells):
        metric = f"val/{next(iter(cells.checked[i % count].task.metrics))}"
        paths = [run.path for run in plan.manifest.runs if run.cell == cell.id and run.seed in seeds]
        ended = [Run(plan.results, path).result() for path in paths]
        finals.append([result.final.get(metric) if result else None for result in ended])
    means = [None if None in known else statistics.fmean(known) for known in finals]
    scores, best = [means[i::count] for i in range(count)], []
    for i, (made, at) in enumerate(zip(cells.checked, scores, strict=True)):
        best.append(top := choose(at, is_loss(made)))
        if rule == "one_se" and at[top] is not None:
            own = finals[i::count]
            near = [j for j, score in enumerate(at) if score is not None and is_near(own[j], own[top])]
            best[-1] = min(near, key=lambda j: grid[j])
    return scores, best


def is_loss(cell: Checked) -> bool:
    """Whether a smaller score of a cell's task is better."""
    return bool(next(iter(cell.task.metrics.values())) == "min")


def is_near(scores: list[Any], others: list[Any]) -> bool:
    """Whether scores of the same seeds differ on average by no more than the standard error of their difference."""
    apart = [one - other for one, other in zip(scores, others, strict=True)]
    return abs(statistics.mean(apart)) <= statistics.stdev(apart) / math.sqrt(len(apart))


def tuning_seeds(study: CheckedStudy) -> list[int]:
    """The seeds that try each value."""
    return list(TUNING_SEEDS[: study.settings.tune.seeds])


def tuning_study(study: CheckedStudy, grid: Grid) -> CheckedStudy:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune = study.settings.tune
    own: dict[str, Any] = {
        "study": f"{study.base}-tune",
        "seeds": tuning_seeds(study),
        "confirm": None,
        "timing": "shared",
    }
    settings = dataclasses.replace(study.settings, **own)
    cells = tuning_cells(study.cells, settings, str(tune.key), grid)
    metrics = [f"val/{next(iter(cell.task.metrics))}" for cell in study.cells.checked]
    configurations = formatting.counted(len(study.cells.rows), "configuration")
    note = f"tuning first: {tune.key} at {len(grid)} values for {configurations}, "
    note += f"{formatting.counted(tune.seeds, 'seed')} each"
    note += f", by {' or '.join(dict.fromkeys(metrics))}" + f", rule {tune.rule}" * (tune.rule != "best")
    note += f", with up to {2 * LIMIT} more at the ends" * tune.extend
    note += f"; then: {summary_of(study)} at the tuned values"
    entries = {"tunes": study.base, "tune": records.Tune(**dataclasses.asdict(tune)), "endpoint": metrics[0]}
    registered = study.claims, study.replicated
    return CheckedStudy(study.command, settings, cells, study.entries | entries, *registered, notes=[note], more=True)


def tuning_cells(cells: Cells, settings: Config, key: str, grid: Grid) -> Cells:
    """Every cell at every value, value by value.  Raises PlanError."""
    count = len(cells.rows)
    # Values are chosen by the whole validation split, regardless of speed.
    plain = [raw.with_value("eval.lengths", []).with_value("eval.val_share", 1.0) for raw in cells.raw]
    plain = [raw.with_value("timing", "shared") for raw in plain]
    configs = [raw.with_value(key, value) for value in grid for raw in plain]
    shown = [level(value) for value in grid for _ in cells.raw]
    levels = [row.levels | {key: at} for row, at in zip(cells.rows * len(grid), shown, strict=True)]
    named = zip(cells.labels * len(grid), map(spell, shown), strict=True)
    labels = [f"{label} + {key}={at}" if cells.factors else f"{key}={at}" for label, at in named]
    factors = cells.factors | {key: [level(value) for value in grid]}
    at = [j * count + i for j, _ in enumerate(grid) for i in cells.at] if cells.factors else [0] * len(grid)
    reference = cells.reference or {key: factors[key][0]}
    layout = Layout(factors, reference, cells.names * len(grid), labels, levels, at)
    return recomposed(cells, settings, configs, layout)


def summary_of(study: CheckedStudy) -> str:
    """The number of cells and seeds of a study, in words."""
    seeds = study.settings.confirm or study.settings.seeds
    count = len(seeds) if isinstance(seeds, list) else seeds
    times = formatting.counted(count, "seed") if isinstance(count, int) else f"seeds={count}"
    cells = formatting.counted(len(study.cells.rows), "configuration")
    return f"{cells} × {times}" + ", and references for other numbers of steps" * study.settings.step_equivalents


def tuned_study(study: CheckedStudy, grid: Grid, scores: Scores, best: list[int]) -> CheckedStudy:
    """The study with each cell at its best value, and the record of its tuning.  Raises PlanError."""
    tune, before = study.settings.tune, study.cells
    key = str(tune.key)
    configs = [raw.with_value(key, grid[i]) for raw, i in zip(before.raw, best, strict=True)]
    made = reconfigured(before, study.settings, configs)
    doubts = remarks(before.labels, key, grid, best, scores, tune.extend)
    rows = [dataclasses.replace(row, notes=row.notes + doubt) for row, doubt in zip(made.rows, doubts, strict=True)]
    each = zip(rows, best, scores, strict=True)
    cells = {row.id: TunedCell(value=level(grid[i]), scores=own, edge=at_edge(grid, i)) for row, i, own in each}
    values = ", ".join(f"{row.label} {formatting.show(cells[row.id].value)}" for row in rows)
    least = " (the smallest that differs from the best by no more than a standard error)" * (tune.rule == "one_se")
    return with_tuning(study, dataclasses.replace(made, rows=rows), grid, cells, f"{key} by tuning{least}: {values}")


def with_tuning(study: CheckedStudy, cells: Cells, grid: Grid, found: dict[str, TunedCell], note: str) -> CheckedStudy:
    """A study with tuned cells and the record of their tuning.  Raises PlanError if a cell that was scored at one value
    would now get another."""
    tune, earlier = study.settings.tune, read_earlier(study.results, study.name).manifest
    tried = earlier.tuning.cells if earlier and earlier.tuning else {}
    before = {cell.label: tried[cell.id] for cell in earlier.cells if cell.id in tried} if earlier else {}
    for row in cells.rows:
        new, old = found[row.id], before.get(row.label, found[row.id])
        if old.value != new.value:
            message = f"{study.name} scored {row.label} at {tune.key}={formatting.show(old.value)}, and tuning"
            message += f" now chooses {formatting.show(new.value)}; write another study=NAME, which trains what is"
            raise PlanError([Problem("study", f"{message} not there")])
    own: dict[str, Any] = {name: getattr(tune, name) for name in ("key", "seeds", "rule")}
    tuning = Tuning(**own, values=[level(value) for value in grid], study=f"{study.base}-tune", cells=found)
    entries = study.entries | {"tuning": tuning}
    return dataclasses.replace(study, cells=cells, entries=entries, notes=[*study.notes, note])


def remarks(labels: list[str], key: str, grid: Grid, best: list[int], scores: Scores, extends: bool) -> list[list[str]]:
    """Notes on cells that may not have found their best value; those with the same reason share a line."""
    doubts = []
    for i, found in zip(best, scores, strict=True):
        value, doubt = formatting.show(level(grid[i])), ""
        if found[i] is None:
            doubt = f"runs diverged at every {key} that was tried; {value} is the first"
        elif at_edge(grid, i):
            side = "largest" if grid[i] == max(grid) else "smallest"
            how = "the grid goes no further by itself" if extends else "tune.extend=true extends the grid"
            doubt = f"the chosen {key} ({value}) is the {side} tried; {how}"
        doubts.append(doubt)
    sharing = {text: [label for label, other in zip(labels, doubts, strict=True) if other == text] for text in doubts}
    return [[f"{formatting.first_of(sharing[text], 4)}: {text}"] if text else [] for text in doubts]


def typed_values(key: str, values: list[Any]) -> list[Any]:
    """The values converted to the key's type; those of components do not change.  Raises ValueError."""
    section, _, name = key.partition(".")
    kind, typed = get_type_hints(SECTIONS[section]).get(name, Any) if section in SECTIONS else Any, []
    for value in values:
        try:
            typed.append(msgspec.convert(value, kind, strict=False))
        except msgspec.ValidationError:
            raise ValueError(f"{value!r} is not a value of {key}") from None
    return typed


def choose(scores: Sequence[float | None], lower: bool) -> int:
    """Index of the best score, the first of equal ones; None (a diverged run) is the worst."""
    ranked = [math.inf if score is None else score if lower else -score for score in scores]
    return min(range(len(ranked)), key=lambda i: (scores[i] is None, ranked[i], i))


def at_edge(grid: Grid, i: int) -> bool:
    """Whether a value is the smallest or largest of its grid; false if some values are not numbers."""
    return all(map(is_number, grid)) and grid[i] in (min(grid), max(grid))


def extended(grid: list[Any], given: Sequence[Any], best: Iterable[int]) -> list[Any]:
    """The grid with another value on each side that has a best value at its end, by the ratio of the outermost two.
    Values have three digits; integers stay integers; at most LIMIT values are added on each side."""
    chosen, wider = {grid[i] for i in best}, list(grid)
    for outer, inner in ((0, 1), (-1, -2)):
        ordered = sorted(grid)
        end, ratio = ordered[outer], ordered[outer] / ordered[inner]
        added = sum(value < min(given) if outer == 0 else value > max(given) for value in grid)
        new: float = float(f"{end * ratio:.3g}")
        if all(isinstance(value, int) for value in grid):
            new = round(new)
        if end in chosen and added < LIMIT and new > 0 and new not in grid:
            wider.append(new)
    return wider


def tuning_problems(study: CheckedStudy) -> list[Problem]:
    """Problems of the `tune` keys, given a study and its earlier manifests."""
    tune, earlier = study.settings.tune, read_earlier(study.results, study.base).manifest
    if tune.key is None:
        if tune.values or tune.extend or tune.rule != "best":
            return [Problem("tune.key", "is not given; write the key that is tuned, as in tune.key=optim.lr")]
        if earlier and earlier.tuning:
            message = f"{study.base} was tuned ({earlier.tuning.key}); give the same tune.key and tune.values"
            return [Problem("study", f"{message}, or write another name")]
        return []
    if found := key_problems(study, tune.key):
        return found
    try:
        values = typed_values(tune.key, tune.values)
        if len({json.dumps(value) for value in values}) < max(2, len(values)):
            example = f"tune.key={tune.key} tune.values=[1e-3,3e-3,1e-2]"
            message = f"{tune.values} must be at least two different values, as in {example}"
            found.append(Problem("tune.values", message))
        elif tune.extend and not all(is_number(value) and value > 0 for value in values):
            message = "goes on by the ratio of the outermost two values, which must be numbers > 0"
            found.append(Problem("tune.extend", message))
        elif tune.rule == "one_se" and (tune.seeds < 2 or not all(map(is_number, values))):
            found.append(Problem("tune.rule", "one_se needs numbers, and tune.seeds=2 or more; leave it out"))
    except ValueError as error:
        found.append(Problem("tune.values", str(error)))
    if found:
        return found
    # The study was scored with other tuning, or with none: its cells would be replaced after a look.
    before = read_earlier(study.results, f"{study.base}-tune").manifest
    known = before.tune if before else None
    if known and known != records.Tune(**dataclasses.asdict(tune)):
        was = f"{known.key} in {', '.join(map(formatting.show, known.values))}, {known.seeds} seeds"
        was += ", tune.extend=true" * known.extend
        was += f", tune.rule={known.rule}" * (known.rule != "best")
        message = f"{study.base} was tuned otherwise ({was}); tune as before, or write another study=NAME"
        found.append(Problem("tune", message))
    elif earlier and not earlier.tuning:
        found.append(Problem("tune", f"{study.base} was trained without tuning; write another study=NAME"))
    return found


def key_problems(study: CheckedStudy, key: str) -> list[Problem]:
    """Why a key cannot be tuned: the first of these reasons that holds."""
    section, match = key.split(".")[0], study.settings.match
    typed = [word.partition("=")[0].lstrip("+") for word in shlex.split(study.command)]
    names = [{name for name in flat(raw.as_json()) if "._" not in name} for raw in study.cells.raw]  # without targets
    lacking = [label for label, known in zip(study.cells.labels, names, strict=True) if key not in known]
    near = nearest(key, set().union(*names))
    hint = f"did you mean {near}?" if near else "see ablate --help"
    is_group = key in COMPONENTS or isinstance(study.cells.raw[0].as_json().get(key), dict)
    matched = key in CHOSEN.get(match, ())
    mixed = any(section in dict(patterned(raw)) for raw in study.cells.raw)
    reasons = {
        "is empty; write the key to tune, as in tune.key=optim.lr, or leave it out": not key,
        f"{key} belongs to the whole study; tune a key of the model or of training, such as optim.lr": section in WHOLE,
        f"{key} is part of the budget, which all values share; tune a key of the model or of optim": section == "train",
        f"{key} changes what is scored; tune a key of the model or of training, such as optim.lr": section in UNSCORED,
        f"{key} is a group; sweep it ({key}=...), or tune one of its keys, such as {key}.KEY": is_group,
        f"{key} is swept already; leave it out of the sweep, or out of tune.key": key in study.cells.swept,
        f"{key} is given, too, and tuning chooses it for each configuration; leave {key}=... out": key in typed,
        f"match={match} chooses {key} for each configuration; tune another key, or write match=none": matched,
        f"{section} changes over the layers, where its keys cannot be tuned; tune another key": mixed,
        f"no such key: {key}; {hint}": len(lacking) == len(names),
        f"{''.join(lacking[:1])} has no {key}; tune a key that every configuration has": bool(lacking),
    }
    return [Problem("tune.key", reason) for reason, holds in reasons.items() if holds][:1]
