"""Position-wise feed-forward networks: (B, T, C) -> (B, T, C).  Variants of a family differ only in `activation`."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

from ablate.config.ranges import BadValue, above, at_least, at_most
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


def reglu(gate: Tensor, up: Tensor) -> Tensor:
    """max(0, gate) ⊙ up."""
    return F.relu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) ⊙ up."""
    return F.gelu(gate) * up


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) ⊙ up."""
    return F.silu(gate) * up


def clamped(gate: Tensor, up: Tensor) -> Tensor:
    """g · σ(1.702 g) ⊙ (u + 1), where g is the gate up to 7, u the other between −7 and 7 (gpt-oss 2025)."""
    gate = gate.clamp(max=7)
    up = up.clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


Expert = Literal["relu", "gelu", "silu", "reglu", "geglu", "swiglu", "clamped"]
UNGATED: dict[str, Activation] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}  # W₂ · f(W₁ x)
GATED: dict[str, Activation] = {
    "reglu": reglu,
    "geglu": geglu,
    "swiglu": swiglu,
    "clamped": clamped,
}  # W₂ · f(V x, W₁ x)


class Experts(nn.Module):
    """FFNs with stacked matrices (n, in, out): each group of rows passes one of them.  All biases of a kind are one
    vector (n · out,), so that they have no weight decay."""

    def __init__(self, count: int, dim: int, hidden: int, expert: Expert, bias: bool = False):
        super().__init__()
        register_operators()
        gated = expert in GATED
        self.activation = GATED[expert] if gated else UNGATED[expert]
        self.gate = with_role(torch.zeros(count, dim, hidden), "in") if gated else None
        self.up = with_role(torch.zeros(count, dim, hidden), "in")
        self.down = with_role(torch.zeros(count, hidden, dim), "out")
        self.gate_bias = with_role(torch.zeros(count * hidden), "bias", fan_in=dim) if bias and gated else None
        self.up_bias = with_role(torch.zeros(count * hidden), "bias", fan_in=dim) if bias else None
        self.down_bias = with_role(torch.zeros(count * dim), "bias", fan_in=hidden) if bias else None

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:  # (N, C), ends of the groups of rows (n,) -> (N, C)
        up = grouped(x, self.up, ends, self.up_bias)
        if self.gate is None:
            hidden = self.activation(up)
        else:
            hidden = self.activation(grouped(x, self.gate, ends, self.gate_bias), up)
        return grouped(hidden, self.down, ends, self.down_bias)


def grouped(x: Tensor, weight: Tensor, ends: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply groups of rows of x, ending at `ends`, by their matrices: (N, in), (n, in, out) -> (N, out).  Each group
    has its own bias, all in one vector (n · out,)."""
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x = x.to(dtype)
        weight = weight.to(dtype)
    product: Tensor = torch.ops.ablate.grouped_product(x, weight, ends)
    if bias is None:
        return product
    group_of_row = (torch.arange(len(x), device=x.device)[:, None] >= ends).sum(-1)
    return product + F.embedding(group_of_row, bias.view(len(weight), -1)).to(product.dtype)


@functools.cache
def register_operators() -> None:
    """Register the two grouped products as custom operators.  The number of rows per expert depends on the data, and so
    would a compiled graph of these loops."""
    product = torch.library.custom_op("ablate::grouped_product", grouped_product, mutates_args=())
    product.register_fake(empty_product)
    product.register_autograd(grouped_product_backward, setup_context=save_factors)
    register_flop_formula(torch.ops.ablate.grouped_product)(grouped_product_flops)
    gradient = torch.library.custom_op("ablate::grouped_gradient", grouped_gradient, mutates_args=())
    gradient.register_fake(empty_gradient)


def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group's rows of x by its matrix: (N, in), (n, in, out), ends of the groups (n,) -> (N, out)."""
    product = x.new_zeros(len(x), weight.shape[-1])
    for i, start, end in nonempty_groups(ends):
        torch.mm(x[start:end], weight[i], out=product[start:end])
    return product


def grouped_gradient(x: Tensor, product_gradient: Tensor, ends: Tensor) -> Tensor:
    """The gradient of each group's matrix, xᵀ · gradient: (N, in), (N, out) -> (n, in, out)."""
    gradient = x.new_zeros(len(ends), x.shape[-1], product_gradient.shape[-1])
    for i, start, end in nonempty_groups(ends):
        torch.mm(x[start:end].t(), product_gradient[start:end], out=gradient[i])
    return gradient


def nonempty_groups(ends: Tensor) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of each group that has rows."""
    start = 0
    for i, end in enumerate(ends.tolist()):
        if end > start:
            yield i, start, end
        start = end


def empty_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """A tensor like what `grouped_product` returns."""
    return x.new_empty(len(x), weight.shape[-1])


def empty_gradient(x: Tensor, product_gradient: Tensor, ends: Tensor) -> Tensor:
    """A tensor like what `grouped_gradient` returns."""
    return x.new_empty(len(ends), x.shape[-1], product_gradient.shape[-1])


def save_factors(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    """Save what the backward pass needs."""
    ctx.save_for_backward(*inputs)


def grouped_product_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    """The gradients of `grouped_product` with respect to rows and matrices, if needed."""
    x, weight, ends = ctx.saved_tensors
    x_gradient = None
    weight_gradient = None
    if ctx.needs_input_grad[0]:
        x_gradient = torch.ops.ablate.grouped_product(gradient, weight.mT, ends)
    if ctx.needs_input_grad[1]:
        weight_gradient = torch.ops.ablate.grouped_gradient(x, gradient, ends)
    return x_gradient, weight_gradient, None


def grouped_product_flops(x: Sequence[int], weight: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """FLOPs by shapes (N, in), (n, in, out): every row is in one group."""
    return 2 * x[0] * weight[-2] * weight[-1]


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
        at_least("top_k", top_k, 1)
        at_most("top_k", top_k, experts)
        at_least("shared", shared, 0)
        at_least("balance", balance, 0)
        if scale is not None:
            above("scale", scale, 0)
        if gates == "renormalised" and top_k == 1:
            raise ValueError("gates=renormalised is 1 with top_k=1 and teaches the router nothing; write plain")
        passed = top_k + shared  # experts that a token passes
        if expert in GATED:
            mult = mult * (2 / 3)
        self.hidden = width(dim, hidden, mult / passed, multiple_of)
        self.active = passed / (experts + shared)
        self.top_k = top_k
        self.gates = gates
        self.scale = scale
        self.coefficient = balance
        self.sigmoid = scores == "sigmoid"
        self.groups, self.top_groups = grouping(experts, top_k, groups, top_groups)
        self.router = tag(nn.Linear(dim, experts, bias is True), "in")
        self.correction = None if correction is None else nn.Parameter(torch.zeros(experts))
        self.experts = Experts(experts, dim, self.hidden, expert, bias is True)
        self.shared = Experts(1, dim, shared * self.hidden, expert, bias is True) if shared else None

    def stated_flops(self, batch: int, length: int) -> float:
        """None besides its matrix products: sorting tokens by expert has no multiplications or additions."""
        return 0.0

    # Suffixes are dimensions: Batch, Time, Channels, K chosen experts, Experts, Groups of experts, N = B · T · K rows.

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C), (B, T) -> (B, T, C)
        logits_BTE = self.router_logits(x)
        p_BTE = logits_BTE.sigmoid() if self.sigmoid else logits_BTE.softmax(-1)
        expert_BTK = self.selection_scores(p_BTE).topk(self.top_k, -1)[1]
        gate_BTK = p_BTE.gather(-1, expert_BTK)
        if self.gates == "renormalised":
            gate_BTK = gate_BTK / gate_BTK.sum(-1, keepdim=True)
        if self.scale is not None:
            gate_BTK = gate_BTK * self.scale
        is_chosen_BTKE = expert_BTK[..., None] == torch.arange(p_BTE.shape[-1], device=x.device)
        if self.training and (self.coefficient or self.correction is not None):
            self.balance = self.balance_loss(p_BTE, is_chosen_BTKE, mask)

        # Rows sorted by expert: the groups of rows that each expert multiplies.
        x_NC = x[..., None, :].expand(*expert_BTK.shape, -1).reshape(-1, x.shape[-1])
        order_N = expert_BTK.reshape(-1).argsort(stable=True)
        ends_E = is_chosen_BTKE.reshape(-1, p_BTE.shape[-1]).sum(0).cumsum(0)
        y_NC = self.experts(x_NC[order_N], ends_E)
        y_BTKC = y_NC[order_N.argsort()].view(*expert_BTK.shape, -1)
        y_BTC = (y_BTKC * gate_BTK[..., None].to(y_NC.dtype)).sum(-2)
        if self.shared is None:
            return y_BTC
        tokens = x.reshape(-1, x.shape[-1])
        shared = self.shared(tokens, torch.full((1,), len(tokens), device=x.device))
        return y_BTC + shared.view(x.shape)

    def router_logits(self, x: Tensor) -> Tensor:
        """R x, (B, T, C) -> (B, T, E), in at least float32 even under autocast: in bf16 experts would tie."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        weight = self.router.weight.to(dtype)
        bias = None if self.router.bias is None else self.router.bias.to(dtype)
        with as_given(x):
            return F.linear(x.to(dtype), weight, bias)

    def selection_scores(self, p_BTE: Tensor) -> Tensor:
        """What experts are chosen by: (B, T, E) -> (B, T, E), −∞ outside of the chosen groups."""
        score_BTE = p_BTE.detach()
        if self.correction is not None:
            score_BTE = score_BTE + self.correction.detach()
        if self.groups == 1:
            return score_BTE
        score_BTGE = score_BTE.unflatten(-1, (self.groups, -1))  # E: those of a group
        best_two = min(2, score_BTGE.shape[-1])
        score_BTG = score_BTGE.topk(best_two, -1)[0].sum(-1)
        group_BTK = score_BTG.topk(self.top_groups, -1)[1]
        is_chosen_BTG = (group_BTK[..., None] == torch.arange(self.groups, device=score_BTG.device)).any(-2)
        return score_BTGE.masked_fill(~is_chosen_BTG[..., None], -math.inf).flatten(-2)

    def balance_loss(self, p_BTE: Tensor, is_chosen_BTKE: Tensor, mask: Tensor | None) -> Tensor:
        """`balance` · n · Σ_i f_i · P_i over the real tokens (B, T), plus 0 with the correction's gradient."""
        real_BT1 = torch.ones_like(p_BTE[..., :1]) if mask is None else mask[..., None].to(p_BTE.dtype)
        tokens = real_BT1.sum().clamp(min=1)
        top_k = is_chosen_BTKE.shape[-2]
        load_E = (is_chosen_BTKE.sum(-2) * real_BT1).flatten(0, -2).sum(0) / (tokens * top_k)
        if self.sigmoid:
            p_BTE = p_BTE / p_BTE.sum(-1, keepdim=True)
        p_sum_E = (p_BTE * real_BT1).flatten(0, -2).sum(0)
        loss = self.coefficient * (len(load_E) * (load_E * p_sum_E / tokens).sum())
        if self.correction is None:
            return loss
        zero_E = self.correction - self.correction.detach()
        return loss + (zero_E * (load_E - 1 / len(load_E))).sum()


def grouping(experts: int, top_k: int, groups: int | None, top_groups: int | None) -> tuple[int, int]:
    """The number of groups of experts, and of those that a token chooses from; by default one.  Raises ValueError."""
    if groups is None and top_groups is None:
        return 1, 1
    if groups is None or top_groups is None:
        raise ValueError("groups and top_groups need each other; write both, or neither")
    at_least("groups", groups, 1)
    if experts % groups:
        raise BadValue("groups", f"must divide the number of experts, {experts}, not {groups}")
    at_least("top_groups", top_groups, math.ceil(top_k * groups / experts))
    at_most("top_groups", top_groups, groups)
    return groups, top_groups


def none() -> nn.Module | None:
    """No feed-forward network: the block omits it and its norm."""
    return None


def width(dim: int, hidden: int | None, mult: float, multiple_of: int = 1) -> int:
    """`hidden`, by default ⌊mult · dim⌋ rounded up to a multiple.  Raises ValueError below 1."""
    at_least("multiple_of", multiple_of, 1)
    if hidden is None:
        hidden = -(-int(mult * dim + 1e-9) // multiple_of) * multiple_of
    if hidden < 1:
        raise ValueError(f"its hidden width would be {hidden}; write a larger mult or hidden")
    return hidden
