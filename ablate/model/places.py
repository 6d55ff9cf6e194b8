"""What a position encoding is, and what it tells attention."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

Rotation = tuple[Tensor, Tensor]  # cosines and signed sines (T, R) for the first R features of a head


class Places(NamedTuple):
    """What self-attention gets of positions, made once for all layers of a forward pass."""

    rotation: Rotation | None = None  # of queries, and of keys but for the next two
    bias: Tensor | None = None  # added to the scores, broadcast to (B, H, T, T)
    slopes: Tensor | None = None  # (H,), where the bias is −slope · |t − s|, for kernels that compute it themselves
    key_rotation: Rotation | None = None  # of keys, where it is another
    local: Rotation | None = None  # of queries and keys in layers that have a window, where it is another
    factor: float | None = None  # that scores without `local` are multiplied by, before caps and biases; None is 1
    values: Tensor | None = None  # (B, H, S, D) of the first layer, in layers that mix them into their own

    def rotations(self, window: int | None = None) -> tuple[Rotation | None, Rotation | None]:
        """What queries, and what keys, are turned by in a layer with this window."""
        if window is not None and self.local is not None:
            return self.local, self.local
        return self.rotation, self.rotation if self.key_rotation is None else self.key_rotation

    def scale(self, scale: float, window: int | None = None) -> float:
        """What scores are multiplied by in a layer with this window, of what the layer would multiply them by."""
        if self.factor is None or (window is not None and self.local is not None):
            return scale
        return scale * self.factor


class Position(nn.Module):
    """No position encoding (NoPE; Kazemnejad 2023, arXiv 2305.19466), and the contract of all others."""

    extrapolates = True  # whether it has an answer for positions beyond those that it was trained on

    def embed(self, x: Tensor) -> Tensor:
        """Change the embeddings (B, T, C)."""
        return x

    def places(self, x: Tensor, causal: bool) -> Places:
        """What the attention over the stream (B, T, C) gets."""
        return Places()


def angles(length: int, dim: int, base: float, like: Tensor, first: int = 0) -> Tensor:
    """t / base^(2i/dim) of `length` positions t from `first`, i < dim/2: (length, dim/2).

    In at least float32: bf16 cannot count past 256.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return torch.outer(torch.arange(first, first + length, device=like.device, dtype=dtype), frequency)
