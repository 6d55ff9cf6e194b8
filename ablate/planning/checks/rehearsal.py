"""A run in miniature, in which user code imports what it imports in training."""

import contextlib

import torch

from ablate.data.task import build_task
from ablate.planning.checks.small_models import Checked, Trial, build, copy_of
from ablate.runs.key import is_foreign
from ablate.training.optim import build_optimiser


def rehearse(cell: Checked) -> None:
    """Build a cell's model, take a step and draw examples.  Errors are passed over: other checks report them."""
    with torch.random.fork_rng(devices=[]):
        with contextlib.suppress(Exception):
            take_step(cell)
        if is_foreign(cell.config.data):
            with contextlib.suppress(Exception):
                draw_examples(cell)


def take_step(cell: Checked) -> None:
    """One step of a small copy, by the cell's step and by its optimiser."""
    spec = copy_of(cell)
    if spec is None:
        return
    model = build(spec._replace(double=False))
    Trial(spec._replace(double=False), model).update(0)
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
