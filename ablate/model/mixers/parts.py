"""Shared parts of mixers: recurrences, base classes, heads, a short convolution, and token-dependent decays.

The recurrences are those of `chunked`, optionally with the Triton kernels of flash-linear-attention (package fla-core).
These need a GPU; on the meta device, on a CPU and in float64 `chunked` is used.
"""

import functools
import os
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.extra import extra
from ablate.config.ranges import BadValue, at_least
from ablate.model.init import tag, with_role
from ablate.model.mixers import chunked
from ablate.model.mixers.chunked import decaying_flops
from ablate.model.norm import RMSNorm
from ablate.model.shape import Shape

Kernels = Literal["fla"]
MIN_FEATURES = 16  # smallest inner dimension of a product in Triton
NOTE = "computed by flash-linear-attention's kernels; FLOPs and memory are those of the plain form"


def by_head(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, kernels: Kernels | None) -> Tensor:
    """`chunked.by_head`, by the library's kernels if they are set and support the tensors."""
    if kernels is None or not supports(query):
        return chunked.by_head(query, key, value, log_decay)
    return by_library("simple_gla", query, key, value, g=log_decay)


def by_feature(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, kernels: Kernels | None) -> Tensor:
    """`chunked.by_feature`, likewise."""
    if kernels is None or not supports(query):
        return chunked.by_feature(query, key, value, log_decay)
    return by_library("gla", query, key, value, g=log_decay)


def by_delta(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, strength: Tensor, kernels: Kernels | None
) -> Tensor:
    """`chunked.by_delta`, likewise."""
    if kernels is None or not supports(query):
        return chunked.by_delta(query, key, value, log_decay, strength)
    return by_library("gated_delta_rule", query, key, value, g=log_decay, beta=strength)


def supports(x: Tensor) -> bool:
    """Whether the kernels support a tensor."""
    return x.is_cuda and x.dtype is not torch.float64


@torch.compiler.disable  # as in the library: causes a graph break in a compiled model
def by_library(rule: str, query: Tensor, key: Tensor, value: Tensor, **rates: Tensor) -> Tensor:
    """Apply one of the library's rules: Q, K (B, H or 1, T, D), V (B, H, T, V), rates (B, H, T, …) -> (B, H, T, V).  Q,
    K and V get one dtype, that of autocast if it is enabled, as in the products of `chunked`; rates keep theirs."""
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
    shape = (-1, rates["g"].shape[1], -1, -1)
    positions_first = [x.to(dtype).expand(shape).transpose(1, 2) for x in (query, key, value)]
    rates = {name: x.transpose(1, 2) for name, x in rates.items()}
    output: Tensor = library_rule(rule)(*positions_first, **rates, scale=1.0)[0]
    return output.transpose(1, 2)


@functools.cache
def library_rule(rule: str) -> Any:
    """The chunked function of a rule.  Raises ValueError if the library is not installed.  Uses true float32 instead of
    TF32, and the library's own kernels, whatever other packages are installed."""
    os.environ |= {"TRITON_F32_DEFAULT": "ieee", "FLA_DISABLE_BACKEND_DISPATCH": "1"}
    return getattr(extra(f"fla.ops.{rule}", "attention.kernels=fla", "fla"), f"chunk_{rule}")


def choose_kernels(
    mixer: nn.Module, kernels: Kernels | None, keys: int, values: int, max_keys: int | None = None
) -> None:
    """Set a mixer's kernels, given the features of a head's keys, of which there may be at most `max_keys`, and values.
    Raises ValueError for unsupported sizes."""
    mixer.kernels = kernels
    if kernels is None:
        return
    sizes = f"not {keys} of a head's keys and {values} of its values"
    if min(keys, values) < MIN_FEATURES or keys % 2 or values % 2:
        problem = f"takes even numbers of features ≥ {MIN_FEATURES}, {sizes}; write fewer model.heads, or leave it out"
        raise BadValue("kernels", f"{kernels} {problem}")
    if max_keys and keys > max_keys:
        raise BadValue("kernels", f"{kernels} takes at most {max_keys} features of keys, {sizes}; leave it out")
    note = getattr(mixer, "note", None)
    mixer.note = f"{note}; {NOTE}" if note else NOTE


class Recurrent(nn.Module):
    """A mixer that is always causal, even if `causal` is false: (B, T, C) -> (B, T, C).  Its recurrence uses `kernels`
    if they are set.  A head's queries and keys have `keys` features, its values `values`."""

    causal_only = True  # cannot be the only mixer of an encoder, or cross-attention
    reads: tuple[str, ...] = ()  # fields of Places that it uses
    late = ("kernels",)  # settings that only affect a GPU
    max_keys: int | None = None  # features of a head's keys that its kernels support

    def __init__(self, shape: Shape, keys: int, values: int, kernels: Kernels | None):
        super().__init__()
        self.heads = shape.heads
        self.keys = keys
        if shape.encoder_layers:
            self.note = "it reads a source from left to right, as it does a target"
        choose_kernels(self, kernels, keys, values, self.max_keys)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H · D) -> (B, H, T, D)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of one decay per head and position."""
        return decaying_flops(batch, length, self.heads, self.keys)


class GatedOutput(Recurrent):
    """A recurrent mixer with the output (silu(W_gate x) ⊙ RMSNorm_h(o)) W_out, which normalises each head's o (V).  The
    scale of queries thus matters only relative to the norm's ε, below which o is mostly noise."""

    def __init__(self, shape: Shape, keys: int, values: int, bias: bool, eps: float, kernels: Kernels | None):
        super().__init__(shape, keys, values, kernels)
        self.gate = tag(nn.Linear(shape.dim, self.heads * values, bias), "in")
        self.norm = RMSNorm(values, eps)
        self.out = tag(nn.Linear(self.heads * values, shape.dim, bias), "out")
        self.sizes = [self.heads * keys, self.heads * keys, self.heads * values]
        self.query = tag(nn.Linear(shape.dim, self.heads * keys, bias), "in")
        self.key = tag(nn.Linear(shape.dim, self.heads * keys, bias), "in")
        self.value = tag(nn.Linear(shape.dim, self.heads * values, bias), "in")

    def gated_output(self, x: Tensor, output: Tensor) -> Tensor:  # (B, T, C), (B, H, T, V) -> (B, T, C)
        return self.out(F.silu(self.gate(x)) * merge_heads(self.norm(output)))


class ShortConvolution(nn.Module):
    """y_t = silu(Σ_j w_j ⊙ x_{t−j} + b), j < `size`, per feature: (B, T, C) -> (B, T, C).  Initially y_t = silu(x_t)
    for every seed; the authors' code draws the weights.  Without `bias`, b is 0."""

    def __init__(self, features: int, size: int, bias: bool = False):
        super().__init__()
        self.size = at_least("convolution", size, 1)
        weight = torch.zeros(features, size)
        weight[:, 0] = 1
        self.weight = with_role(weight, "constant")
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-2]
        padded = F.pad(x, (0, 0, self.size - 1, 0))
        total = torch.zeros_like(x) if self.bias is None else self.bias.to(x.dtype)
        for delay in range(self.size):
            first = self.size - 1 - delay
            total = total + self.weight[:, delay] * padded[..., first : first + length, :]
        return F.silu(total)

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of its element-wise products."""
        return 2 * batch * length * self.weight.numel()


class Decay(nn.Module):
    """log a = −exp(A) · Δ, Δ = softplus(W x + b), per head: (B, T, C) -> log a and Δ, both (B, H, T).

    Initially exp(A) goes linearly from 1 to 16 over the heads, and softplus(b) logarithmically from 0.001 to 0.1; Dao &
    Gu 2024 draw both from these ranges.
    """

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.step = tag(nn.Linear(dim, heads, bias=False), "in")
        self.rate = nn.Parameter(torch.linspace(1, 16, heads).log())
        self.bias = nn.Parameter(torch.logspace(-3, -1, heads).expm1().log())

    def forward(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(x.dtype, torch.float32)  # a decay of 0.999 is 1 in bf16
        step = -F.logsigmoid(-self.step(x).to(dtype) - self.bias)  # torch compiles softplus's gradient wrongly
        step = real(step, mask).transpose(-2, -1)
        return -self.rate.to(dtype).exp()[:, None] * step, step


def width(name: str, share: float, features: int) -> int:
    """The number of features that is this share of a head's.  Raises ValueError if it is not a whole number."""
    product = share * features
    if product < 1 or product != int(product):
        problem = f"{share} of a head's {features} features would be {product:g}"
        raise BadValue(name, f"{problem}; write a share that gives a whole number ≥ 1")
    return int(product)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, H · D)."""
    return x.transpose(-3, -2).flatten(-2)


def real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Set padded positions of (B, T, C) to zero, given a mask (B, T)."""
    return x if mask is None else x * mask[..., None].to(x.dtype)
