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
    runs = _of_group([_seen(run) for run in runs], asked)
    read = _mirrored if all(map(_is_mirrored, runs)) else _plain
    told = [(run, read(run)) for run in runs]
    kept = [(run, row) for run, row in told if row["seed"] is not None]
    if not kept:
        raise Refused(f"no run has a seed in its configuration; needed is one of {', '.join(SEEDS)}")
    metrics = choose_metrics(_logged_names(kept), list(asked.metrics), claimed_metrics(asked.described))
    settings = pandas.DataFrame([{name: _text(value) for name, value in row.items()} for _, row in kept]).fillna("")
    settings = settings.drop(columns=[name for name in settings if name in metrics])
    if wanted := wanted_factors(asked, list(settings)):
        factors = asked_factors(list(settings), metrics, wanted)
    else:
        factors, _ = found_factors(settings.drop(columns="params", errors="ignore"), metrics)
    if not factors:
        raise Refused("no setting varies between the runs; name factors with --factors")
    cells = list(zip(*(levels(settings[name]) for name in factors), strict=True))
    newest, again = _newest(kept, cells)
    table = _logged([kept[i] for i in newest], metrics)
    for place, name in enumerate(factors):
        column = [cells[i][place] for i in newest for _ in _steps(kept[i][0])]
        table[name] = pandas.Series(column, table.index, dtype=object)
    table.index = pandas.Index(table["path"])
    return assemble(table, factors, metrics, asked, origin, [*notes, *_left_out(told), *again])


def _seen(run: Tracked) -> Tracked:
    """A run whose names, which people read, hold nothing that acts."""
    names = ("id", "name", "group", "job_type", "state", "created")
    told: dict[str, Any] = {name: visible(getattr(run, name)) for name in names}
    config = {visible(str(key)): value for key, value in run.config.items()}
    return run._replace(**told, tags=[visible(tag) for tag in run.tags], config=config)


def _left_out(told: list[tuple[Tracked, Row]]) -> list[str]:
    """What to say of runs without a seed, and of those in a state that is not known."""
    lost = [run.name for run, row in told if row["seed"] is None]
    notes = [f"{counted(len(lost), 'run')} without a seed left out: {few(lost)}"] * bool(lost)
    states = [(run.state, run.name) for run, row in told if row["seed"] is not None]
    for state in sorted({state for state, _ in states} - {*STATES, "running", "pending"}):
        names = [name for own, name in states if own == state]
        notes.append(f"{counted(len(names), 'run')} in the state {state}, counted as missing: {few(names)}")
    return notes


def _logged_names(runs: list[tuple[Tracked, Row]]) -> list[str]:
    names = dict.fromkeys(name for run, _ in runs for row in (*run.history, run.summary) for name in row)
    return [name for name in names if not name.startswith("_") and visible(name) == name]


def _logged(runs: list[tuple[Tracked, Row]], metrics: list[str]) -> pandas.DataFrame:
    """A row per logged step, with what `_plain` or `_mirrored` tells of its run."""
    rows = [
        {"path": f"{run.name} ({run.id})"}
        | {name: told[name] for name in ("seed", "status", "params", "batches") if name in told}
        | {"step": _step(logged, number)}
        | {name: _number(logged[name]) for name in CARRIED if name in logged}
        | {name: _number(logged.get(name)) for name in metrics}
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
    if not (run.job_type and isinstance(budget, dict) and budget.keys() >= OURS):
        return False
    numbers = all(budget[name] is None or is_number(budget[name]) for name in OURS)
    return numbers and isinstance(run.config.get("train") or {}, dict)


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
    said = run.summary.get("status")
    status = said if said in ("done", "diverged", "failed") else STATES.get(run.state, "missing")
    found: Row = {name: level for name, _, level in (tag.partition("=") for tag in run.tags) if level}
    found |= {"seed": _whole(config.get("seed")), "status": status, "params": budget.get("params")}
    return found | {"batches": json.dumps(shared, sort_keys=True)}


def _newest(kept: list[tuple[Tracked, Row]], cells: list[tuple[Any, ...]]) -> tuple[list[int], list[str]]:
    """The place of one run for each cell and seed, one that is done before others, of these the newest.

    With it a note on the rest.
    """
    order = sorted(range(len(kept)), key=lambda i: (kept[i][1]["status"] == "done", kept[i][0].created))
    best = {(*cells[i], kept[i][1]["seed"]): i for i in order}
    chosen = sorted(best.values())
    lost = [f"{kept[i][0].name} ({kept[i][0].id})" for i in sorted({*order} - {*chosen})]
    told = f"{counted(len(lost), 'run')} left out, whose cell and seed were run again: {few(lost)}"
    return chosen, [told] * bool(lost)


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
