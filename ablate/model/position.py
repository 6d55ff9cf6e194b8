"""Position encodings.  One can act in three places, each a no-op by default: on the embeddings, on queries and keys,
and on the attention scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.model.init import at_least, embedding


class Position(nn.Module):
    """No position encoding (NoPE; Kazemnejad 2023, arXiv 2305.19466), and the contract of all others."""

    extrapolates = True  # whether it can be evaluated at longer sequences than it was trained on

    def embed(self, x: Tensor) -> Tensor:
        """Change the embeddings (B, T, C)."""
        return x

    def rotate(self, x: Tensor) -> Tensor:
        """Change queries or keys (B, H, T, D)."""
        return x

    def bias(self, queries: int, keys: int) -> Tensor | None:
        """What is added to the attention scores, broadcast to (B, H, queries, keys), or None."""
        return None


class Sinusoidal(Position):
    """x + p, p(t, 2i) = sin(t / base^(2i/dim)), p(t, 2i+1) = cos(t / base^(2i/dim)) (Vaswani 2017, 1706.03762)."""

    note = "its vectors have RMS 0.71; embeddings are far smaller unless model.scale_embeddings=true"

    def __init__(self, dim: int, base: float):
        super().__init__()
        if dim % 2:
            raise ValueError(f"position=sinusoidal needs an even model.dim, not {dim}")
        self.dim, self.base = dim, at_least("position.base", base, 1)

    def embed(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        angle = angles(x.shape[-2], self.dim, self.base, x)
        return x + torch.stack((angle.sin(), angle.cos()), -1).flatten(-2).to(x.dtype)


class Learned(Position):
    """x + P[t], a trained table of one vector per position (Gehring 2017, arXiv 1705.03122; GPT-2)."""

    extrapolates = False

    def __init__(self, dim: int, context: int):
        super().__init__()
        self.table = embedding(context, dim, "position")

    def embed(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        if x.shape[-2] > self.table.num_embeddings:
            raise ValueError(f"position=learned has {self.table.num_embeddings} positions, not {x.shape[-2]}")
        return x + self.table.weight[: x.shape[-2]]


class RoPE(Position):
    """Turns the pair (x_i, x_{i+D/2}) of queries and keys by the angle t / base^(2i/D) (Su 2021, arXiv 2104.09864)."""

    def __init__(self, head_dim: int, base: float):
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"position=rope needs an even head size, not model.dim / model.heads = {head_dim}")
        self.head_dim, self.base = head_dim, at_least("position.base", base, 1)

    def rotate(self, x: Tensor) -> Tensor:  # (B, H, T, D) -> (B, H, T, D)
        angle = angles(x.shape[-2], self.head_dim, self.base, x)
        cos = torch.cat((angle.cos(), angle.cos()), -1)  # (T, D)
        sin = torch.cat((-angle.sin(), angle.sin()), -1)
        y = x.to(cos.dtype).contiguous()  # or else every product below runs over rows of D numbers
        return torch.addcmul(y * cos, y.roll(self.head_dim // 2, -1), sin).to(x.dtype)


def angles(length: int, dim: int, base: float, like: Tensor) -> Tensor:
    """t / base^(2i/dim) for t < length, i < dim/2: (length, dim/2), at least float32: bf16 cannot count past 256."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    frequency = base ** (-torch.arange(0, dim, 2, device=like.device, dtype=dtype) / dim)
    return torch.outer(torch.arange(length, device=like.device, dtype=dtype), frequency)
