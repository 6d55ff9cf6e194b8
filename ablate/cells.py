"""The cells of a study as its manifest keeps them: names, the reference of each, what they cost, what they share."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from ablate.gate import Checked
from ablate.identity import batches, numbers
from ablate.match import remark
from ablate.model.init import shared_draws
from ablate.schema import PlanError, Problem


@dataclasses.dataclass(frozen=True)
class Draft:
    """A study whose cells are checked: all that a plan needs but seeds, runs and what is on disk."""

    command: str
    settings: dict[str, Any]  # the configuration that holds the study's own keys
    factors: dict[str, list[Any]]
    reference: dict[str, Any]
    rows: list[dict[str, Any]]  # the manifest's cells, and in the same order
    checked: list[Checked]  # what they were made of
    more: bool = False  # whether another round of the same command comes after this one
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # entries of the manifest beside the usual
    claims: dict[str, Any] = dataclasses.field(default_factory=dict)  # as written; the study's own, of no other round
    notes: list[str] = dataclasses.field(default_factory=list)  # what to tell the user


def references(levels: list[dict[str, Any]], reference: dict[str, Any]) -> list[int]:
    """Which cell each one is compared with: the reference within its stratum."""
    return [levels.index(level | reference) for level in levels]


def describe_cells(
    checked: list[Checked],
    names: list[str],
    levels: list[dict[str, Any]],
    labels: list[str],
    at: list[int],
    matched: list[dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """The manifest's rows of cells, each compared with the reference of its stratum, at `at`.

    `names` are those of the cells' folders, `labels` what people read.
    """
    rows = []
    for i, cell in enumerate(checked):
        reference = checked[at[i]].budget
        rows.append(
            {
                "id": cell_id(cell),
                "name": names[i],
                "label": labels[i],
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
                "notes": cell.task.notes
                + cell.budget.notes
                + held(cell.config["seed"])
                + remark(labels[i], matched[i]),
                "config": cell.config,
            }
        )
    return rows


def cell_id(cell: Checked) -> str:
    """A cell's name in manifests: what its numbers depend on, so that it is the same in every one."""
    content = json.dumps([numbers(cell.config), cell.task.fingerprint], sort_keys=True)
    return "c" + hashlib.sha256(content.encode()).hexdigest()[:10]


def held(seed: dict[str, Any]) -> list[str]:
    """What to say where one half of the randomness does not vary."""
    names = {"init": "initialisation", "data": "the order of the data"}
    fixed = [half for half in names if seed[half] is not None]
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


def describe_task(task: Any) -> dict[str, Any]:
    """What the manifest keeps of a task."""
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    return {key: getattr(task, key) for key in keys}


def slow_starts(configs: list[dict[str, Any]]) -> list[str]:
    """What to say about learning rates that are still warming up when training ends."""
    late = {(c["optim"]["warmup"], c["train"]["steps"]) for c in configs if c["optim"]["warmup"] >= c["train"]["steps"]}
    said = [f"optim.warmup={warmup} is not over when training ends (train.steps={steps})" for warmup, steps in late]
    return sorted(said)[:1]
