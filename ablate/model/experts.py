"""Batched feed-forward networks, each applied to its own rows: the experts of a mixture of experts."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

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
    """FFNs with stacked matrices (n, in, out): each group of rows passes one of them."""

    def __init__(self, count: int, dim: int, hidden: int, expert: Expert, bias: bool = False):
        super().__init__()
        register_operators()
        self.activation: Callable[..., Tensor] = (FORMS | GATED)[expert]
        self.gate = matrices(count, dim, hidden, "in") if expert in GATED else None
        self.up = matrices(count, dim, hidden, "in")
        self.down = matrices(count, hidden, dim, "out")
        self.gate_bias = biases(count, hidden, dim) if bias and expert in GATED else None
        self.up_bias = biases(count, hidden, dim) if bias else None
        self.down_bias = biases(count, dim, hidden) if bias else None

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:  # (N, C), ends of the groups of rows (n,) -> (N, C)
        inner = [grouped(x, self.up, ends, self.up_bias)]
        if self.gate is not None:
            inner = [grouped(x, self.gate, ends, self.gate_bias), *inner]
        return grouped(self.activation(*inner), self.down, ends, self.down_bias)


def matrices(count: int, rows: int, columns: int, role: str) -> nn.Parameter:
    """A parameter of `count` matrices, not yet initialised."""
    made = nn.Parameter(torch.zeros(count, rows, columns))
    made.role = role
    return made


def biases(count: int, features: int, fan_in: int) -> nn.Parameter:
    """A parameter of `count` biases, as one vector (count · features,), so that it has no weight decay."""
    made = nn.Parameter(torch.zeros(count * features))
    made.role, made.fan_in = "bias", fan_in
    return made


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
    register_flop_formula(torch.ops.ablate.grouped_product)(flops_of_groups)
    gradient = torch.library.custom_op("ablate::grouped_gradient", gradient_of_groups, mutates_args=())
    gradient.register_fake(lambda x, of_rows, ends: x.new_empty(len(ends), x.shape[-1], of_rows.shape[-1]))


def product_of_groups(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group's rows of x by its matrix: (N, in), (groups, in, out), ends of the groups -> (N, out)."""
    made = x.new_zeros(len(x), weight.shape[-1])
    for start, end, matrix in groups(ends, weight):
        torch.mm(x[start:end], matrix, out=made[start:end])
    return made


def flops_of_groups(x: Sequence[int], weight: Sequence[int], *args: Any, **kwargs: Any) -> int:
    """FLOPs of the grouped product from its shapes: each row is in one group."""
    return 2 * x[0] * weight[-2] * weight[-1]


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
