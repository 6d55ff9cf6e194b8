"""Norms of the YAMLs, with float64 inputs."""

from typing import Any

import torch
from empty_task import some_shape
from reference_config import component
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.model.build import offered

DIM, EPS = 8, 1e-3


OFFERED = offered(some_shape(DIM))


def some(*shape: int, seed: int = 0) -> Tensor:
    """Skewed numbers off the origin, float64."""
    drawn = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return 3 + 2 * drawn + 0.5 * drawn.square()


def some_mask(batch: int = 4, length: int = 5) -> Tensor:
    """1 at real positions: rows with none, some and most of them padded."""
    mask = torch.ones(batch, length)
    mask[1, 3:], mask[2, 1:], mask[3, ::2] = 0, 0, 0
    return mask


def trained(norm: nn.Module) -> Any:
    """A norm in float64 with gains and shifts that are not 1 and 0."""
    with torch.no_grad():
        for i, parameter in enumerate(norm.parameters()):
            parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    return norm.double()


def from_disk(variant: str, **changed: float) -> Any:
    """A variant as its YAML describes it, but for some keys."""
    return trained(bind("norm", component("norm", variant) | changed, OFFERED)())
