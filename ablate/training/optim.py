"""Optimisers and learning-rate schedules."""

from __future__ import annotations

import math

import torch
from torch import nn


def adamw(model: nn.Module, lr: float, betas: list[float], weight_decay: float) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2017), fused; matrices decay, vectors and scalars do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=lr, betas=(betas[0], betas[1]), fused=True)


def learning_rate(step: int, steps: int, lr: float, warmup: int, schedule: str, floor: float) -> float:
    """Learning rate of update `step` = 0 … steps − 1: linear warm-up, then down to floor · lr as the schedule says."""
    if step < warmup:
        return lr * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - 1 - warmup)
    left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "constant": 1.0}[schedule]
    return lr * (floor + (1 - floor) * left) if schedule != "constant" else lr
