"""A batch's losses and gradients, computed in parts."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ablate.training.gradients import Gradients
from ablate.training.ranks import ALONE, Ranks


def of_model(model: nn.Module, objective: Any, parts: int, ranks: Ranks = ALONE) -> Gradients:
    loop: Any = SimpleNamespace(precision="fp32", device="cpu", parts=parts, capture=False)
    return Gradients(model, objective, loop, 0, False, print, ranks)


def by_parts(model: nn.Module, objective: Any, batch: Any, parts: int) -> tuple[dict[str, torch.Tensor], int]:
    """The losses of a batch in parts or more, whose gradients are then the model's, and the number of parts."""
    computed = of_model(model, objective, parts)
    return computed.by_parts(batch), computed.parts
