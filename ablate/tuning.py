"""Tuning: one key brought to its best value for each cell, with the same budget for each, as a study of its own."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from ablate import words
from ablate.cells import Draft, recomposed
from ablate.grid import at_edge, choose, extended, starting_grid
from ablate.history import read_earlier
from ablate.results import Run
from ablate.schema import TUNING_SEEDS, PlanError, Problem


def with_value(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a configuration with one setting changed."""
    changed = copy.deepcopy(config)
    *path, last = key.split(".")
    node = changed
    for part in path:
        node = node[part]
    node[last] = value
    return changed


def tuned(draft: Draft, name: str) -> Generator[Draft, dict[str, Any], Draft]:
    """Yields the tuning study until it is wide enough; returns the study's draft with each cell at its best value."""
    results = Path(draft.settings["results_dir"]).absolute()
    tune, lower = draft.settings["tune"], [lower_is_better(cell.task) for cell in draft.checked]
    metrics = [f"val/{first_metric(cell.task)}" for cell in draft.checked]
    grid = starting_grid(results, f"{name}-tune", tune)
    while True:
        manifest = yield tuning_study(draft, name, grid)
        scores = read_scores(results, manifest, metrics)
        best = [choose(found, less) for found, less in zip(scores, lower, strict=True)]
        live = [i for i, found in zip(best, scores, strict=True) if found[i] is not None]
        wider = extended(grid, tune["values"], live) if tune["extend"] else grid
        if wider == grid or not composes(draft, name, wider):
            break
        grid = wider
    # Who tunes sees every cell at every value: a claim that is written after that is post hoc, but for fresh seeds.
    fresh = bool(draft.settings["confirm"])
    made = tuned_study(draft, name, grid, scores, best)
    extra = made.extra if fresh else made.extra | {"margin": manifest.get("margin")}
    return dataclasses.replace(made, extra=extra, written={} if fresh else manifest["claims"])


def composes(draft: Draft, name: str, grid: list[Any]) -> bool:
    """Whether every cell can be trained at every value."""
    try:
        tuning_study(draft, name, grid)
    except PlanError:
        return False
    return True


def first_metric(task: Any) -> str:
    """The metric by which a task's variants are compared."""
    return str(next(iter(task.metrics)))


def lower_is_better(task: Any) -> bool:
    """Whether less of a task's first metric is better."""
    return bool(task.metrics[first_metric(task)] == "min")


def tuning_study(draft: Draft, name: str, grid: Sequence[Any]) -> Draft:
    """Every cell at every value, on tuning seeds and the validation split.  Raises PlanError."""
    tune, count = draft.settings["tune"], len(draft.rows)
    key = tune["key"]
    configs = [without_lengths(with_value(raw, key, value)) for value in grid for raw in draft.raw]
    shown = [level(value) for value in grid for _ in draft.raw]
    levels = [row["levels"] | {key: at} for row, at in zip(draft.rows * len(grid), shown, strict=True)]
    labels = [row["label"] for row in draft.rows] * len(grid)
    labels = [
        f"{label} + {key}={at}" if draft.factors else f"{key}={at}" for label, at in zip(labels, shown, strict=True)
    ]
    factors = draft.factors | {key: [level(value) for value in grid]}
    reference = draft.reference or {key: factors[key][0]}
    blocks = [draft.at if draft.factors else [-j] for j, _ in enumerate(grid)]
    at = [j * count + i for j, block in enumerate(blocks) for i in block]
    seeds = list(TUNING_SEEDS[: tune["seeds"]])
    settings = draft.settings | {"study": f"{name}-tune", "seeds": seeds, "confirm": None}
    by = " or ".join(dict.fromkeys(f"val/{first_metric(cell.task)}" for cell in draft.checked))
    made = recomposed(draft, settings, factors, reference, configs, levels, labels, at)
    after = "placebos and " * bool(draft.settings["aa"]) + what_follows(draft)
    told = f"tuning first: {key} at {len(grid)} values for {words.counted(count, 'cell')}, "
    told += f"{words.counted(len(seeds), 'seed')} each, by {by}; then: {after} at the tuned values"
    extra = {"tunes": name, "tune": tune, "endpoint": f"val/{first_metric(draft.checked[0].task)}"}
    return dataclasses.replace(made, extra=draft.extra | extra, claims=draft.claims, notes=[told], more=True)


def what_follows(draft: Draft) -> str:
    """The study that comes after the rounds before it, in a few words."""
    seeds = draft.settings["confirm"] or draft.settings["seeds"]
    count = len(seeds) if isinstance(seeds, list) else seeds
    times = words.counted(count, "seed") if isinstance(count, int) else f"seeds={count}"
    return f"{words.counted(len(draft.rows), 'cell')} x {times}" + ", and exchange runs" * draft.settings["exchange"]


def without_lengths(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose model is tested at its training length alone."""
    return config | {"eval": config["eval"] | {"lengths": []}}


def level(value: Any) -> Any:
    """A value as a level of a factor."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def read_scores(results: Path, manifest: dict[str, Any], metrics: list[str]) -> list[list[float | None]]:
    """For each cell the mean of its metric over tuning seeds at each value; None where a run diverged."""
    count, means = len(metrics), []
    for i, cell in enumerate(manifest["cells"]):
        metric = metrics[i % count]  # its own task's: tasks can be scored by different ones
        paths = [run["path"] for run in manifest["runs"] if run["cell"] == cell["id"]]
        finals = [(Run(results, path).result() or {"final": {}})["final"].get(metric) for path in paths]
        known = [final for final in finals if final is not None]
        means.append(math.fsum(known) / len(known) if len(known) == len(finals) else None)
    return [means[i::count] for i in range(count)]


def tuned_study(draft: Draft, name: str, grid: list[Any], scores: list[list[float | None]], best: list[int]) -> Draft:
    """The study's own draft with each cell at its best value, and what was tried.  Raises PlanError."""
    tune = draft.settings["tune"]
    key, levels = tune["key"], [row["levels"] for row in draft.rows]
    configs = [with_value(raw, key, grid[i]) for raw, i in zip(draft.raw, best, strict=True)]
    labels = [row["label"] for row in draft.rows]
    made = recomposed(draft, draft.settings, draft.factors, draft.reference, configs, levels, labels, draft.at)
    cells = {}
    for row, i, found in zip(made.rows, best, scores, strict=True):
        cells[row["id"]] = {"value": level(grid[i]), "scores": found, "edge": at_edge(grid, i)}
    for row, doubts in zip(made.rows, remarks(labels, key, grid, best, scores, tune["extend"]), strict=True):
        row["notes"] = row["notes"] + doubts
    refuse_other_choice(draft, name, made.rows, cells)
    values = [level(value) for value in grid]
    tuning = {"key": key, "values": values, "seeds": tune["seeds"], "study": f"{name}-tune", "cells": cells}
    chosen = ", ".join(f"{row['label']} {words.show(cells[row['id']]['value'])}" for row in made.rows)
    told = [*draft.notes, f"{key} by tuning: {chosen}"]
    return dataclasses.replace(made, extra=draft.extra | {"tuning": tuning}, claims=draft.claims, notes=told)


def remarks(
    labels: list[str], key: str, grid: Sequence[Any], best: list[int], scores: list[list[float | None]], extends: bool
) -> list[list[str]]:
    """What to say of each cell whose best value is doubtful; cells of which the same is to be said share one line."""
    doubts = [doubt(key, grid, i, found[i] is None, extends) for i, found in zip(best, scores, strict=True)]
    sharing = {text: [label for label, other in zip(labels, doubts, strict=True) if other == text] for text in doubts}
    return [[f"{listed(sharing[text])}: {text}"] if text else [] for text in doubts]


def doubt(key: str, grid: Sequence[Any], i: int, diverged: bool, extends: bool) -> str:
    """Why a best value may not be the best, or nothing."""
    value = words.show(level(grid[i]))
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


def refuse_other_choice(draft: Draft, name: str, rows: list[dict[str, Any]], cells: dict[str, Any]) -> None:
    """Raise PlanError where a cell that was scored at one value would now have another."""
    confirm, key = draft.settings["confirm"], draft.settings["tune"]["key"]
    full = f"{name}-confirm-{confirm}" if confirm else name
    earlier = read_earlier(Path(draft.settings["results_dir"]).absolute(), full)[0]
    tried = (earlier.get("tuning") or {}).get("cells", {})
    before = {cell["label"]: tried[cell["id"]]["value"] for cell in earlier.get("cells", []) if cell["id"] in tried}
    for row in rows:
        value = cells[row["id"]]["value"]
        if before.get(row["label"], value) != value:
            was, now = words.show(before[row["label"]]), words.show(value)
            told = f"{full} scored {row['label']} at {key}={was}, and tuning now finds {now} best"
            raise PlanError([Problem("study", f"{told}; write another study=NAME, which trains what is not there")])
