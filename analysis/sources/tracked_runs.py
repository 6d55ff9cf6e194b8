"""Runs of a tracking service: factors from their configuration, metrics from their history."""

import json
import math
from typing import Any, NamedTuple

import pandas

from ablate.config.errors import Refused
from ablate.formatting import counted, flat, is_number
from analysis.escape import visible
from analysis.sources.columns import KEYS, WHOLE, few
from analysis.sources.logged import AXES, Logged, number

STATES = {"finished": "done", "crashed": "failed", "failed": "failed", "killed": "failed"}
SEEDS = ("seed", "seed.init", "random_seed", "seed.seed", "seed.value")
BUDGET = {"params", "params_vs_reference", "shared_draws"}  # entries of `budget` in runs that ablate logged
FACTS = ("seed", "status", "params", "batches")  # columns of a run that are not settings

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


def logged_runs(runs: list[Tracked], group: str, notes: list[str]) -> Logged:
    """Tracked runs as two tables; `notes` are on runs already left out.  Raises `Refused`."""
    runs = _of_group([_visible(run) for run in runs], group)
    read = _ablate_row if all(map(_is_from_ablate, runs)) else _row
    rows = [(run, read(run)) for run in runs]
    seeded = [(run, row) for run, row in rows if row["seed"] is not None]
    if not seeded:
        raise Refused(f"no run has a seed in its configuration; needed is one of {', '.join(SEEDS)}")
    settings = [{name: _text(value) for name, value in row.items()} for _, row in seeded]
    table = pandas.DataFrame(settings, [f"{run.name} ({run.id})" for run, _ in seeded]).fillna("")
    table = table.assign(**{name: [row[name] for _, row in seeded] for name in FACTS if name in table})
    steps = [(row, *each) for row, (run, _) in enumerate(seeded) for each in enumerate(_steps(run))]
    curves = pandas.DataFrame([_numbers(step, place) for _, place, step in steps], [row for row, _, _ in steps])
    notes = list(notes)
    if unseeded := [run.name for run, row in rows if row["seed"] is None]:
        notes.append(f"{counted(len(unseeded), 'run')} without a seed left out: {few(unseeded)}")
    for state in sorted({run.state for run, _ in seeded} - {*STATES, "running", "pending"}):
        names = [run.name for run, _ in seeded if run.state == state]
        notes.append(f"{counted(len(names), 'run')} in the state {state}, counted as missing: {few(names)}")
    return Logged(table, curves, [run.created for run, _ in seeded], notes)


def _numbers(step: Row, place: int) -> dict[str, float]:
    """A row of the history as numbers, with its step, or its index if it has none."""
    names = [name for name in step if not name.startswith("_") and visible(name) == name]
    known = _number(step.get("_step"))
    return {name: _number(step[name]) for name in names} | {"step": known if math.isfinite(known) else float(place)}


def _visible(run: Tracked) -> Tracked:
    """A run with its names escaped for display in a terminal."""
    names = ("id", "name", "group", "job_type", "state", "created")
    texts: dict[str, Any] = {name: visible(getattr(run, name)) for name in names}
    config = {visible(str(key)): value for key, value in run.config.items()}
    return run._replace(**texts, tags=[visible(tag) for tag in run.tags], config=config)


def _of_group(runs: list[Tracked], group: str) -> list[Tracked]:
    groups = list(dict.fromkeys(run.group for run in runs if run.group))
    if group and group not in groups:
        raise Refused(f"--group {group}: there is no such group; there are {', '.join(groups) or 'none'}")
    studies = {run.group for run in runs if _is_from_ablate(run)}
    if not group and len(studies) > 1:
        raise Refused(f"the runs are of {len(studies)} studies; choose one with --group: {', '.join(sorted(studies))}")
    found = [run for run in runs if not group or run.group == group]
    found.sort(key=lambda run: (_reference_first(run), run.created))
    if not found:
        raise Refused("there are no runs")
    return found


def _is_from_ablate(run: Tracked) -> bool:
    """Whether ablate logged a run; a key `budget` alone is not enough, as users may have one."""
    budget = run.config.get("budget")
    if not (run.job_type and isinstance(budget, dict) and budget.keys() >= BUDGET):
        return False
    numbers = all(budget[name] is None or is_number(budget[name]) for name in BUDGET)
    return numbers and isinstance(run.config.get("train") or {}, dict)


def _reference_first(run: Tracked) -> float:
    """A sort key for runs that ablate logged, 0 for the reference, so that it comes first; 0 for other runs."""
    if not _is_from_ablate(run):
        return 0.0
    budget = run.config["budget"]
    return abs(budget.get("params_vs_reference") or 0) + abs(1 - (budget.get("shared_draws") or 0))


def _row(run: Tracked) -> Row:
    """The row of a run of another program: flat settings, seed and status."""
    config = flat(run.config)
    seeds = [seed for seed in (_whole(config.get(name)) for name in SEEDS) if seed is not None]
    taken = {*KEYS, *AXES} - {"cell"}  # column names with a meaning
    settings = {
        f"config.{name}" if name in taken else name: value
        for name, value in config.items()
        if name not in SEEDS and not name.startswith("_")
    }
    return settings | {"seed": next(iter(seeds), None), "status": STATES.get(run.state, "missing"), "params": math.nan}


def _ablate_row(run: Tracked) -> Row:
    """The row of a run that ablate logged: factors from its tags; its group is the study, its job type the cell."""
    config, budget = run.config, run.config["budget"]
    shared = [config.get("data"), (config.get("train") or {}).get("batch_size"), config.get("seed_data")]
    status = run.summary.get("status")
    if status not in ("done", "diverged", "failed"):
        status = STATES.get(run.state, "missing")
    found: Row = {name: level for name, _, level in (tag.partition("=") for tag in run.tags) if level}
    found |= {"seed": _whole(config.get("seed")), "status": status, "params": budget.get("params")}
    return found | {"batches": json.dumps(shared, sort_keys=True)}


def _steps(run: Tracked) -> list[Row]:
    """The history, with entries found only in the summary added to its last row; one row if the history is empty."""
    logged = {name for row in run.history for name in row}
    last = run.history[-1] if run.history else {"_step": run.summary.get("_step", 0)}
    return [*run.history[:-1], last | {name: value for name, value in run.summary.items() if name not in logged}]


def _number(value: Any) -> float:
    """A logged value as a number: infinite if not finite or too large, NaN if it is not a number."""
    if not is_number(value):
        return math.inf if value in ("NaN", "Infinity", "-Infinity") else math.nan
    return number(repr(value))


def _text(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, sort_keys=True)
    return "" if value is None else visible(str(value))


def _whole(value: Any) -> int | None:
    """A seed, also if it was logged as text; None if the value is not an integer."""
    if isinstance(value, str) and WHOLE.fullmatch(value.strip()):
        value = int(value)
    known = is_number(value) and math.isfinite(value)
    return int(value) if known and value == int(value) and abs(value) < 2**63 else None
