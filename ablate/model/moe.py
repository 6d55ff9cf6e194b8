"""Sparse mixtures of experts: each token passes few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least, at_most
from ablate.model.ffn import width
from ablate.model.init import tag

FORMS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}  # W₂ · f(W₁ x)
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "reglu": F.relu,
    "geglu": F.gelu,
    "swiglu": F.silu,
}  # W₂ · (f(V x) ⊙ W₁ x)
Expert = Literal["relu", "gelu", "silu", "reglu", "geglu", "swiglu"]


class MoE(nn.Module):
    """y = Σ_{i ∈ top} g_i · E_i(x) + S(x), p = softmax(R x), top the `top_k` largest p_i; no token is dropped.

    g_i = p_i / Σ_{j ∈ top} p_j with gates `renormalised` (Jiang 2024, arXiv 2401.04088), p_i with `plain` ones (Fedus
    2021, arXiv 2101.03961).  S are `shared` experts that every token passes, side by side (Dai 2024, arXiv 2401.06066).
    Training adds `balance` · n · Σ_i f_i · P_i over n experts, f_i the share of real tokens' choices that are i, P_i
    the mean p_i over real tokens (Fedus 2021): `balance` where all are alike.

    Without `hidden` an expert is so wide that those which a token passes are together as wide as one dense FFN.
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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C), (B, T) -> (B, T, C)
        p = self.router(x).softmax(-1)
        gates, chosen = p.topk(self.top_k, -1)  # (B, T, k)
        if self.gates == "renormalised":
            gates = gates / gates.sum(-1, keepdim=True)
        picked = chosen[..., None] == torch.arange(p.shape[-1], device=x.device)  # (B, T, k, n)
        if self.training and self.coefficient:
            self.balance = self.coefficient * balance(p, picked, mask)
        rows = x[..., None, :].expand(*chosen.shape, -1).reshape(-1, x.shape[-1])  # of each token one for each choice
        order = chosen.reshape(-1).argsort(stable=True)
        found = self.experts(rows[order], picked.reshape(-1, p.shape[-1]).sum(0).cumsum(0))
        y = (found[order.argsort()].view(*chosen.shape, -1) * gates[..., None]).sum(-2)
        if self.shared is None:
            return y
        flat = x.reshape(-1, x.shape[-1])
        return y + self.shared(flat, torch.full((1,), len(flat), device=x.device)).view(x.shape)


def balance(p: Tensor, picked: Tensor, mask: Tensor | None) -> Tensor:  # (B, T, n), (B, T, k, n), (B, T) -> ()
    """n · Σ_i f_i · P_i over the real tokens, at least about 1."""
    real = torch.ones_like(p[..., :1]) if mask is None else mask[..., None].to(p.dtype)
    count = real.sum().clamp(min=1)
    share = (picked.sum(-2) * real).flatten(0, -2).sum(0) / (count * picked.shape[-2])
    return p.shape[-1] * (share * (p * real).flatten(0, -2).sum(0) / count).sum()


class Experts(nn.Module):
    """FFNs without biases side by side, whose matrices are (n, in, out): rows in groups, each through one of them."""

    def __init__(self, count: int, dim: int, hidden: int, expert: Expert):
        super().__init__()
        self.activation = (FORMS | GATED)[expert]
        self.gate = matrices(count, dim, hidden, "in") if expert in GATED else None
        self.up = matrices(count, dim, hidden, "in")
        self.down = matrices(count, hidden, dim, "out")

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:  # (N, C), where each group of rows ends (n,) -> (N, C)
        up = grouped(x, self.up, ends)
        inner = self.activation(up) if self.gate is None else self.activation(grouped(x, self.gate, ends)) * up
        return grouped(inner, self.down, ends)


def matrices(count: int, rows: int, columns: int, role: str) -> nn.Parameter:
    """A parameter of as many matrices, not yet drawn."""
    made = nn.Parameter(torch.zeros(count, rows, columns))
    made.role = role
    return made


def grouped(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Rows of x, in groups that end at `ends`, each times its group's matrix: (N, in), (n, in, out) -> (N, out)."""
    if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    made: Tensor = grouped_product(x, weight, ends)
    return made


# Operators of our own: how many rows an expert gets depends on the data, and so would a graph that is compiled of this.
@torch.library.custom_op("ablate::grouped_product", mutates_args=())
def grouped_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """See `grouped`."""
    made = x.new_zeros(len(x), weight.shape[-1])
    for start, end, matrix in groups(ends, weight):
        torch.mm(x[start:end], matrix, out=made[start:end])
    return made


@torch.library.custom_op("ablate::grouped_gradient", mutates_args=())
def grouped_gradient(x: Tensor, gradient: Tensor, ends: Tensor) -> Tensor:
    """Of each group xᵀ · gradient: (N, in), (N, out) -> (n, in, out)."""
    made = x.new_zeros(len(ends), x.shape[-1], gradient.shape[-1])
    for start, end, matrix in groups(ends, made):
        torch.mm(x[start:end].t(), gradient[start:end], out=matrix)
    return made


def groups(ends: Tensor, of_each: Tensor) -> list[tuple[int, int, Tensor]]:
    """Where each group that has rows starts and ends, and what of a tensor is its own."""
    found = ends.tolist()
    return [group for group in zip([0, *found], found, of_each, strict=False) if group[0] < group[1]]


@grouped_product.register_fake
def _shape_of_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(len(x), weight.shape[-1])


@grouped_gradient.register_fake
def _shape_of_gradient(x: Tensor, gradient: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(len(ends), x.shape[-1], gradient.shape[-1])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight, ends = ctx.saved_tensors
    of_x = grouped_product(gradient, weight.mT, ends) if ctx.needs_input_grad[0] else None
    return of_x, grouped_gradient(x, gradient, ends) if ctx.needs_input_grad[1] else None, None


grouped_product.register_autograd(_backward, setup_context=_keep)


def _one_by_one(operator: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, int]]:
    """The rule by which vmap calls an operator: for each entry of a stack, one after another."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[Tensor, int]:
        stacked = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(given, in_dims, strict=True)
        ]
        return torch.stack([operator(*each) for each in zip(*stacked, strict=True)]), 0

    return rule


grouped_product.register_vmap(_one_by_one(grouped_product))
grouped_gradient.register_vmap(_one_by_one(grouped_gradient))
