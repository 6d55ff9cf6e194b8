"""A run in miniature, in which user code imports what it imports in training."""

import contextlib
from typing import Any

import torch

from ablate.data.task import build_task
from ablate.planning.checks.small_models import SHORTEST, Checked, Trial, build, small, some_inputs
from ablate.runs.key import is_foreign
from ablate.runs.user_files import record_user_code
from ablate.training.optim import build_optimiser


def rehearse(cell: Checked) -> dict[str, Any]:
    """The user code that a cell imports where it is built, takes a step and is evaluated, as plain data.

    Errors are passed over: other checks report them.
    """
    with torch.random.fork_rng(devices=[]):
        with contextlib.suppress(Exception):
            take_step(cell)
        if is_foreign(cell.config.data):
            with contextlib.suppress(Exception):
                draw_examples(cell)
    return record_user_code(cell.config.user).as_json()


def take_step(cell: Checked) -> None:
    """One step of a small copy, by the cell's step and by its optimiser."""
    spec = small(cell, set(), SHORTEST)._replace(double=False)
    model = build(spec)
    inputs = some_inputs(spec)
    Trial(spec, model).update(inputs, 0)
    optimiser = build_optimiser(cell.config, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()


def draw_examples(cell: Checked) -> None:
    """A batch of the cell's task, and some examples of each split."""
    task = build_task(cell.config)
    task.batch(0, 0, cell.config.train.batch_size)
    for split in ("val", "test"):
        task.held_out(split, task.context)
