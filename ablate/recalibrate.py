"""Running statistics estimated anew with the final weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ablate.data.task import Task
from ablate.metrics import autocast
from ablate.model.norm import running_norms

BATCHES = 32


@torch.no_grad()
def recalibrated(model: nn.Module, task: Task, seed: int, train: dict[str, Any], device: torch.device) -> nn.Module:
    """A copy of the model, in evaluation mode, whose running statistics are the mean over 32 training batches.

    The batches are those that would have followed the last step; without dropout (precise statistics: Wu 2021, arXiv
    2105.07576).
    """
    copied = copy.deepcopy(model).eval()
    for norm in running_norms(copied):
        norm.reset()
        norm.momentum = None
        norm.train()
    for i in range(BATCHES):
        inputs = task.batch(seed, train["steps"] + i, train["batch_size"]).inputs
        with autocast(device, train["precision"]):
            copied(**{name: tensor.to(device) for name, tensor in inputs.items()})
    return copied.eval()
