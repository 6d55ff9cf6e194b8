"""Position-wise feed-forward networks: (B, T, C) -> (B, T, C).  Variants of a family differ only in `activation`."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from ablate.config.ranges import above, at_least, at_most
from ablate.model.init import tag, with_role
from ablate.model.products import as_given

Activation = Callable[..., Tensor]
Approximate = Literal["none", "tanh"]


class MLP(nn.Module):
    """y = W₂ · max(0, W₁ x), with width `hidden`, by default `mult` · dim (Vaswani 2017, arXiv 1706.03762)."""

    activation: Activation = staticmethod(F.relu)

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__()
        self.hidden = width(dim, hidden, mult)
        self.up = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.down = tag(nn.Linear(self.hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.up(x)))


class GELU(MLP):
    """y = W₂ · gelu(W₁ x), gelu(a) = a · Φ(a), Φ the normal distribution function (Hendrycks 2016, arXiv 1606.08415).
    With `approximate` tanh, Φ(a) is ½ · (1 + tanh(√(2/π) · (a + 0.044715 a³))), as in GPT-2."""

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool, approximate: Approximate):
        super().__init__(dim, hidden, mult, bias)
        self.approximate = approximate

    def activation(self, a: Tensor) -> Tensor:
        return F.gelu(a, approximate=self.approximate)


class SiLU(MLP):
    """y = W₂ · silu(W₁ x), silu(a) = a · σ(a) (Elfwing 2017, arXiv 1702.03118)."""

    activation = staticmethod(F.silu)


class Swish(MLP):
    """y = W₂ · swish(W₁ x), swish(a) = a · σ(βa), β learned, initially 1 (Ramachandran 2017, arXiv 1710.05941)."""

    def __init__(self, dim: int, hidden: int | None, mult: float, bias: bool):
        super().__init__(dim, hidden, mult, bias)
        self.beta = nn.Parameter(torch.ones(1))

    def activation(self, a: Tensor) -> Tensor:
        return a * torch.sigmoid(self.beta * a)


class ReLU2(MLP):
    """y = W₂ · max(0, W₁ x)² (So 2021, arXiv 2109.08668)."""

    def activation(self, a: Tensor) -> Tensor:
        return F.relu(a).square()


class GLU(nn.Module):
    """y = W₂ · (σ(V x) ⊙ W x) (Dauphin 2016, arXiv 1612.08083; as an FFN: Shazeer 2020, arXiv 2002.05202).

    By default the width is 2/3 of `mult` · dim, rounded up to a multiple of `multiple_of`, so that three matrices have
    as many parameters as two.
    """

    activation: Activation = staticmethod(torch.sigmoid)

    def __init__(self, dim: int, hidden: int | None, mult: float, multiple_of: int, bias: bool):
        super().__init__()
        self.hidden = width(dim, hidden, mult * 2 / 3, multiple_of)
        self.gate = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.up = tag(nn.Linear(dim, self.hidden, bias), "in")
        self.down = tag(nn.Linear(self.hidden, dim, bias), "out")

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Bilinear(GLU):
    """y = W₂ · (V x ⊙ W x): a gate without an activation (Shazeer 2020, arXiv 2002.05202)."""

    def activation(self, a: Tensor) -> Tensor:
        return a


class ReGLU(GLU):
    """y = W₂ · (max(0, V x) ⊙ W x) (Shazeer 2020, arXiv 2002.05202)."""

    activation = staticmethod(F.relu)


class GEGLU(GLU):
    """y = W₂ · (gelu(V x) ⊙ W x), gelu(a) = a · Φ(a) as in GELU (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(
        self, dim: int, hidden: int | None, mult: float, multiple_of: int, bias: bool, approximate: Approximate
    ):
        super().__init__(dim, hidden, mult, multiple_of, bias)
        self.approximate = approximate

    def activation(self, a: Tensor) -> Tensor:
        return F.gelu(a, approximate=self.approximate)


class SwiGLU(GLU):
    """y = W₂ · (silu(V x) ⊙ W x), silu(a) = a · σ(a) (Shazeer 2020, arXiv 2002.05202)."""

    activation = staticmethod(F.silu)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}  # W₂ · f(W₁ x)
Expert = Literal["relu", "gelu", "silu", "reglu", "geglu", "swiglu", "clamped"]


def product(f: Callable[[Tensor], Tensor], gate: Tensor, up: Tensor) -> Tensor:
    """f(gate) ⊙ up."""
    return f(gate) * up


def clamped(gate: Tensor, up: Tensor) -> Tensor:
    """g · σ(1.702 g) ⊙ (u + 1), where g is the gate up to 7, u the other between −7 and 7 (gpt-oss 2025)."""
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


# W₂ · g(V x, W₁ x)
GATED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"reglu": functools.partial(product, F.relu)}
GATED |= {"geglu": functools.partial(product, F.gelu), "swiglu": functools.partial(product, F.silu), "clamped": clamped}


class Experts(nn.Module):
    """FFNs with stacked matrices (n, in, out): each group of rows passes one of them.  All biases of a kind are one
    vector (n · out,), so that they have no weight decay."""

    def __init__(self, count: int, dim: int, hidden: int, expert: Expert, bias: bool = False):
        super().__init__()
        register_operators()
        gated, self.activation = expert in GATED, (FORMS | GATED)[expert]
        self.gate = with_role(torch.zeros(count, dim, hidden), "in") if gated else None
        self.up = with_role(torch.zeros(count, dim, hidden), "in")
        self.down = with_role(torch.zeros(count, hidden, dim), "out")
        self.gate_bias = with_role(torch.zeros(count * hidden), "bias", fan_in=dim) if bias and gated else None
        self.up_bias = with_role(torch.zeros(count * hidden), "bias", fan_in=dim) if bias else None
        self.down_bias = with_role(torch.zeros(count * dim), "bias", fan_in=hidden) if bias else None

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:  # (N, C), ends of the groups of rows (n,) -> (N, C)
        inner = [grouped(x, self.up, ends, self.up_bias)]
        if self.gate is not None:
            inner = [grouped(x, self.gate, ends, self.gate_bias), *inner]
        return grouped(self.activation(*inner), self.down, ends, self.down_bias)


def grouped(x: Tensor, weight: Tensor, ends: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply groups of rows of x, ending at `ends`, by their matrices: (N, in), (n, in, out) -> (N, out).  Each group
    has its own bias, all in one vector (n · out,)."""
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    made: Tensor = torch.ops.ablate.grouped_product(x, weight, ends)
    if bias is None:
        return made
    group = (torch.arange(len(x), device=x.device)[:, None] >= ends).sum(-1)  # of each row
    return made + F.embedding(group, bias.view(len(weight), -1)).to(made.dtype)


@functools.cache
def register_operators() -> None:
    """Register the two grouped products as custom operators.  The number of rows per expert depends on the data, and so
    would a compiled graph of these loops."""
    product = torch.library.custom_op("ablate::grouped_product", product_of_groups, mutates_args=())
    product.register_fake(lambda x, weight, ends: x.new_empty(len(x), weight.shape[-1]))
    product.register_autograd(
        rows_and_matrices, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    flops = lambda x, weight, *args, **kwargs: 2 * x[0] * weight[-2] * weight[-1]  # noqa: E731 (a row is in one group)
    register_flop_formula(torch.ops.ablate.grouped_product)(flops)
    gradient = torch.library.custom_op("ablate::grouped_gradient", gradient_of_groups, mutates_args=())
    gradient.register_fake(lambda x, of_rows, ends: x.new_empty(len(ends), x.shape[-1], of_rows.shape[-1]))


def product_of_groups(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group's rows of x by its matrix: (N, in), (groups, in, out), ends of the groups -> (N, out)."""
    made = x.new_zeros(len(x), weight.shape[-1])
    for start, end, matrix in groups(ends, weight):
        torch.mm(x[start:end], matrix, out=made[start:end])
    return made


def gradient_of_groups(x: Tensor, of_rows: Tensor, ends: Tensor) -> Tensor:
    """xᵀ · gradient of each group: (N, in), (N, out) -> (n, in, out)."""
    made = x.new_zeros(len(ends), x.shape[-1], of_rows.shape[-1])
    for start, end, matrix in groups(ends, made):
        torch.mm(x[start:end].t(), of_rows[start:end], out=matrix)
    return made


def groups(ends: Tensor, of_each: Tensor) -> list[tuple[int, int, Tensor]]:
    """Start, end and tensor of each non-empty group."""
    found = ends.tolist()
    return [group for group in zip([0, *found], found, of_each, strict=False) if group[0] < group[1]]


def rows_and_matrices(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    """The gradients of `grouped` with respect to rows and matrices, if needed."""
    x, weight, ends = ctx.saved_tensors
    of_x = torch.ops.ablate.grouped_product(gradient, weight.mT, ends) if ctx.needs_input_grad[0] else None
    of_weight = torch.ops.ablate.grouped_gradient(x, gradient, ends) if ctx.needs_input_grad[1] else None
    return of_x, of_weight, None


class MoE(nn.Module):
    """y = Σ_{i ∈ top} g_i · E_i(x) + S(x), p = softmax(R x), top the `top_k` largest p_i; no tokens are dropped.

    g_i = p_i / Σ_{j ∈ top} p_j with `renormalised` gates (Jiang 2024, arXiv 2401.04088), p_i with `plain` ones (Fedus
    2021, arXiv 2101.03961).  S are `shared` experts for all tokens, computed in parallel (Dai 2024, arXiv 2401.06066).
    Training adds `balance` · n · Σ_i f_i · P_i over n experts, where f_i is the share of real tokens' choices that are
    i, and P_i the mean p_i / Σ_j p_j over real tokens (Fedus 2021).  It is `balance` if experts are used equally.

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
        *,
        scores: Literal["sigmoid"] | None = None,  # p = σ(R x) (DeepSeek-AI 2024, DeepSeek-V3, arXiv 2412.19437)
        # Experts form equal groups, and a token chooses among those of the `top_groups` with the largest sums of their
        # two largest p_i (DeepSeek-V3).
        groups: int | None = None,
        top_groups: int | None = None,
        scale: float | None = None,  # a factor of all gates (DeepSeek-V3: 2.5)
        # Top is chosen by p_i + b_i; b_i, initially 0, is trained by the gradient f_i − 1/n alone, so that it falls
        # while i is chosen too often (Wang 2024, arXiv 2408.15664, who take steps of a fixed size).
        correction: Literal["load"] | None = None,
        bias: bool | None = None,  # whether router and experts have biases (gpt-oss 2025)
    ):
        super().__init__()
        self.top_k = at_most("ffn.top_k", at_least("ffn.top_k", top_k, 1), experts)
        if gates == "renormalised" and top_k == 1:
            raise ValueError("ffn.gates=renormalised is 1 with ffn.top_k=1 and teaches the router nothing; write plain")
        passed = top_k + at_least("ffn.shared", shared, 0)
        self.hidden = width(dim, hidden, mult * (2 / 3 if expert in GATED else 1) / passed, multiple_of)
        self.active = passed / (experts + shared)
        self.coefficient, self.gates = at_least("ffn.balance", balance, 0), gates
        self.sigmoid, self.scale = scores == "sigmoid", None if scale is None else above("ffn.scale", scale, 0)
        self.groups, self.top_groups = grouping(experts, top_k, groups, top_groups)
        self.router = tag(nn.Linear(dim, experts, bias is True), "in")
        self.correction = None if correction is None else nn.Parameter(torch.zeros(experts))
        self.experts = Experts(experts, dim, self.hidden, expert, bias is True)
        self.shared = Experts(1, dim, shared * self.hidden, expert, bias is True) if shared else None

    def stated_flops(self, batch: int, length: int) -> float:
        """None besides its matrix products: sorting tokens by expert has no multiplications or additions."""
        return 0.0

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C), (B, T) -> (B, T, C)
        scores = self.scores(x)
        p = scores.sigmoid() if self.sigmoid else scores.softmax(-1)
        chosen = self.preferred(p).topk(self.top_k, -1)[1]  # (B, T, k)
        gates = p.gather(-1, chosen)
        if self.gates == "renormalised":
            gates = gates / gates.sum(-1, keepdim=True)
        gates = gates if self.scale is None else gates * self.scale
        picked = chosen[..., None] == torch.arange(p.shape[-1], device=x.device)  # (B, T, k, n)
        if self.training and (self.coefficient or self.correction is not None):
            self.balance = self.lost(p, picked, mask)
        rows = x[..., None, :].expand(*chosen.shape, -1)  # a row per token and choice
        rows, order = rows.reshape(-1, x.shape[-1]), chosen.reshape(-1).argsort(stable=True)
        found = self.experts(rows[order], picked.reshape(-1, p.shape[-1]).sum(0).cumsum(0))
        y = (found[order.argsort()].view(*chosen.shape, -1) * gates[..., None].to(found.dtype)).sum(-2)
        if self.shared is None:
            return y
        flat = x.reshape(-1, x.shape[-1])
        always = self.shared(flat, torch.full((1,), len(flat), device=x.device)).view(x.shape)
        return y + always

    def scores(self, x: Tensor) -> Tensor:
        """R x, (B, T, C) -> (B, T, n), in at least float32 even under autocast: in bf16 experts would tie."""
        dtype, bias = torch.promote_types(x.dtype, torch.float32), self.router.bias
        with as_given(x):
            return F.linear(x.to(dtype), self.router.weight.to(dtype), None if bias is None else bias.to(dtype))

    def preferred(self, p: Tensor) -> Tensor:
        """What experts are chosen by: (B, T, n) -> (B, T, n), −∞ outside of the chosen groups."""
        p = p.detach() if self.correction is None else p.detach() + self.correction.detach()
        if self.groups == 1:
            return p
        grouped = p.unflatten(-1, (self.groups, -1))
        best = grouped.topk(min(2, grouped.shape[-1]), -1)[0].sum(-1).topk(self.top_groups, -1)[1]
        among = (best[..., None] == torch.arange(self.groups, device=p.device)).any(-2)  # (B, T, groups)
        return grouped.masked_fill(~among[..., None], -math.inf).flatten(-2)

    def lost(self, p: Tensor, picked: Tensor, mask: Tensor | None) -> Tensor:  # (B, T, n), (B, T, k, n), (B, T) -> ()
        """`balance` · n · Σ_i f_i · P_i over the real tokens, plus 0 with the correction's gradient."""
        real = torch.ones_like(p[..., :1]) if mask is None else mask[..., None].to(p.dtype)
        count = real.sum().clamp(min=1)
        load = (picked.sum(-2) * real).flatten(0, -2).sum(0) / (count * picked.shape[-2])
        shares = p / p.sum(-1, keepdim=True) if self.sigmoid else p
        found = self.coefficient * (p.shape[-1] * (load * (shares * real).flatten(0, -2).sum(0) / count).sum())
        if self.correction is None:
            return found
        return found + ((self.correction - self.correction.detach()) * (load - 1 / len(load))).sum()


def grouping(experts: int, top_k: int, groups: int | None, top_groups: int | None) -> tuple[int, int]:
    """The number of groups of experts, and of those that a token chooses from; by default one.  Raises ValueError."""
    if (groups is None) != (top_groups is None):
        raise ValueError("ffn.groups and ffn.top_groups need each other; write both, or neither")
    if groups is None or top_groups is None:
        return 1, 1
    if experts % at_least("ffn.groups", groups, 1):
        raise ValueError(f"ffn.groups={groups} must divide ffn.experts={experts}")
    at_most("ffn.top_groups", at_least("ffn.top_groups", top_groups, 1), groups)
    return groups, at_least("ffn.top_groups", top_groups, math.ceil(top_k * groups / experts))


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
