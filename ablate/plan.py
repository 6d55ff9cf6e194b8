"""From a command line to a study: its cells, checked before anything trains, its seeds, its runs, what is done."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import platform
import shlex
from pathlib import Path
from typing import Any

import torch

from ablate.catalogue import shadowed
from ablate.cells import (
    Draft,
    choose_reference,
    describe_cells,
    describe_task,
    references,
    slow_starts,
)
from ablate.compose import COMPOSING, Command, Composed, Composer, level_of, name_cell, parse
from ablate.gate import Gate
from ablate.history import choose_seeds, other_looks, read_earlier, status_of, to_test, without_weights
from ablate.identity import cell_name, numbers, run_key
from ablate.match import contradictions, match_cells
from ablate.results import now
from ablate.rounds import rounds_of
from ablate.schema import COMPONENTS, PlanError, Problem
from ablate.settings import study_problems
from ablate.trials import try_out


@dataclasses.dataclass
class Plan:
    """A checked study: its manifest, as it will be written, the state of its runs, and what to tell the user."""

    results: Path
    manifest: dict[str, Any]
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done but for eval.lengths
    notes: list[str]
    dry_run: bool
    more: bool = False  # whether another round of the same command comes after this one

    @property
    def folder(self) -> Path:
        """The results folder as people name it: from where they are, if it lies below."""
        here = Path.cwd()
        return self.results.relative_to(here) if self.results.is_relative_to(here) else self.results

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to train (those without a result, and failed ones again), or only to test."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed", "untested")]


@functools.lru_cache(maxsize=4)
def plan_study(overrides: tuple[str, ...], config_dir: str | None = None) -> Plan:
    """Compose and check a whole command line, and plan its next round; nothing is trained or written.

    Raises PlanError.  A round is a study of its own: tuning, placebos, then the study that was asked for.
    """
    rounds = rounds_of(draft_study(list(overrides), config_dir))
    plan = settle(next(rounds))
    while not plan.todo and (draft := next(rounds, None)):
        plan = settle(draft)
    return plan


def draft_study(overrides: list[str], config_dir: str | None) -> Draft:
    """The study that a command line asks for, every cell of it composed and checked.  Raises PlanError."""
    cells, settings, swept = compose_cells(overrides, config_dir)
    gate = Gate()
    checked = [gate.admit(composed.config) for composed in cells]
    problems = gate.problems + study_problems(settings)
    problems += contradictions(settings["match"], overrides, swept)
    if problems:
        raise PlanError(problems)
    passed = [cell for cell in checked if cell is not None]
    factors = {key: list(dict.fromkeys(level_of(cell, key) for cell in cells)) for key in swept}
    reference = choose_reference(factors, settings["reference"])
    levels = [{key: level_of(cell, key) for key in factors} for cell in cells]
    labels = [name_cell(cell, level) for cell, level in zip(cells, levels, strict=True)]
    at = references(levels, reference)
    passed, matched = match_cells(settings["match"], passed, labels, at, gate)
    if gate.problems:
        raise PlanError(gate.problems)
    names = [cell_name(composed.choices) for composed in cells]
    rows = describe_cells(passed, names, levels, labels, at, matched)
    notes = try_out(rows, passed, settings)
    command = shlex.join(
        ["python", "-m", "ablate"]
        + ["-m"] * bool(swept)
        + (["--config-dir", config_dir] if config_dir else [])
        + overrides
    )
    return Draft(command, settings, factors, reference, rows, passed, notes=notes)


def compose_cells(overrides: list[str], config_dir: str | None) -> tuple[list[Composed], dict[str, Any], list[str]]:
    """Every cell, the configuration that holds the study's own keys, and the swept keys.  Raises PlanError."""
    command = parse(overrides, config_dir)
    problems = list(command.problems)
    if config_dir is not None and not (config_dir and Path(config_dir).is_dir()):
        raise PlanError([Problem("--config-dir", f"{config_dir!r} is no folder")])
    for file in shadowed(config_dir) if config_dir else []:
        problems.append(Problem("--config-dir", f"{file} has the name of a variant of ablate's; give it another"))
    with Composer(config_dir) as composer:
        try:
            cells = [composed for _, composed in composer.cells(command)]
        except COMPOSING as error:
            found, command = composer.blame(command)
            cells = compose_rest(composer, command)
            problems += found or [Problem("", str(error).strip().split("\n")[0])]
    if problems:  # what can be composed is checked all the same, so that every mistake is told at once
        gate = Gate()
        for cell in cells:
            gate.admit(cell.config)
        raise PlanError(problems + gate.problems + (study_problems(cells[0].config) if cells else []))
    return cells, cells[0].config, list(command.swept)


def compose_rest(composer: Composer, command: Command) -> list[Composed]:
    """The cells of a command without its bad overrides, or none when those that are left do not go together."""
    try:
        return [composed for _, composed in composer.cells(command)]
    except COMPOSING:
        return []


def settle(draft: Draft) -> Plan:
    """The plan of a draft: name, seeds, runs and units, beside what an earlier command of this study left."""
    settings, factors, rows, checked = draft.settings, draft.factors, draft.rows, draft.checked
    results = Path(settings["results_dir"]).absolute()
    base = settings["study"] or study_name(draft)
    name = f"{base}-confirm-{settings['confirm']}" if settings["confirm"] else base
    earlier, notes = read_earlier(results, name)
    notes = [*draft.notes, *notes]
    refuse_replacing(name, {cell["id"] for cell in earlier.get("cells", [])} - {row["id"] for row in rows})
    if settings["confirm"] and not (results / "studies" / base).exists():
        notes.append(f"{base} was never trained here, so there is nothing yet that this could confirm")
    seeds = choose_seeds(results, settings, base, earlier, [row["name"] for row in rows])
    own_looks = [look for look in earlier.get("looks", []) if "study" not in look]
    kept = {seed for look in own_looks for seed in look["seeds"]} - set(seeds)
    if kept:
        notes.append(f"seeds {', '.join(map(str, sorted(kept)))} were looked at before and stay in the study")
    seeds = sorted({*seeds, *kept})
    runs = [
        {"cell": row["id"], "seed": seed, "path": f"{row['name']}/{run_key(cell.config, seed, row['task'])}"}
        for seed in seeds
        for row, cell in zip(rows, checked, strict=True)
    ]
    manifest = {
        "study": name,
        "created": earlier.get("created") or now(),
        "updated": now(),
        "command": draft.command,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "design": settings["design"],
        "factors": factors,
        "components": [key for key in factors if key in COMPONENTS],
        "reference": draft.reference,
        "match": settings["match"],
        "claims": {},
        "seeds": seeds,
        "confirms": base if settings["confirm"] else None,
        "looks": own_looks + other_looks(results, name, runs),
        "tasks": {cell.task.fingerprint: describe_task(cell.task) for cell in checked},
        "cells": rows,
        "runs": runs,
        "units": {unit_name([run["path"]]): [run["path"]] for run in runs},
    }
    notes += slow_starts([cell.config for cell in checked])
    statuses = {run["path"]: status_of(results, run["path"], notes) for run in runs}
    if settings["keep"] != "none" and (bare := without_weights(results, statuses)):
        notes.append(f"{bare} of these runs ended without weights, under keep=none, and are not trained again for them")
    statuses |= to_test(results, manifest, statuses, notes)
    return Plan(results, manifest, statuses, notes, settings["dry_run"], draft.more)


def unit_name(paths: list[str]) -> str:
    """A unit's name, from its runs: it means the same in every manifest that another command writes meanwhile."""
    return "u" + hashlib.sha256("\n".join(paths).encode()).hexdigest()[:12]


def refuse_replacing(name: str, gone: set[str]) -> None:
    """Raise PlanError for a study whose cells would not be added to but replaced."""
    if gone:
        message = f"{name} holds {len(gone)} other cell{'s' * (len(gone) > 1)}; add to its cells, or write another name"
        raise PlanError([Problem("study", message)])


def study_name(draft: Draft) -> str:
    """The factors and a hash of everything but the seeds."""
    cells = [[numbers(row["config"]), row["task"]] for row in draft.rows]
    content = json.dumps([draft.factors, draft.reference, draft.settings["match"], cells])
    head = "-".join(key.replace("/", "_") for key in draft.factors) or "single"
    return f"{head[:60]}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
