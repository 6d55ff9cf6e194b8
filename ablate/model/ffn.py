"""Position-wise feed-forward networks: (B, T, C) -> (B, T, C).  Variants of a family differ in `activation` alone."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.init import tag


class MLP(nn.Module):
    """y = W₂ · max(0, W₁ x), with width `hidden`, or else `mult` · dim (Vaswani 2017, arXiv 1706.03762)."""

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__()
        self.hidden = width(dim, hidden, mult)
        self.up = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.down = tag(nn.Linear(self.hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.up(x)))

    def activation(self, a: Tensor) -> Tensor:
        """max(0, a)."""
        return F.relu(a)


class GELU(MLP):
    """y = W₂ · gelu(W₁ x), gelu(a) = a · Φ(a), Φ the normal distribution function (Hendrycks 2016, arXiv 1606.08415).

    With `approximate` tanh, Φ(a) is ½ · (1 + tanh(√(2/π) · (a + 0.044715 a³))), as in GPT-2.
    """

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool, approximate: Literal["none", "tanh"]):
        super().__init__(dim, hidden, mult, bias)
        self.approximate = approximate

    def activation(self, a: Tensor) -> Tensor:
        """a · Φ(a)."""
        return F.gelu(a, approximate=self.approximate)


class SiLU(MLP):
    """y = W₂ · silu(W₁ x), silu(a) = a · σ(a) (Elfwing 2017, arXiv 1702.03118)."""

    def activation(self, a: Tensor) -> Tensor:
        """a · σ(a)."""
        return F.silu(a)


class Swish(MLP):
    """y = W₂ · swish(W₁ x), swish(a) = a · σ(βa), β learned, at first 1 (Ramachandran 2017, arXiv 1710.05941)."""

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__(dim, hidden, mult, bias)
        self.beta = nn.Parameter(torch.ones(1))

    def activation(self, a: Tensor) -> Tensor:
        """a · σ(βa)."""
        return a * torch.sigmoid(self.beta * a)


class ReLU2(MLP):
    """y = W₂ · max(0, W₁ x)² (So 2021, arXiv 2109.08668)."""

    def activation(self, a: Tensor) -> Tensor:
        """max(0, a)²."""
        return F.relu(a).square()


class GLU(nn.Module):
    """y = W₂ · (σ(V x) ⊙ W x) (Dauphin 2016, arXiv 1612.08083; as an FFN: Shazeer 2020, arXiv 2002.05202).

    Without `hidden` the width is 2/3 of `mult` · dim, so that three matrices have the parameters of two, rounded up to
    a multiple of `multiple_of`.
    """

    def __init__(self, dim: int, hidden: int | None, mult: float, multiple_of: int, bias: bool):
        super().__init__()
        self.hidden = width(dim, hidden, mult * 2 / 3, multiple_of)
        self.gate = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.up = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.down = tag(nn.Linear(self.hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.gate(x)) * self.up(x))

    def activation(self, a: Tensor) -> Tensor:
        """σ(a)."""
        return torch.sigmoid(a)


class Bilinear(GLU):
    """y = W₂ · (V x ⊙ W x): a gate without an activation (Shazeer 2020, arXiv 2002.05202)."""

    def activation(self, a: Tensor) -> Tensor:
        """The identity."""
        return a


class ReGLU(GLU):
    """y = W₂ · (max(0, V x) ⊙ W x) (Shazeer 2020, arXiv 2002.05202)."""

    def activation(self, a: Tensor) -> Tensor:
        """max(0, a)."""
        return F.relu(a)


class GEGLU(GLU):
    """y = W₂ · (gelu(V x) ⊙ W x), gelu(a) = a · Φ(a) as in GELU (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(
        self,
        dim: int,
        hidden: int | None,
        mult: float,
        multiple_of: int,
        bias: bool,
        approximate: Literal["none", "tanh"],
    ):
        super().__init__(dim, hidden, mult, multiple_of, bias)
        self.approximate = approximate

    def activation(self, a: Tensor) -> Tensor:
        """a · Φ(a)."""
        return F.gelu(a, approximate=self.approximate)


class SwiGLU(GLU):
    """y = W₂ · (silu(V x) ⊙ W x), silu(a) = a · σ(a) (Shazeer 2020, arXiv 2002.05202)."""

    def activation(self, a: Tensor) -> Tensor:
        """a · σ(a)."""
        return F.silu(a)


def none() -> nn.Module | None:
    """No feed-forward network: the block leaves it and its norm out."""
    return None


def width(dim: int, hidden: int | None, mult: float, multiple_of: int = 1) -> int:
    """`hidden` where it is given, else ⌊mult · dim⌋ rounded up to a multiple.  Raises ValueError below 1."""
    at_least("ffn.multiple_of", multiple_of, 1)
    if hidden is None:
        hidden = -(-int(mult * dim + 1e-9) // multiple_of) * multiple_of
    if hidden < 1:
        raise ValueError(f"the FFN would be {hidden} wide; write a larger ffn.mult or ffn.hidden")
    return hidden
