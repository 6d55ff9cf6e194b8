"""From a command line to a study: its cells, checked before anything trains, its seeds, its runs, what is done."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import torch

from ablate.catalogue import shadowed
from ablate.compose import COMPOSING, Command, Composed, Composer, level_of, name_cell, parse
from ablate.gate import Checked, Gate
from ablate.history import choose_seeds, other_looks, read_earlier, status_of, to_test, without_weights
from ablate.identity import batches, cell_name, numbers, run_key
from ablate.match import contradictions, match_cells, remark
from ablate.model.init import shared_draws
from ablate.results import now
from ablate.schema import COMPONENTS, Problem


class PlanError(Exception):
    """The command line is wrong; `problems` says how, one line each."""

    def __init__(self, problems: list[Problem]):
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


@dataclasses.dataclass
class Plan:
    """A checked study: its manifest, as it will be written, the state of its runs, and what to tell the user."""

    results: Path
    manifest: dict[str, Any]
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done but for eval.lengths
    notes: list[str]
    dry_run: bool

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
    """Compose and check a whole command line; nothing is trained or written.  Raises PlanError."""
    cells, settings, swept = compose_cells(list(overrides), config_dir)
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
    names = [name_cell(cell, level) for cell, level in zip(cells, levels, strict=True)]
    at = references(levels, reference)
    passed, matched = match_cells(settings["match"], passed, names, at, gate)
    if gate.problems:
        raise PlanError(gate.problems)
    rows = describe_cells(cells, passed, levels, names, at, matched)
    refuse_duplicates(rows, passed)
    command = shlex.join(
        ["python", "-m", "ablate"]
        + ["-m"] * bool(swept)
        + (["--config-dir", config_dir] if config_dir else [])
        + list(overrides)
    )
    return settle(command, settings, factors, reference, rows, passed)


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


def study_problems(config: dict[str, Any]) -> list[Problem]:
    """Problems of the keys that belong to the study and not to a cell."""
    found, seeds, name = [], config["seeds"], config["study"]
    if isinstance(seeds, bool) or not (isinstance(seeds, int) or is_seed_list(seeds)):
        found.append(
            Problem("seeds", f"{seeds!r} is neither a number of seeds nor a list; write seeds=5 or seeds=[3,7]")
        )
    elif isinstance(seeds, int) and seeds < 1:
        found.append(Problem("seeds", f"{seeds} seeds train nothing; write at least 1"))
    if name is not None and not re.fullmatch(r"(?=.*\w)[\w.-]{1,100}", name):
        found.append(Problem("study", f"{name!r} cannot name a folder; use up to 100 letters, digits, '.', '_', '-'"))
    if None not in config["seed"].values() and seeds != 1 and not (is_seed_list(seeds) and len(seeds) == 1):
        found.append(Problem("seed", "init and data are both fixed, so all seeds would be one run; write seeds=1"))
    folder = Path(config["results_dir"]).absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        found.append(Problem("results_dir", f"{folder} is no folder; write another results_dir"))
    elif not config["dry_run"]:
        try:
            tempfile.TemporaryFile(dir=folder).close()  # asking for permission says little to root, or of a full disk
        except OSError as error:
            found.append(Problem("results_dir", f"{folder} cannot be written ({error.strerror}); write another one"))
    return found


def is_seed_list(seeds: Any) -> bool:
    """Whether a value is a list of different seeds."""
    whole = isinstance(seeds, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    return whole and 0 < len(seeds) == len(set(seeds))


def choose_reference(factors: dict[str, list[Any]], asked: Any) -> dict[str, Any]:
    """Level of each component factor (of every factor, where no component varies) that others are compared with."""
    compared = [key for key in factors if key in COMPONENTS] or list(factors)
    reference = {key: factors[key][0] for key in compared}
    problems = []
    if asked is not None and not isinstance(asked, dict):
        problems.append(Problem("reference", f"{asked!r} is no mapping; write reference={{norm:rms}}"))
        asked = None
    for key, level in (asked or {}).items():
        if key not in compared:
            problems.append(
                Problem("reference", f"{key} is not compared here; choose from {', '.join(compared) or 'none'}")
            )
        elif level not in factors[key]:
            levels = ", ".join(map(str, factors[key]))
            problems.append(Problem("reference", f"{key}:{level} is not in the sweep; write one of {levels}"))
    if problems:
        raise PlanError(problems)
    return reference | dict(asked or {})


def references(levels: list[dict[str, Any]], reference: dict[str, Any]) -> list[int]:
    """Which cell each one is compared with: the reference within its stratum."""
    return [levels.index(level | reference) for level in levels]


def describe_cells(
    cells: list[Composed],
    checked: list[Checked],
    levels: list[dict[str, Any]],
    names: list[str],
    at: list[int],
    matched: list[dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """The manifest's rows of cells, each compared with the reference of its stratum, at `at`."""
    rows = []
    for i, (composed, cell) in enumerate(zip(cells, checked, strict=True)):
        reference = checked[at[i]].budget
        rows.append(
            {
                "id": cell_id(cell),
                "name": cell_name(composed.choices),
                "label": names[i],
                "levels": levels[i],
                "reference": levels[at[i]] == levels[i],
                "params": cell.budget.params,
                "params_vs_reference": cell.budget.params / reference.params - 1,
                "flops_per_token": cell.budget.flops_per_token,
                "shared_draws": shared_draws(cell.budget.shapes, reference.shapes),
                "matched": matched[i],
                "tokens_per_step": cell.config["train"]["batch_size"] * cell.task.positions,
                "batches": batches(cell.config, cell.task.fingerprint),
                "task": cell.task.fingerprint,
                "notes": cell.task.notes + cell.budget.notes + held(cell.config["seed"]) + remark(names[i], matched[i]),
                "config": cell.config,
            }
        )
    return rows


def cell_id(cell: Checked) -> str:
    """A cell's name in manifests: what its numbers depend on, so that it is the same in every one."""
    content = json.dumps([numbers(cell.config), cell.task.fingerprint], sort_keys=True)
    return "c" + hashlib.sha256(content.encode()).hexdigest()[:10]


def held(seed: dict[str, int | None]) -> list[str]:
    """What to say where one half of the randomness does not vary."""
    names = {"init": "initialisation", "data": "the order of the data"}
    fixed = [half for half, value in seed.items() if value is not None]
    return [f"seed.{half}={seed[half]} for every run: intervals do not cover {names[half]}" for half in fixed]


def refuse_duplicates(rows: list[dict[str, Any]], checked: list[Checked]) -> None:
    """Raise PlanError for cells that are the same in all that a run's numbers depend on."""
    seen: dict[str, str] = {}
    problems = []
    for row, cell in zip(rows, checked, strict=True):
        used = {key: value for key, value in numbers(cell.config).items() if key not in cell.budget.unused}
        key = json.dumps([used, row["task"]], sort_keys=True)
        if key in seen:
            why = "".join(f", which has no place for a {group}" for group in cell.budget.unused)
            problems.append(Problem("", f"{row['label']} is the same cell as {seen[key]}{why}; leave one of them out"))
        seen.setdefault(key, row["label"])
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))


def settle(
    command: str,
    settings: dict[str, Any],
    factors: dict[str, list[Any]],
    reference: dict[str, Any],
    rows: list[dict[str, Any]],
    checked: list[Checked],
) -> Plan:
    """The plan: name, seeds, runs and units, beside what an earlier command of this study left."""
    results = Path(settings["results_dir"]).absolute()
    base = settings["study"] or study_name(factors, reference, settings["match"], rows)
    name = f"{base}-confirm-{settings['confirm']}" if settings["confirm"] else base
    earlier, notes = read_earlier(results, name)
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
        "command": command,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "design": "grid",
        "factors": factors,
        "components": [key for key in factors if key in COMPONENTS],
        "reference": reference,
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
    return Plan(results, manifest, statuses, notes, settings["dry_run"])


def unit_name(paths: list[str]) -> str:
    """A unit's name, from its runs: it means the same in every manifest that another command writes meanwhile."""
    return "u" + hashlib.sha256("\n".join(paths).encode()).hexdigest()[:12]


def slow_starts(configs: list[dict[str, Any]]) -> list[str]:
    """What to say about learning rates that are still warming up when training ends."""
    late = {(c["optim"]["warmup"], c["train"]["steps"]) for c in configs if c["optim"]["warmup"] >= c["train"]["steps"]}
    said = [f"optim.warmup={warmup} is not over when training ends (train.steps={steps})" for warmup, steps in late]
    return sorted(said)[:1]


def refuse_replacing(name: str, gone: set[str]) -> None:
    """Raise PlanError for a study whose cells would not be added to but replaced."""
    if gone:
        message = f"{name} holds {len(gone)} other cell{'s' * (len(gone) > 1)}; add to its cells, or write another name"
        raise PlanError([Problem("study", message)])


def describe_task(task: Any) -> dict[str, Any]:
    """What the manifest keeps of a task."""
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    return {key: getattr(task, key) for key in keys}


def study_name(factors: dict[str, list[Any]], reference: dict[str, Any], match: str, rows: list[dict[str, Any]]) -> str:
    """The factors and a hash of everything but the seeds."""
    content = json.dumps([factors, reference, match, [[numbers(row["config"]), row["task"]] for row in rows]])
    head = "-".join(key.replace("/", "_") for key in factors) or "single"
    return f"{head[:60]}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
