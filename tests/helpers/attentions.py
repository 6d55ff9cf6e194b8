"""Attentions of the YAMLs with random weights, and the rotation of one vector."""

import math
from typing import Any

import torch
from empty_task import some_shape
from reference_config import component
from tensors import some
from torch import Tensor

from ablate.config.components import bind
from ablate.model.build import offered

DIM, HEADS = 12, 4


SHAPE = some_shape(DIM, HEADS, head_dim=4)  # a head is wider than dim / heads, so that nothing fits by chance


OFFERED = offered(SHAPE) | {"layer": 0}


def randomised(attention: Any) -> Any:
    """In float64, biases and gains drawn, too."""
    for seed, parameter in enumerate(attention.double().parameters()):
        with torch.no_grad():
            parameter.copy_(0.5 * some(*parameter.shape, seed=seed))
    return attention


def from_disk(variant: str, **more: Any) -> Any:
    """A variant as its YAML describes it."""
    return randomised(bind("attention", component("attention", variant) | more, OFFERED)())


def turned(x: Tensor, t: int) -> Tensor:
    """The pairs (x_i, x_{i+n/2}) of n features by angles t / 100^(2i/n)."""
    half = len(x) // 2
    angles = [t / 100 ** (i / half) for i in range(half)]
    first = [x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)]
    second = [x[i] * math.sin(a) + x[i + half] * math.cos(a) for i, a in enumerate(angles)]
    return torch.stack(first + second)
