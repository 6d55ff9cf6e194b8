"""How many positions training passes, counted from its batches: a task may have them grow with the steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ablate.config.schema import Config
from ablate.data.build import build_task
from ablate.data.task import Task, batch_positions
from ablate.planning.checks.checked import Checked
from ablate.planning.checks.user_code import beside

_known: WeakKeyDictionary[Task, dict[Any, Any]] = WeakKeyDictionary()


def training_positions(cell: Checked, steps: int = 0) -> int:
    """Positions of the batches of a cell's first steps, by default of all; those of seed 0 stand for every seed's."""
    train, steps = cell.config.train, steps or cell.config.train.steps
    if not changes_length(cell):
        return steps * train.batch_size * int(cell.task.positions)
    lengths: list[int] = once(cell, ("lengths", train.batch_size), list)
    if len(lengths) < steps:
        lengths += beside(cell.config, partial(counted, cell.config, len(lengths), steps))
    return sum(lengths[:steps])


def changes_length(cell: Checked) -> bool:
    """Whether training batches of a cell have other positions than its task says."""
    size, steps = cell.config.train.batch_size, cell.config.train.steps
    found: bool = once(cell, (size, steps), partial(cell.task.changes_length, size, steps))
    return found


def counted(config: Config, start: int, stop: int) -> list[int]:
    """Positions of the batch of each step from one to before another."""
    task = build_task(config)
    return [batch_positions(task.batch(0, step, config.train.batch_size)) for step in range(start, stop)]


def once(cell: Checked, key: Any, make: Callable[[], Any]) -> Any:
    """What is made for a cell's task, kept as long as the task is."""
    known = _known.setdefault(cell.task, {})
    if key not in known:
        known[key] = make()
    return known[key]
