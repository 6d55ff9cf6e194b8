"""Shared parts of mixers: base classes, heads, a short convolution, and token-dependent decays."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.init import tag
from ablate.model.mixers.chunked import decaying_flops
from ablate.model.mixers.kernels import Kernels, choose_kernels
from ablate.model.norm import RMSNorm
from ablate.model.shape import Shape


class Recurrent(nn.Module):
    """A mixer that is always causal, even if `causal` is false: (B, T, C) -> (B, T, C).  Its recurrence uses `kernels`
    if they are set."""

    causal_only = True  # cannot be the only mixer of an encoder, or cross-attention
    reads: tuple[str, ...] = ()  # fields of Places that it uses
    late = ("kernels",)  # settings that only affect a GPU

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        if shape.encoder_layers:
            self.note = "it reads a source from left to right, as it does a target"


class GatedOutput(Recurrent):
    """A recurrent mixer with the output (silu(W_gate x) ⊙ RMSNorm_h(o)) W_out, which normalises each head's o (V).  The
    scale of queries thus matters only relative to the norm's ε, below which o is mostly noise.  A head's
    queries and keys have `keys` features, its values `values`."""

    most: int | None = None  # features of a head's keys that its kernels support

    def __init__(self, shape: Shape, keys: int, values: int, bias: bool, eps: float, kernels: Kernels | None):
        super().__init__(shape)
        choose_kernels(self, kernels, keys, values, self.most)
        self.gate = tag(nn.Linear(shape.dim, self.heads * values, bias), "in")
        self.norm = RMSNorm(values, eps)
        self.out = tag(nn.Linear(self.heads * values, shape.dim, bias), "out")
        self.sizes = [self.heads * keys, self.heads * keys, self.heads * values]
        self.query, self.key, self.value = (tag(nn.Linear(shape.dim, n, bias), "in") for n in self.sizes)

    def finish(self, x: Tensor, found: Tensor) -> Tensor:  # (B, T, C), (B, H, T, V) -> (B, T, C)
        return self.out(F.silu(self.gate(x)) * merge_heads(self.norm(found)))

    def stated_flops(self, batch: int, length: int) -> int:
        """FLOPs of one decay per head and position."""
        return decaying_flops(batch, length, self.heads, self.sizes[0] // self.heads)


class ShortConvolution(nn.Module):
    """y_t = silu(Σ_j w_j ⊙ x_{t−j} + b), j < `size`, per feature: (B, T, C) -> (B, T, C).  Initially y_t = silu(x_t)
    for every seed; the authors' code draws the weights.  Without `bias`, b is 0."""

    def __init__(self, features: int, size: int, bias: bool = False):
        super().__init__()
        self.size = at_least("attention.convolution", size, 1)
        weight = torch.zeros(features, size)
        weight[:, 0] = 1
        self.weight = nn.Parameter(weight)
        self.weight.role = "constant"
        self.bias = nn.Parameter(torch.zeros(features)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        wide, length = F.pad(x, (0, 0, self.size - 1, 0)), x.shape[-2]
        terms = (self.weight[:, j] * wide[..., self.size - 1 - j :, :][..., :length, :] for j in range(self.size))
        return F.silu(sum(terms, torch.zeros_like(x) if self.bias is None else self.bias.to(x.dtype)))

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
    found = share * features
    if found < 1 or found != int(found):
        raise ValueError(
            f"attention.{name}={share} of a head's {features} features would be {found:g}; "
            "write a share that gives a whole number ≥ 1"
        )
    return int(found)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H · D) -> (B, H, T, D)."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (B, T, H · D)."""
    return x.transpose(-3, -2).flatten(-2)


def real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Set padded positions of (B, T, C) to zero, given a mask (B, T)."""
    return x if mask is None else x * mask[..., None].to(x.dtype)
