"""Tuning: one key brought to its best value for each cell, with the same budget for each, as a separate study."""

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

from ablate import formatting
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import Config
from ablate.planning.describe import recomposed, reconfigured
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.rounds.tuning_grid import Shares, at_edge, choose, extended, seeds_of, starting_grid
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import Cells, CheckedStudy
from ablate.results import records
from ablate.results.records import TunedCell, Tuning
from ablate.results.run import Run

Scores = list[list[float | None]]  # of each cell, at each value


def tuned(study: CheckedStudy) -> Generator[Plan, None, CheckedStudy]:
    """The plans of tuning until its grid is wide enough; returns the study with each cell at its best value."""
    tune, shares, grid = study.settings.tune, seeds_of(study), starting_grid(study)
    tuning = tuning_study(study, grid, shares)
    while True:
        plan = plan_runs(tuning)
        yield plan
        rounds = {seed: chosen(study.cells, plan, own) for seed, own in shares.items()}
        live = [i for scores, best in rounds.values() for i, at in zip(best, scores, strict=True) if at[i] is not None]
        wider = extended(grid, tune.values, live) if tune.extend else grid
        if wider == grid:
            break
        try:
            tuning = tuning_study(study, wider, shares)
        except PlanError:  # some cell cannot be trained at every value
            break
        grid = wider
    if tune.per_seed:
        every = chosen(study.cells, plan, [seed for own in shares.values() for seed in own])[0]
        made = tuned_by_seed(study, grid, every, rounds)
    else:
        made = tuned_study(study, grid, *rounds[None])
    if study.settings.confirm:
        return made
    # Tuning shows every cell at every value: a claim that is written later is post hoc, except for fresh seeds.
    known = plan.manifest
    entries = made.entries | {"margin": known.margin, "replicated": known.replicated}
    return dataclasses.replace(made, entries=entries, written=known.claims)


def chosen(cells: Cells, plan: Plan, seeds: list[int]) -> tuple[Scores, list[int]]:
    """Each cell's scores at each value over these tuning seeds, and which value is its best by its task's metric."""
    metrics = [metric_of(cell.task) for cell in cells.checked]
    scores = read_scores(plan, metrics, seeds)
    lower = [
        cell.task.metrics[metric.partition("/")[2]] == "min"
        for cell, metric in zip(cells.checked, metrics, strict=True)
    ]
    return scores, [choose(at, low) for at, low in zip(scores, lower, strict=True)]


def metric_of(task: Any) -> str:
    """The metric by which a task's variants are tuned."""
    return f"val/{next(iter(task.metrics))}"


def tuning_study(study: CheckedStudy, grid: Sequence[Any], shares: Shares) -> CheckedStudy:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune, whose = study.settings.tune, study.tuning_name
    seeds = sorted(seed for own in shares.values() for seed in own)
    own: dict[str, Any] = {"study": f"{whose}-tune", "seeds": seeds, "confirm": None, "timing": "shared"}
    settings = dataclasses.replace(study.settings, **own)
    cells = tuning_cells(study.cells, settings, str(tune.key), grid)
    metrics = [metric_of(cell.task) for cell in study.cells.checked]
    after = "placebos and " * bool(study.settings.placebo_seeds) + summary_of(study)
    note = f"tuning first: {tune.key} at {len(grid)} values for {formatting.counted(len(study.cells.rows), 'cell')}, "
    note += f"{formatting.counted(tune.seeds, 'seed')} each"
    if tune.per_seed:
        runs = formatting.counted(len(cells.rows) * len(seeds), "run")
        cost = f"{runs}, {len(shares)} times the cost of tuning once"
        note += f" for each of {formatting.counted(len(shares), 'scored seed')} ({cost})"
    note += f", by {' or '.join(dict.fromkeys(metrics))}; then: {after} at the tuned values"
    entries = {"tunes": whose, "tune": records.Tune(**dataclasses.asdict(tune)), "endpoint": metrics[0]}
    registered = study.claims, study.replicated
    return CheckedStudy(study.command, settings, cells, study.entries | entries, *registered, notes=[note], more=True)


def tuning_cells(cells: Cells, settings: Config, key: str, grid: Sequence[Any]) -> Cells:
    """Every cell at every value, value by value.  Raises PlanError."""
    count = len(cells.rows)
    # Values are chosen by the whole validation split, and without regard to speed.
    plain = [raw.with_value("eval.lengths", []).with_value("eval.val_share", 1.0) for raw in cells.raw]
    plain = [raw.with_value("timing", "shared") for raw in plain]
    configs = [raw.with_value(key, value) for value in grid for raw in plain]
    shown = [level(value) for value in grid for _ in cells.raw]
    levels = [row.levels | {key: at} for row, at in zip(cells.rows * len(grid), shown, strict=True)]
    named = zip(cells.labels * len(grid), shown, strict=True)
    labels = [f"{label} + {key}={at}" if cells.factors else f"{key}={at}" for label, at in named]
    factors = cells.factors | {key: [level(value) for value in grid]}
    blocks = [cells.at if cells.factors else [-j] for j, _ in enumerate(grid)]
    at = [j * count + i for j, block in enumerate(blocks) for i in block]
    return recomposed(cells, settings, configs, factors, cells.reference or {key: factors[key][0]}, levels, labels, at)


def summary_of(study: CheckedStudy) -> str:
    """The cells and seeds of a study, in a few words."""
    seeds = study.settings.confirm or study.settings.seeds
    count = len(seeds) if isinstance(seeds, list) else seeds
    times = formatting.counted(count, "seed") if isinstance(count, int) else f"seeds={count}"
    cells = formatting.counted(len(study.cells.rows), "cell")
    return f"{cells} × {times}" + ", and exchange runs" * study.settings.step_equivalents


def level(value: Any) -> Any:
    """A value as a level of a factor."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def read_scores(plan: Plan, metrics: list[str], seeds: list[int]) -> Scores:
    """For each cell the mean of its metric over these tuning seeds at each value; None where a run diverged."""
    count, means = len(metrics), []
    for i, cell in enumerate(plan.manifest.cells):
        metric = metrics[i % count]  # its own task's: tasks can be scored by different ones
        paths = [run.path for run in plan.manifest.runs if run.cell == cell.id and run.seed in seeds]
        ended = [Run(plan.results, path).result() for path in paths]
        finals = [result.final.get(metric) if result else None for result in ended]
        known = [final for final in finals if final is not None]
        means.append(math.fsum(known) / len(known) if len(known) == len(finals) else None)
    return [means[i::count] for i in range(count)]


def tuned_study(study: CheckedStudy, grid: list[Any], scores: Scores, best: list[int]) -> CheckedStudy:
    """The study with each cell at its best value, and what was tried.  Raises PlanError."""
    tune, before = study.settings.tune, study.cells
    key = str(tune.key)
    configs = [raw.with_value(key, grid[i]) for raw, i in zip(before.raw, best, strict=True)]
    made = reconfigured(before, study.settings, configs)
    doubts = remarks(before.labels, key, grid, best, scores, tune.extend)
    rows = [dataclasses.replace(row, notes=row.notes + doubt) for row, doubt in zip(made.rows, doubts, strict=True)]
    cells = {
        row.id: TunedCell(value=level(grid[i]), scores=found, edge=at_edge(grid, i))
        for row, i, found in zip(rows, best, scores, strict=True)
    }
    values = ", ".join(f"{row.label} {formatting.show(cells[row.id].value)}" for row in rows)
    return with_tuning(study, dataclasses.replace(made, rows=rows), grid, cells, f"{key} by tuning: {values}")


def with_tuning(
    study: CheckedStudy, cells: Cells, grid: list[Any], found: dict[str, TunedCell], note: str
) -> CheckedStudy:
    """A study with its cells as they were tuned, and what was tried for them.

    Raises PlanError where a cell that was scored at one value would now have another.
    """
    tune, earlier = study.settings.tune, read_earlier(study.results, study.name).manifest
    tried = earlier.tuning.cells if earlier and earlier.tuning else {}
    before = {cell.label: tried[cell.id] for cell in earlier.cells if cell.id in tried} if earlier else {}
    for row in cells.rows:
        new, old = found[row.id], before.get(row.label, found[row.id])
        pairs = [(f" seed {seed}", old.values.get(seed, value), value) for seed, value in new.values.items()]
        for which, scored, value in pairs or [("", old.value, new.value)]:
            if scored != value:
                message = f"{study.name} scored {row.label}{which} at {tune.key}={formatting.show(scored)}, and tuning"
                message += f" now finds {formatting.show(value)} best; write another study=NAME, which trains what is"
                raise PlanError([Problem("study", f"{message} not there")])
    tuning = Tuning(
        key=str(tune.key),
        values=[level(value) for value in grid],
        seeds=tune.seeds,
        per_seed=tune.per_seed,
        study=f"{study.tuning_name}-tune",
        cells=found,
    )
    entries = study.entries | {"tuning": tuning}
    return dataclasses.replace(study, cells=cells, entries=entries, notes=[*study.notes, note])


def remarks(
    labels: list[str], key: str, grid: Sequence[Any], best: list[int], scores: Scores, extends: bool
) -> list[list[str]]:
    """Notes on cells whose best value is doubtful; those with the same reason share one line."""
    doubts = [doubt(key, grid, i, found[i] is None, extends) for i, found in zip(best, scores, strict=True)]
    sharing = {text: [label for label, other in zip(labels, doubts, strict=True) if other == text] for text in doubts}
    return [[f"{formatting.first_of(sharing[text], 4)}: {text}"] if text else [] for text in doubts]


def doubt(key: str, grid: Sequence[Any], i: int, diverged: bool, extends: bool) -> str:
    """Why a best value may not be the best, or nothing."""
    value = formatting.show(level(grid[i]))
    if diverged:
        return f"runs diverged at every {key} that was tried; {value} is the first"
    if not at_edge(grid, i):
        return ""
    side = "largest" if grid[i] == max(grid) else "smallest"
    how = "the grid goes no further by itself" if extends else "tune.extend=true goes on, for every cell alike"
    return f"the best {key} ({value}) is the {side} tried; {how}"


def tuned_by_seed(
    study: CheckedStudy, grid: list[Any], every: Scores, rounds: dict[Any, tuple[Scores, list[int]]]
) -> CheckedStudy:
    """The study with the best value of each cell for each scored seed by itself, and what was tried.

    Cells have other ids than those with one value for all seeds; their configuration shows the commonest.
    """
    tune, cells, rows, values = study.settings.tune, dict[str, TunedCell](), [], []
    key = str(tune.key)
    for i, row in enumerate(study.cells.rows):
        best = {str(seed): at[i] for seed, (_, at) in rounds.items()}
        counts = Counter(best.values())
        shown = ", ".join(f"{formatting.setting(level(grid[at]))} ({counts[at]})" for at in sorted(counts))
        edges = sum(at_edge(grid, at) for at in best.values())
        marked = "c" + hashlib.sha256(json.dumps([row.id, dataclasses.asdict(tune)]).encode()).hexdigest()[:10]
        doubt = f"{row.label}: the best {key} is at an edge of what was tried for {edges} of {len(best)} seeds"
        doubt += "; tune.extend=true goes on, for every cell alike" * (not tune.extend)
        config = row.config.with_value(key, grid[counts.most_common(1)[0][0]])
        rows.append(dataclasses.replace(row, id=marked, config=config, notes=row.notes + [doubt] * bool(edges)))
        own = {seed: level(grid[at]) for seed, at in best.items()}
        cells[marked] = TunedCell(value=shown, values=own, scores=every[i], edge=bool(edges))
        values.append(f"{row.label} {shown}")
    note = f"{key} by tuning anew for each seed (in brackets: how many): {'; '.join(values)}"
    return with_tuning(study, dataclasses.replace(study.cells, rows=rows), grid, cells, note)
