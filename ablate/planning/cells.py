"""The cells of a study: their rows in its manifest, and what they were made of.  Nothing here needs torch."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ablate.config.errors import PlanError, Problem
from ablate.config.schema import Config
from ablate.formatting import first_of, scientific
from ablate.results.records import SOLVED, Cell, StepSeconds, TaskFacts

if TYPE_CHECKING:
    from ablate.planning.checks.validate import Checked

NAMED = 3  # cells that a note spells out


@dataclasses.dataclass(frozen=True)
class Cells:
    """Cells composed, checked and counted, with the factors in whose levels they differ."""

    factors: dict[str, list[Any]]
    reference: dict[str, Any]  # the level of each factor that is compared
    rows: list[Cell]  # as manifests keep them, and in the same order
    checked: list[Checked]  # what they were made of
    raw: list[Config]  # their configurations as they were composed, before anything was resolved or matched
    at: list[int]  # which cell each one is compared with
    tasks: dict[str, TaskFacts]  # by fingerprint
    notes: list[str] = dataclasses.field(default_factory=list)  # printed before any of them trains
    step_seconds: list[StepSeconds] = dataclasses.field(default_factory=list)  # of each, if they are matched in those

    @property
    def labels(self) -> list[str]:
        """What people call them."""
        return [row.label for row in self.rows]

    @property
    def references(self) -> list[tuple[Cell, Checked]]:
        """The reference of each stratum: its row, and what it was made of."""
        return [pair for pair in zip(self.rows, self.checked, strict=True) if pair[0].reference]


def describe_tasks(checked: list[Checked]) -> dict[str, TaskFacts]:
    """What the manifest keeps of the tasks of cells, by fingerprint.  Raises PlanError where they differ in it."""
    found: dict[str, TaskFacts] = {}
    for cell in checked:
        task = describe_task(cell)
        if (other := found.setdefault(cell.task.fingerprint, task)).solved_at != task.solved_at:
            differ = f"is {other.solved_at} and {task.solved_at} in cells of one task; write one for all"
            raise PlanError([Problem("data.solved_at", differ)])
    return found


def describe_task(cell: Checked) -> TaskFacts:
    """What the manifest keeps of a cell's task."""
    task, at = cell.task, cell.config.data.get("solved_at")
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    found = {key: getattr(task, key) for key in keys} | task.metric_facts()
    if at is not None:
        first = next(iter(task.metrics))
        found["metrics"] = {SOLVED: "max"} | task.metrics
        found |= {"solved_at": at, "shares": [SOLVED, *found["shares"]], "beside": [first, *found["beside"]]}
    return TaskFacts(**found)


def slow_starts(configs: list[Config]) -> list[str]:
    """A note on learning rates that are still warming up when training ends."""
    late = sorted({(c.optim.warmup, c.train.steps) for c in configs if c.optim.warmup >= c.train.steps})
    why = "trained all the same, with a learning rate that never stops rising"
    return [f"optim.warmup={warmup} lasts for all of train.steps={steps}: {why}" for warmup, steps in late[:1]]


def other_tasks(cells: Cells) -> list[str]:
    """A note on cells that are scored on another task than what they are compared with."""
    found = [row.label for row, at in zip(cells.rows, cells.at, strict=True) if row.task != cells.rows[at].task]
    why = "scored on another task than the reference, so that no effect between them will be shown"
    return [f"{first_of(found, NAMED)}: {why}"] * bool(found)


def one_rate(cells: Cells, tuned: str | None) -> list[str]:
    """A note on optimisers that are compared at one learning rate."""
    keys = [key for name in cells.factors for key in name.split("+")]
    rates = {row.config.optim.lr for row in cells.rows}
    if "optim" not in keys or "optim.lr" in (*keys, tuned) or len(rates) > 1:
        return []
    rate = scientific(rates.pop())
    note = f"optimisers are compared at one learning rate, {rate}, which can suit one and not another"
    return [f"{note}; tune.key=optim.lr 'tune.values=[1e-3,3e-3,1e-2]', say, gives each its own"]
