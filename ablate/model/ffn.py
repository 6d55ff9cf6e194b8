"""Position-wise feed-forward networks: (B, T, C) -> (B, T, C)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.init import tag


class MLP(nn.Module):
    """y = W₂ · max(0, W₁ x), with width `hidden`, or else `mult` · dim (Vaswani 2017, arXiv 1706.03762)."""

    activation: Callable[..., Tensor] = staticmethod(F.relu)

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__()
        self.hidden = hidden = width(dim, hidden, mult)
        self.up = tag(nn.Linear(dim, hidden, bias), "in")
        self.down = tag(nn.Linear(hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.up(x)))


class GELU(MLP):
    """y = W₂ · (a · Φ(a)) with a = W₁ x and Φ the normal distribution function (Hendrycks 2016, arXiv 1606.08415)."""

    activation = staticmethod(F.gelu)


class SwiGLU(nn.Module):
    """y = W₂ · (silu(V x) ⊙ W x), silu(a) = a · σ(a) (Shazeer 2020, arXiv 2002.05202).

    Without `hidden` the width is 2/3 of `mult` · dim, so that three matrices have the parameters of two, rounded up to
    a multiple of `multiple_of`.
    """

    activation = staticmethod(F.silu)

    def __init__(self, dim: int, hidden: int | None, mult: float, multiple_of: int, bias: bool):
        super().__init__()
        self.hidden = hidden = width(dim, hidden, mult * 2 / 3, multiple_of)
        self.gate = tag(nn.Linear(dim, hidden, bias), "in")
        self.up = tag(nn.Linear(dim, hidden, bias), "in")
        self.down = tag(nn.Linear(hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.gate(x)) * self.up(x))


def width(dim: int, hidden: int | None, mult: float, multiple_of: int = 1) -> int:
    """`hidden` where it is given, else ⌊mult · dim⌋ rounded up to a multiple.  Raises ValueError below 1."""
    if multiple_of < 1:
        raise ValueError(f"ffn.multiple_of={multiple_of} must be at least 1")
    if hidden is None:
        hidden = -(-int(mult * dim + 1e-9) // multiple_of) * multiple_of
    if hidden < 1:
        raise ValueError(f"the FFN would be {hidden} wide; write a larger ffn.mult or ffn.hidden")
    return hidden
