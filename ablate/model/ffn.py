"""Position-wise feed-forward networks: (B, T, C) -> (B, T, C).  Variants of a family differ only in `activation`."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least, at_most
from ablate.model.experts import GATED, Expert, Experts
from ablate.model.init import tag


class MLP(nn.Module):
    """y = W₂ · max(0, W₁ x), with width `hidden`, by default `mult` · dim (Vaswani 2017, arXiv 1706.03762)."""

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
    With `approximate` tanh, Φ(a) is ½ · (1 + tanh(√(2/π) · (a + 0.044715 a³))), as in GPT-2."""

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
    """y = W₂ · swish(W₁ x), swish(a) = a · σ(βa), β learned, initially 1 (Ramachandran 2017, arXiv 1710.05941)."""

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

    By default the width is 2/3 of `mult` · dim, rounded up to a multiple of `multiple_of`, so that three matrices have
    as many parameters as two.
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


class MoE(nn.Module):
    """y = Σ_{i ∈ top} g_i · E_i(x) + S(x), p = softmax(R x), top the `top_k` largest p_i; no tokens are dropped.

    g_i = p_i / Σ_{j ∈ top} p_j with `renormalised` gates (Jiang 2024, arXiv 2401.04088), p_i with `plain` ones (Fedus
    2021, arXiv 2101.03961).  S are `shared` experts for all tokens, computed in parallel (Dai 2024, arXiv 2401.06066).
    Training adds `balance` · n · Σ_i f_i · P_i over n experts, where f_i is the share of real tokens' choices that are
    i, and P_i the mean p_i over real tokens (Fedus 2021).  It is `balance` if experts are used equally.

    By default the experts that a token passes are together as wide as one dense FFN.
    """

    auxiliary = ("balance",)

    def __init__(
        self,
        dim: int,
        expert: Expert,
        hidden: int | None,
        mult: float,
        multiple_of: int,
        experts: int,
        top_k: int,
        shared: int,
        gates: Literal["renormalised", "plain"],
        balance: float,
    ):
        super().__init__()
        self.top_k = at_most("ffn.top_k", at_least("ffn.top_k", top_k, 1), experts)
        if gates == "renormalised" and top_k == 1:
            raise ValueError("ffn.gates=renormalised is 1 with ffn.top_k=1 and teaches the router nothing; write plain")
        passed = top_k + at_least("ffn.shared", shared, 0)
        self.hidden = width(dim, hidden, mult * (2 / 3 if expert in GATED else 1) / passed, multiple_of)
        self.active = passed / (experts + shared)
        self.coefficient, self.gates = at_least("ffn.balance", balance, 0), gates
        self.router = tag(nn.Linear(dim, experts, bias=False), "in")
        self.experts = Experts(experts, dim, self.hidden, expert)
        self.shared = Experts(1, dim, shared * self.hidden, expert) if shared else None

    def stated_flops(self, batch: int, length: int) -> float:
        """None besides its matrix products: sorting tokens by expert has no multiplications or additions."""
        return 0.0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C), (B, T) -> (B, T, C)
        p = self.scores(x).softmax(-1)
        gates, chosen = p.topk(self.top_k, -1)  # (B, T, k)
        if self.gates == "renormalised":
            gates = gates / gates.sum(-1, keepdim=True)
        picked = chosen[..., None] == torch.arange(p.shape[-1], device=x.device)  # (B, T, k, n)
        if self.training and self.coefficient:
            self.balance = self.coefficient * balance(p, picked, mask)
        rows = x[..., None, :].expand(*chosen.shape, -1).reshape(-1, x.shape[-1])  # a row per token and choice
        order = chosen.reshape(-1).argsort(stable=True)
        found = self.experts(rows[order], picked.reshape(-1, p.shape[-1]).sum(0).cumsum(0))
        y = (found[order.argsort()].view(*chosen.shape, -1) * gates[..., None].to(found.dtype)).sum(-2)
        if self.shared is None:
            return y
        flat = x.reshape(-1, x.shape[-1])
        return y + self.shared(flat, torch.full((1,), len(flat), device=x.device)).view(x.shape)

    def scores(self, x: Tensor) -> Tensor:
        """R x, (B, T, C) -> (B, T, n), in at least float32 even under autocast: in bf16 experts would tie."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast("cuda" if x.is_cuda else "cpu", enabled=False):  # autocast does not know the meta device
            return F.linear(x.to(dtype), self.router.weight.to(dtype))


def balance(p: Tensor, picked: Tensor, mask: Tensor | None) -> Tensor:  # (B, T, n), (B, T, k, n), (B, T) -> ()
    """n · Σ_i f_i · P_i over the real tokens; usually at least 1."""
    real = torch.ones_like(p[..., :1]) if mask is None else mask[..., None].to(p.dtype)
    count = real.sum().clamp(min=1)
    share = (picked.sum(-2) * real).flatten(0, -2).sum(0) / (count * picked.shape[-2])
    return p.shape[-1] * (share * (p * real).flatten(0, -2).sum(0) / count).sum()


def none() -> nn.Module | None:
    """No feed-forward network: the block omits it and its norm."""
    return None


def width(dim: int, hidden: int | None, mult: float, multiple_of: int = 1) -> int:
    """`hidden`, by default ⌊mult · dim⌋ rounded up to a multiple.  Raises ValueError below 1."""
    at_least("ffn.multiple_of", multiple_of, 1)
    if hidden is None:
        hidden = -(-int(mult * dim + 1e-9) // multiple_of) * multiple_of
    if hidden < 1:
        raise ValueError(f"the FFN would be {hidden} wide; write a larger ffn.mult or ffn.hidden")
    return hidden
