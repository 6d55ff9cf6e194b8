"""Tuning: one key brought to its best value for each cell, with the same budget for each, as a study of its own."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from ablate import format
from ablate.config.errors import PlanError, Problem
from ablate.planning.cells import Draft, recomposed
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.rounds.tuning_grid import at_edge, choose, extended, starting_grid
from ablate.planning.rounds.tuning_seeds import Shares, cost, seeds_of, tuning_name
from ablate.results.records import Cell, Manifest, Tune, TunedCell, Tuning
from ablate.results.run import Run

Scores = list[list[float | None]]  # of each cell, at each value


def with_value(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a configuration with one setting changed."""
    changed = copy.deepcopy(config)
    *path, last = key.split(".")
    node = changed
    for part in path:
        node = node[part]
    node[last] = value
    return changed


def tuned(draft: Draft, name: str) -> Generator[Draft, Manifest, Draft]:
    """Yields the tuning study until it is wide enough; returns the study's draft with each cell at its best value."""
    results = Path(draft.settings["results_dir"]).absolute()
    tune, shares = draft.settings["tune"], seeds_of(draft, name)
    grid = starting_grid(results, f"{tuning_name(draft, name)}-tune", tune)
    while True:
        manifest = yield tuning_study(draft, name, grid, shares)
        rounds = {seed: chosen(draft, results, manifest, own) for seed, own in shares.items()}
        live = [i for scores, best in rounds.values() for i, at in zip(best, scores, strict=True) if at[i] is not None]
        wider = extended(grid, tune["values"], live) if tune["extend"] else grid
        if wider == grid or not composes(draft, name, wider, shares):
            break
        grid = wider
    # Who tunes sees every cell at every value: a claim that is written after that is post hoc, but for fresh seeds.
    fresh = bool(draft.settings["confirm"])
    if tune["per_seed"]:
        every = chosen(draft, results, manifest, [seed for own in shares.values() for seed in own])[0]
        made = tuned_by_seed(draft, name, grid, every, rounds)
    else:
        made = tuned_study(draft, name, grid, *rounds[None])
    extra = made.extra if fresh else made.extra | {"margin": manifest.margin}
    return dataclasses.replace(made, extra=extra, written={} if fresh else manifest.claims)


def chosen(draft: Draft, results: Path, manifest: Manifest, seeds: list[int]) -> tuple[Scores, list[int]]:
    """Each cell's scores at each value over these tuning seeds, and which value is its best."""
    metrics = [f"val/{first_metric(cell.task)}" for cell in draft.checked]
    scores = read_scores(results, manifest, metrics, seeds)
    return scores, [choose(at, lower_is_better(cell.task)) for at, cell in zip(scores, draft.checked, strict=True)]


def composes(draft: Draft, name: str, grid: list[Any], shares: Shares) -> bool:
    """Whether every cell can be trained at every value."""
    try:
        tuning_study(draft, name, grid, shares)
    except PlanError:
        return False
    return True


def first_metric(task: Any) -> str:
    """The metric by which a task's variants are compared."""
    return str(next(iter(task.metrics)))


def lower_is_better(task: Any) -> bool:
    """Whether less of a task's first metric is better."""
    return bool(task.metrics[first_metric(task)] == "min")


def tuning_study(draft: Draft, name: str, grid: Sequence[Any], shares: Shares) -> Draft:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune, count = draft.settings["tune"], len(draft.rows)
    key = tune["key"]
    configs = [without_lengths(with_value(raw, key, value)) for value in grid for raw in draft.raw]
    shown = [level(value) for value in grid for _ in draft.raw]
    levels = [row.levels | {key: at} for row, at in zip(draft.rows * len(grid), shown, strict=True)]
    labels = [row.label for row in draft.rows] * len(grid)
    labels = [
        f"{label} + {key}={at}" if draft.factors else f"{key}={at}" for label, at in zip(labels, shown, strict=True)
    ]
    factors = draft.factors | {key: [level(value) for value in grid]}
    reference = draft.reference or {key: factors[key][0]}
    blocks = [draft.at if draft.factors else [-j] for j, _ in enumerate(grid)]
    at = [j * count + i for j, block in enumerate(blocks) for i in block]
    seeds, whose = sorted(seed for own in shares.values() for seed in own), tuning_name(draft, name)
    settings = draft.settings | {"study": f"{whose}-tune", "seeds": seeds, "confirm": None}
    by = " or ".join(dict.fromkeys(f"val/{first_metric(cell.task)}" for cell in draft.checked))
    made = recomposed(draft, settings, factors, reference, configs, levels, labels, at)
    after = "placebos and " * bool(draft.settings["aa"]) + what_follows(draft)
    told = f"tuning first: {key} at {len(grid)} values for {format.counted(count, 'cell')}, "
    told += f"{format.counted(tune['seeds'], 'seed')} each{cost(tune, shares, len(configs))}, by {by}; "
    told += f"then: {after} at the tuned values"
    extra = {"tunes": whose, "tune": Tune(**tune), "endpoint": f"val/{first_metric(draft.checked[0].task)}"}
    return dataclasses.replace(made, extra=draft.extra | extra, claims=draft.claims, notes=[told], more=True)


def what_follows(draft: Draft) -> str:
    """The study that comes after the rounds before it, in a few words."""
    seeds = draft.settings["confirm"] or draft.settings["seeds"]
    count = len(seeds) if isinstance(seeds, list) else seeds
    times = format.counted(count, "seed") if isinstance(count, int) else f"seeds={count}"
    return f"{format.counted(len(draft.rows), 'cell')} × {times}" + ", and exchange runs" * draft.settings["exchange"]


def without_lengths(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose model is tested at its training length alone."""
    return config | {"eval": config["eval"] | {"lengths": []}}


def level(value: Any) -> Any:
    """A value as a level of a factor."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def read_scores(results: Path, manifest: Manifest, metrics: list[str], seeds: list[int]) -> Scores:
    """For each cell the mean of its metric over these tuning seeds at each value; None where a run diverged."""
    count, means = len(metrics), []
    for i, cell in enumerate(manifest.cells):
        metric = metrics[i % count]  # its own task's: tasks can be scored by different ones
        paths = [run.path for run in manifest.runs if run.cell == cell.id and run.seed in seeds]
        ended = [Run(results, path).result() for path in paths]
        finals = [result.final.get(metric) if result else None for result in ended]
        known = [final for final in finals if final is not None]
        means.append(math.fsum(known) / len(known) if len(known) == len(finals) else None)
    return [means[i::count] for i in range(count)]


def tuned_study(draft: Draft, name: str, grid: list[Any], scores: Scores, best: list[int]) -> Draft:
    """The study's own draft with each cell at its best value, and what was tried.  Raises PlanError."""
    tune = draft.settings["tune"]
    key, levels = tune["key"], [row.levels for row in draft.rows]
    configs = [with_value(raw, key, grid[i]) for raw, i in zip(draft.raw, best, strict=True)]
    labels = [row.label for row in draft.rows]
    made = recomposed(draft, draft.settings, draft.factors, draft.reference, configs, levels, labels, draft.at)
    cells = {}
    for row, i, found in zip(made.rows, best, scores, strict=True):
        cells[row.id] = TunedCell(value=level(grid[i]), scores=found, edge=at_edge(grid, i))
    doubts = remarks(labels, key, grid, best, scores, tune["extend"])
    rows = [dataclasses.replace(row, notes=row.notes + doubt) for row, doubt in zip(made.rows, doubts, strict=True)]
    refuse_other_choice(draft, name, rows, {row.id: {None: cells[row.id].value} for row in rows})
    values = [level(value) for value in grid]
    tuning = Tuning(key=key, values=values, seeds=tune["seeds"], study=f"{name}-tune", cells=cells)
    chosen = ", ".join(f"{row.label} {format.show(cells[row.id].value)}" for row in rows)
    told = [*draft.notes, f"{key} by tuning: {chosen}"]
    extra = draft.extra | {"tuning": tuning}
    return dataclasses.replace(made, rows=rows, extra=extra, claims=draft.claims, notes=told)


def remarks(
    labels: list[str], key: str, grid: Sequence[Any], best: list[int], scores: Scores, extends: bool
) -> list[list[str]]:
    """What to say of each cell whose best value is doubtful; cells of which the same is to be said share one line."""
    doubts = [doubt(key, grid, i, found[i] is None, extends) for i, found in zip(best, scores, strict=True)]
    sharing = {text: [label for label, other in zip(labels, doubts, strict=True) if other == text] for text in doubts}
    return [[f"{listed(sharing[text])}: {text}"] if text else [] for text in doubts]


def doubt(key: str, grid: Sequence[Any], i: int, diverged: bool, extends: bool) -> str:
    """Why a best value may not be the best, or nothing."""
    value = format.show(level(grid[i]))
    if diverged:
        return f"runs diverged at every {key} that was tried; {value} is the first"
    if not at_edge(grid, i):
        return ""
    side = "largest" if grid[i] == max(grid) else "smallest"
    how = "the grid goes no further by itself" if extends else "tune.extend=true goes on, for every cell alike"
    return f"the best {key} ({value}) is the {side} tried; {how}"


def listed(names: list[str]) -> str:
    """Names in a row, the first of many."""
    return ", ".join(names[:4]) + f" and {len(names) - 4} more" * (len(names) > 4)


def tuned_by_seed(
    draft: Draft, name: str, grid: list[Any], every: Scores, rounds: dict[Any, tuple[Scores, list[int]]]
) -> Draft:
    """The study's own draft, with the best value of each cell for each scored seed by itself, and what was tried.

    Cells are told apart from those that have one value for all seeds; their configuration shows the commonest.
    """
    tune, cells, rows, notes = draft.settings["tune"], dict[str, TunedCell](), [], []
    key = tune["key"]
    for i, row in enumerate(draft.rows):
        best = {str(seed): at[i] for seed, (_, at) in rounds.items()}
        values, counts = {seed: level(grid[at]) for seed, at in best.items()}, Counter(best.values())
        told = ", ".join(f"{format.setting(level(grid[at]))} ({counts[at]})" for at in sorted(counts))
        edges = sum(at_edge(grid, at) for at in best.values())
        marked = hashlib.sha256(json.dumps([row.id, tune]).encode()).hexdigest()[:10]
        doubt = f"{row.label}: the best {key} is at an edge of what was tried for {edges} of {len(best)} seeds"
        doubt += "; tune.extend=true goes on, for every cell alike" * (not tune["extend"])
        config = with_value(row.config, key, grid[counts.most_common(1)[0][0]])
        rows.append(dataclasses.replace(row, id=f"c{marked}", config=config, notes=row.notes + [doubt] * bool(edges)))
        cells[f"c{marked}"] = TunedCell(value=told, values=values, scores=every[i], edge=bool(edges))
        notes.append(f"{row.label} {told}")
    refuse_other_choice(draft, name, rows, {row.id: cells[row.id].values for row in rows})
    study, values_tried = f"{tuning_name(draft, name)}-tune", [level(value) for value in grid]
    tuning = Tuning(key=key, values=values_tried, seeds=tune["seeds"], per_seed=True, study=study, cells=cells)
    said = f"{key} by tuning anew for each seed (in brackets: how many): {'; '.join(notes)}"
    extra = draft.extra | {"tuning": tuning}
    return dataclasses.replace(draft, rows=rows, extra=extra, notes=[*draft.notes, said])


def refuse_other_choice(draft: Draft, name: str, rows: list[Cell], now: dict[str, dict[Any, Any]]) -> None:
    """Raise PlanError where a cell that was scored at one value would now have another; seed None stands for all."""
    confirm, key = draft.settings["confirm"], draft.settings["tune"]["key"]
    full = f"{name}-confirm-{confirm}" if confirm else name
    earlier = read_earlier(Path(draft.settings["results_dir"]).absolute(), full)[0]
    if earlier is None or earlier.tuning is None:
        return
    tried = earlier.tuning.cells
    before = {cell.label: tried[cell.id] for cell in earlier.cells if cell.id in tried}
    for row in rows:
        for seed, value in now[row.id].items():
            found = before.get(row.label)
            old = value if found is None else found.value if seed is None else found.values.get(seed, value)
            if old != value:
                which = f"{row.label}{f' seed {seed}' * (seed is not None)}"
                told = (
                    f"{full} scored {which} at {key}={format.show(old)}, and tuning now finds {format.show(value)} best"
                )
                raise PlanError([Problem("study", f"{told}; write another study=NAME, which trains what is not there")])
