"""Tuning: one key brought to its best value for each cell, with the same budget for each, as a study of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from ablate import formatting
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import Config
from ablate.planning.cells import Cells
from ablate.planning.describe import recomposed
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.rounds.tuning_grid import at_edge, choose, extended, starting_grid
from ablate.planning.rounds.tuning_seeds import Shares, cost, seeds_of, tuning_name
from ablate.planning.runs import Plan, plan_runs
from ablate.planning.study import CheckedStudy
from ablate.results import records
from ablate.results.records import Cell, TunedCell, Tuning
from ablate.results.run import Run

Scores = list[list[float | None]]  # of each cell, at each value


def tuned(study: CheckedStudy) -> Generator[Plan, None, CheckedStudy]:
    """The plans of tuning until its grid is wide enough; returns the study with each cell at its best value."""
    tune, shares = study.settings.tune, seeds_of(study)
    grid = starting_grid(study.results, f"{tuning_name(study)}-tune", tune)
    tuning = tuning_study(study, grid, shares)
    while True:
        plan = plan_runs(tuning)
        yield plan
        rounds = {seed: chosen(study.cells, plan, own) for seed, own in shares.items()}
        live = [i for scores, best in rounds.values() for i, at in zip(best, scores, strict=True) if at[i] is not None]
        wider = extended(grid, tune.values, live) if tune.extend else grid
        try:
            following = tuning_study(study, wider, shares) if wider != grid else None
        except PlanError:  # some cell cannot be trained at every value
            following = None
        if following is None:
            break
        grid, tuning = wider, following
    # Who tunes sees every cell at every value: a claim that is written after that is post hoc, but for fresh seeds.
    fresh = bool(study.settings.confirm)
    if tune.per_seed:
        every = chosen(study.cells, plan, [seed for own in shares.values() for seed in own])[0]
        made = tuned_by_seed(study, grid, every, rounds)
    else:
        made = tuned_study(study, grid, *rounds[None])
    known = plan.manifest
    entries = made.entries if fresh else made.entries | {"margin": known.margin, "replicated": known.replicated}
    return dataclasses.replace(made, entries=entries, written={} if fresh else known.claims)


def chosen(cells: Cells, plan: Plan, seeds: list[int]) -> tuple[Scores, list[int]]:
    """Each cell's scores at each value over these tuning seeds, and which value is its best."""
    metrics = [f"val/{first_metric(cell.task)}" for cell in cells.checked]
    scores = read_scores(plan, metrics, seeds)
    return scores, [choose(at, lower_is_better(cell.task)) for at, cell in zip(scores, cells.checked, strict=True)]


def first_metric(task: Any) -> str:
    """The metric by which a task's variants are compared."""
    return str(next(iter(task.metrics)))


def lower_is_better(task: Any) -> bool:
    """Whether less of a task's first metric is better."""
    return bool(task.metrics[first_metric(task)] == "min")


def tuning_study(study: CheckedStudy, grid: Sequence[Any], shares: Shares) -> CheckedStudy:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune, whose = study.settings.tune, tuning_name(study)
    seeds = sorted(seed for own in shares.values() for seed in own)
    own: dict[str, Any] = {"study": f"{whose}-tune", "seeds": seeds, "confirm": None, "timing": "shared"}
    settings = dataclasses.replace(study.settings, **own)
    cells = tuning_cells(study.cells, settings, str(tune.key), grid)
    metrics = [f"val/{first_metric(cell.task)}" for cell in study.cells.checked]
    after = "placebos and " * bool(study.settings.placebo_seeds) + what_follows(study)
    told = f"tuning first: {tune.key} at {len(grid)} values for {formatting.counted(len(study.cells.rows), 'cell')}, "
    told += f"{formatting.counted(tune.seeds, 'seed')} each{cost(tune, shares, len(cells.rows))}, "
    told += f"by {' or '.join(dict.fromkeys(metrics))}; then: {after} at the tuned values"
    asked = records.Tune(**dataclasses.asdict(tune))
    entries = study.entries | {"tunes": whose, "tune": asked, "endpoint": metrics[0]}
    said = study.claims, study.replicated
    return CheckedStudy(study.command, settings, cells, entries, *said, notes=[told], more=True)


def tuning_cells(cells: Cells, settings: Config, key: str, grid: Sequence[Any]) -> Cells:
    """Every cell at every value, value by value.  Raises PlanError."""
    count = len(cells.rows)
    # Values are chosen by the validation split, so all that was asked for is scored of it.
    plain = [raw.with_value("eval.lengths", []).with_value("eval.val_share", 1.0) for raw in cells.raw]
    plain = [raw.with_value("timing", "shared") for raw in plain]  # which value is best is no matter of speed
    configs = [raw.with_value(key, value) for value in grid for raw in plain]
    shown = [level(value) for value in grid for _ in cells.raw]
    levels = [row.levels | {key: at} for row, at in zip(cells.rows * len(grid), shown, strict=True)]
    named = zip(cells.labels * len(grid), shown, strict=True)
    labels = [f"{label} + {key}={at}" if cells.factors else f"{key}={at}" for label, at in named]
    factors = cells.factors | {key: [level(value) for value in grid]}
    blocks = [cells.at if cells.factors else [-j] for j, _ in enumerate(grid)]
    at = [j * count + i for j, block in enumerate(blocks) for i in block]
    return recomposed(cells, settings, factors, cells.reference or {key: factors[key][0]}, configs, levels, labels, at)


def what_follows(study: CheckedStudy) -> str:
    """The study that comes after the rounds before it, in a few words."""
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
    key, labels = str(tune.key), before.labels
    configs = [raw.with_value(key, grid[i]) for raw, i in zip(before.raw, best, strict=True)]
    levels = [row.levels for row in before.rows]
    made = recomposed(before, study.settings, before.factors, before.reference, configs, levels, labels, before.at)
    doubts = remarks(labels, key, grid, best, scores, tune.extend)
    rows = [dataclasses.replace(row, notes=row.notes + told) for row, told in zip(made.rows, doubts, strict=True)]
    cells = {}
    for row, i, found in zip(rows, best, scores, strict=True):
        cells[row.id] = TunedCell(value=level(grid[i]), scores=found, edge=at_edge(grid, i))
    refuse_other_choice(study, rows, {row.id: {None: cells[row.id].value} for row in rows})
    values = [level(value) for value in grid]
    tuning = Tuning(key=key, values=values, seeds=tune.seeds, study=f"{study.base}-tune", cells=cells)
    chosen = ", ".join(f"{row.label} {formatting.show(cells[row.id].value)}" for row in rows)
    told = f"{key} by tuning: {chosen}"
    return with_tuning(study, dataclasses.replace(made, rows=rows), tuning, told)


def with_tuning(study: CheckedStudy, cells: Cells, tuning: Tuning, told: str) -> CheckedStudy:
    """A study with its cells as they were tuned, and what was tried for them."""
    entries = study.entries | {"tuning": tuning}
    return dataclasses.replace(study, cells=cells, entries=entries, notes=[*study.notes, told])


def remarks(
    labels: list[str], key: str, grid: Sequence[Any], best: list[int], scores: Scores, extends: bool
) -> list[list[str]]:
    """What to say of each cell whose best value is doubtful; cells of which the same is to be said share one line."""
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

    Cells are told apart from those that have one value for all seeds; their configuration shows the commonest.
    """
    tune, cells, rows, notes = study.settings.tune, dict[str, TunedCell](), [], []
    key = str(tune.key)
    for i, row in enumerate(study.cells.rows):
        best = {str(seed): at[i] for seed, (_, at) in rounds.items()}
        values, counts = {seed: level(grid[at]) for seed, at in best.items()}, Counter(best.values())
        told = ", ".join(f"{formatting.setting(level(grid[at]))} ({counts[at]})" for at in sorted(counts))
        edges = sum(at_edge(grid, at) for at in best.values())
        marked = hashlib.sha256(json.dumps([row.id, dataclasses.asdict(tune)]).encode()).hexdigest()[:10]
        doubt = f"{row.label}: the best {key} is at an edge of what was tried for {edges} of {len(best)} seeds"
        doubt += "; tune.extend=true goes on, for every cell alike" * (not tune.extend)
        config = row.config.with_value(key, grid[counts.most_common(1)[0][0]])
        rows.append(dataclasses.replace(row, id=f"c{marked}", config=config, notes=row.notes + [doubt] * bool(edges)))
        cells[f"c{marked}"] = TunedCell(value=told, values=values, scores=every[i], edge=bool(edges))
        notes.append(f"{row.label} {told}")
    refuse_other_choice(study, rows, {row.id: cells[row.id].values for row in rows})
    tuning = Tuning(
        key=key,
        values=[level(value) for value in grid],
        seeds=tune.seeds,
        per_seed=True,
        study=f"{tuning_name(study)}-tune",
        cells=cells,
    )
    said = f"{key} by tuning anew for each seed (in brackets: how many): {'; '.join(notes)}"
    return with_tuning(study, dataclasses.replace(study.cells, rows=rows), tuning, said)


def refuse_other_choice(study: CheckedStudy, rows: list[Cell], now: Mapping[str, Mapping[Any, Any]]) -> None:
    """Raise PlanError where a cell that was scored at one value would now have another; seed None stands for all."""
    key, earlier = study.settings.tune.key, read_earlier(study.results, study.name).manifest
    tried = earlier.tuning.cells if earlier and earlier.tuning else {}
    before = {cell.label: tried[cell.id] for cell in earlier.cells if cell.id in tried} if earlier else {}
    for row in rows:
        for seed, value in now[row.id].items():
            found = before.get(row.label)
            old = (found.value if seed is None else found.values.get(seed, value)) if found else value
            if old != value:
                which = f"{row.label}{f' seed {seed}' * (seed is not None)}"
                told = f"{study.name} scored {which} at {key}={formatting.show(old)}"
                told += f", and tuning now finds {formatting.show(value)} best"
                raise PlanError([Problem("study", f"{told}; write another study=NAME, which trains what is not there")])
