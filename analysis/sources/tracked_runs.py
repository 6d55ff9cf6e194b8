"""Runs of a tracking service as a study: their configuration says the factors, their history the metrics."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import pandas

from ablate.config.errors import Refused
from ablate.format import counted
from ablate.format.settings import flat, is_number
from ablate.results.study import Study
from analysis.escape import visible
from analysis.sources.columns import KEYS, WHOLE, asked_factors, choose_metrics, few, found_factors, levels
from analysis.sources.manifest import Origin, assemble
from analysis.sources.request import Asked
from analysis.sources.study_file import claimed_metrics, wanted_factors

STATES = {"finished": "done", "crashed": "failed", "failed": "failed", "killed": "failed"}
SEEDS = ("seed", "seed.init", "random_seed", "seed.seed", "seed.value")
OURS = {"params", "params_vs_reference", "shared_draws"}  # of the budget that our mirror logs
CARRIED = ("tokens", "seconds")  # beside the metrics, for the axes of curves

Row = dict[str, Any]


class Tracked(NamedTuple):
    """A run: `config` as it was logged, nested or not; `history` a row per step with `_step`, numbers only."""

    id: str
    name: str
    group: str
    job_type: str
    state: str
    created: str
    tags: list[str]
    config: Row
    summary: Row
    history: list[Row]


def study_of_runs(runs: list[Tracked], asked: Asked, origin: Origin, notes: list[str]) -> Study:
    """The study of tracked runs; `notes` say what was left out before.  Raises `Refused`."""
    runs, notes = _of_group(runs, asked), list(notes)
    mirrored = [run for run in runs if _is_mirrored(run)]
    told = [_mirrored(run) if len(mirrored) == len(runs) else _plain(run) for run in runs]
    seeded = [row for row in told if isinstance(row["seed"], int)]
    if not seeded:
        raise Refused(f"no run has a seed in its configuration; needed is one of {', '.join(SEEDS)}")
    if lost := [run.name for run, row in zip(runs, told, strict=True) if not isinstance(row["seed"], int)]:
        notes.append(f"{counted(len(lost), 'run')} without a seed left out: {few(lost)}")
    kept = [(run, row) for run, row in zip(runs, told, strict=True) if isinstance(row["seed"], int)]
    odd = {run.state for run, _ in kept} - {*STATES, "running", "pending"}
    for state in sorted(odd):
        names = [run.name for run, _ in kept if run.state == state]
        notes.append(f"{counted(len(names), 'run')} in the state {state}, counted as missing: {few(names)}")
    numbers = list(dict.fromkeys(name for run, _ in kept for row in (*run.history, run.summary) for name in row))
    logged_names = [name for name in numbers if not name.startswith("_")]
    metrics = choose_metrics(logged_names, list(asked.metrics), claimed_metrics(asked.described))
    settings = pandas.DataFrame([{name: _text(value) for name, value in row.items()} for _, row in kept]).fillna("")
    settings = settings.drop(columns=[name for name in settings if name in metrics])
    wanted = wanted_factors(asked, list(settings))
    if wanted:
        factors = asked_factors(list(settings), metrics, wanted)
    else:
        factors, _ = found_factors(settings.drop(columns="params", errors="ignore"), metrics)
    if not factors:
        raise Refused("no setting varies between the runs; name factors with --factors")
    typed = {name: levels(list(settings[name])) for name in factors}
    cells = list(zip(*typed.values(), strict=True))
    kept, cells, again = _newest(kept, cells)
    table = _logged(kept, metrics)
    for name in factors:
        column = [cell[factors.index(name)] for (run, _), cell in zip(kept, cells, strict=True) for _ in _steps(run)]
        table[name] = pandas.Series(column, table.index, dtype=object)
    table = table.reindex(columns=[*table.columns, *(name for name in metrics if name not in table)])
    table.index = pandas.Index(table["path"])
    return assemble(table, factors, metrics, asked, origin, [*notes, *again])


def _logged(runs: list[tuple[Tracked, Row]], metrics: list[str]) -> pandas.DataFrame:
    """A row per logged step, with what `_plain` or `_mirrored` tells of its run."""
    rows = [
        {"path": f"{run.name} ({run.id})", "seed": told["seed"], "status": told["status"], "params": told["params"]}
        | ({"batches": told["batches"]} if "batches" in told else {})
        | {"step": _step(logged, number)}
        | {name: _number(logged[name]) for name in (*CARRIED, *metrics) if name in logged}
        for run, told in runs
        for number, logged in enumerate(_steps(run))
    ]
    return pandas.DataFrame(rows)


def _of_group(runs: list[Tracked], asked: Asked) -> list[Tracked]:
    groups = list(dict.fromkeys(run.group for run in runs if run.group))
    if asked.group and asked.group not in groups:
        raise Refused(f"--group {asked.group}: there is no such group; there are {', '.join(groups) or 'none'}")
    ours = {run.group for run in runs if _is_mirrored(run)}
    if not asked.group and len(ours) > 1:
        raise Refused(f"the runs are of {len(ours)} studies; choose one with --group: {', '.join(sorted(ours))}")
    found = sorted(
        (run for run in runs if not asked.group or run.group == asked.group),
        key=lambda run: (_away(run), run.created),
    )
    if not found:
        raise Refused("there are no runs")
    return found


def _is_mirrored(run: Tracked) -> bool:
    """Whether our own mirror has written a run: people call settings of theirs `budget`, too."""
    budget = run.config.get("budget")
    return bool(run.job_type) and isinstance(budget, dict) and budget.keys() >= OURS


def _away(run: Tracked) -> float:
    """How far a run of our mirror is from the study's reference, whose first run comes first; 0 of others."""
    if not _is_mirrored(run):
        return 0.0
    budget = run.config["budget"]
    return abs(budget.get("params_vs_reference") or 0) + abs(1 - (budget.get("shared_draws") or 0))


def _plain(run: Tracked) -> Row:
    """Settings of any run, flat, with its seed and status."""
    config = flat(run.config)
    seeds = [seed for seed in (_whole(config.get(name)) for name in SEEDS) if seed is not None]
    settings = {name: value for name, value in config.items() if name not in SEEDS and not name.startswith("_")}
    taken = {*KEYS, *CARRIED} - {"cell"}  # columns of the table that this becomes
    settings = {f"config.{name}" if name in taken else name: value for name, value in settings.items()}
    status = STATES.get(run.state, "missing")
    return settings | {"seed": next(iter(seeds), None), "status": status, "params": math.nan}


def _mirrored(run: Tracked) -> Row:
    """What our own mirror says of a run: its factors are its tags, its group and job type the study and the cell."""
    config, budget = run.config, run.config["budget"]
    shared = [config.get("data"), (config.get("train") or {}).get("batch_size"), config.get("seed_data")]
    status = run.summary.get("status") or STATES.get(run.state, "missing")
    found: Row = {name: level for name, _, level in (tag.partition("=") for tag in run.tags) if level}
    found |= {"seed": _whole(config.get("seed")), "status": status, "params": budget.get("params")}
    return found | {"batches": json.dumps(shared, sort_keys=True)}


def _newest(
    kept: list[tuple[Tracked, Row]], cells: list[tuple[Any, ...]]
) -> tuple[list[tuple[Tracked, Row]], list[tuple[Any, ...]], list[str]]:
    """One run for each cell and seed, one that is done before others, of these the newest; a note on the rest."""
    best: dict[tuple[Any, ...], int] = {}
    order = [(row["status"] == "done", run.created, i) for i, (run, row) in enumerate(kept)]
    for i, ((_, row), cell) in enumerate(zip(kept, cells, strict=True)):
        key = (*cell, row["seed"])
        best[key] = max(best.get(key, i), i, key=lambda j: order[j])
    chosen = sorted(best.values())
    lost = [f"{run.name} ({run.id})" for i, (run, _) in enumerate(kept) if i not in set(chosen)]
    told = f"{counted(len(lost), 'run')} left out, whose cell and seed were run again: {few(lost)}"
    return [kept[i] for i in chosen], [cells[i] for i in chosen], [told] * bool(lost)


def _steps(run: Tracked) -> list[Row]:
    """The history, and at its last step what stands in the summary alone; one row of a run that logged nothing."""
    logged = {name for row in run.history for name in row}
    last = run.history[-1] if run.history else {"_step": run.summary.get("_step", 0)}
    return [*run.history[:-1], {name: v for name, v in run.summary.items() if name not in logged} | last]


def _step(logged: Row, number: int) -> float:
    """The step of a row of the history; its number where nothing says the step."""
    step = _number(logged.get("_step"))
    return step if math.isfinite(step) else float(number)


def _number(value: Any) -> float:
    """A logged number, infinite where it was not finite, NaN where it is none."""
    if not is_number(value):
        return math.inf if value in ("NaN", "Infinity", "-Infinity") else math.nan
    return float(value) if math.isfinite(value) else math.inf


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return "" if value is None else visible(str(value))


def _whole(value: Any) -> int | None:
    """A seed, also where it was logged as a text; None for what is none."""
    if isinstance(value, str) and WHOLE.fullmatch(value.strip()):
        value = int(value)
    known = is_number(value) and math.isfinite(value)
    return int(value) if known and value == int(value) and abs(value) < 2**63 else None
