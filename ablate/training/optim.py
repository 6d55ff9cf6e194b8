"""Optimisers and learning-rate schedules."""

from __future__ import annotations

import inspect
import math

import torch
from torch import nn

from ablate.config.errors import first_line
from ablate.training.out_of_memory import TooLarge, is_out_of_memory


class AdamW(torch.optim.AdamW):
    """torch's own, without the wrappers that import its compiler at the first call, which takes as long as torch."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(model: nn.Module, lr: float, betas: list[float], weight_decay: float) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2017), fused; matrices decay, vectors and scalars do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, lr=lr, betas=(betas[0], betas[1]), fused=True)


def descend(optimiser: torch.optim.Optimizer) -> None:
    """Take the optimiser's step.  Raises TooLarge where its state does not fit into memory beside the model.

    What backward kept is gone by then, so that smaller parts of a batch would be no help.
    """
    try:
        optimiser.step()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        said = "out of memory in the optimiser's step: its state does not fit beside the model; write a smaller model"
        raise TooLarge(f"{said} ({first_line(error)})") from None


def learning_rate(step: int, steps: int, lr: float, warmup: int, schedule: str, floor: float) -> float:
    """Learning rate of update `step` = 0 … steps − 1.

    lr · (step + 1) / warmup at first, then lr · (floor + (1 − floor) · left), where `left` falls from 1 to 0 with the
    share x of the steps that are done: (1 + cos πx) / 2 or 1 − x; lr where the schedule is constant.
    """
    if step < warmup:
        return lr * (step + 1) / warmup
    if schedule == "constant":
        return lr
    done = (step - warmup) / max(1, steps - 1 - warmup)
    left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}[schedule]
    return lr * (floor + (1 - floor) * left)
