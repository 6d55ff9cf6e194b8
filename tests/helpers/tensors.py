"""Random tensors in float64, and a mask."""

import torch
from torch import Tensor

B, H, T, S, D = 3, 2, 6, 6, 4


def some(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def some_mask(where: str) -> Tensor | None:
    """(B, S), 1 at real keys."""
    mask = torch.ones(B, S)
    if where == "right":
        mask[1, 4:], mask[2, 1:] = 0, 0
    elif where == "holes":
        mask[1, 2:4], mask[2, 1::2] = 0, 0
    elif where == "left":
        mask[1, :2], mask[2, :5] = 0, 0
    return None if where == "none" else mask
