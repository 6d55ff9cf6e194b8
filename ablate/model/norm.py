"""Normalisation.  Every norm maps (B, T, C) to (B, T, C); `mask` (B, T) is 1 at real positions, 0 at padding.

Here: those that treat each token alone.  Those that share statistics between tokens are in `running_norms.py`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import above, at_least, within
from ablate.model.running_norms import BatchNorm, InstanceNorm, PowerNorm, RunningNorm, running_norms, widened

__all__ = ["BatchNorm", "InstanceNorm", "PowerNorm", "RunningNorm", "running_norms"]


class LayerNorm(nn.Module):
    """y = (x − mean(x)) / √(var(x) + ε) · g + b, over the features of one token (Ba 2016, arXiv 1607.06450).  With
    `gain` false, g is 1; with `bias` false, b is 0 (OLMo has neither, 2402.00838; MPT and Cohere have no bias)."""

    def __init__(self, dim: int, eps: float, gain: bool | None = None, bias: bool | None = None):
        super().__init__()
        self.eps = at_least("norm.eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim)) if gain is not False else None
        self.bias = nn.Parameter(torch.zeros(dim)) if bias is not False else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)

    def affine(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        """x · g + b, without g or b if the norm has none."""
        x = x if self.weight is None else x * self.weight
        return x if self.bias is None else x + self.bias


class StdLayerNorm(LayerNorm):
    """y = (x − mean(x)) / (std(x) + ε) · g + b, std unbiased, ε outside the root (Rush 2018, Annotated Transformer)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        wide = widened(x)
        std, mean = torch.std_mean(wide, -1, keepdim=True)
        return self.affine((wide - mean) / (std + self.eps)).to(x.dtype)


class GroupNorm(LayerNorm):
    """LayerNorm over each of `groups` equal groups of a token's features, with one g and b per feature.  Wu & He 2018,
    arXiv 1803.08494, without their mean over positions, which a causal decoder must not use."""

    def __init__(self, dim: int, eps: float, groups: int, gain: bool | None = None, bias: bool | None = None):
        super().__init__(dim, eps, gain, bias)
        if groups < 1 or dim % groups:
            raise ValueError(f"norm.groups={groups} must divide model.dim={dim}")
        self.groups = groups

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        grouped = x.unflatten(-1, (self.groups, -1))  # (B, T, G, C / G)
        y = F.layer_norm(grouped, grouped.shape[-1:], eps=self.eps).flatten(-2)
        return self.affine(y).to(y.dtype)


class RMSNorm(nn.Module):
    """y = x / √(mean(x²) + ε) · g, over the features of one token (Zhang & Sennrich 2019, arXiv 1910.07467).  With
    `gain` false g is 1."""

    def __init__(self, dim: int, eps: float, gain: bool | None = None):
        super().__init__()
        self.eps = at_least("norm.eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim)) if gain is not False else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        # rms_norm squares in the input's precision, so half precision is widened; its fused kernel needs equal dtypes.
        if self.weight is None:
            return F.rms_norm(widened(x), x.shape[-1:], eps=self.eps).to(x.dtype)
        return F.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps)


class PartialRMSNorm(RMSNorm):
    """y = x / √(mean(x₁², …, xₖ²) + ε) · g with k = ⌈share · C⌉ (Zhang & Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, dim: int, eps: float, share: float, gain: bool | None = None):
        super().__init__(dim, eps, gain)
        self.first = math.ceil(within("norm.share", share, 0, 1, "(]") * dim - 1e-9)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        wide = widened(x)
        square = wide[..., : self.first].square().mean(-1, keepdim=True)  # (B, T, 1)
        y = wide * torch.rsqrt(square + self.eps)
        return (y if self.weight is None else y * self.weight).to(x.dtype)


class ScaleNorm(nn.Module):
    """y = g · x / max(‖x‖, ε) with one learned number g, initially √C (Nguyen & Salazar 2019, arXiv 1910.05895)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = at_least("norm.eps", eps, 0)
        self.weight = nn.Parameter(torch.full((1,), dim**0.5))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        wide = widened(x)
        return (self.weight * wide / wide.norm(dim=-1, keepdim=True).clamp(min=self.eps)).to(x.dtype)


class DynamicTanh(nn.Module):
    """y = tanh(α · x) · g + b with one learned number α: no statistics (Zhu 2025, arXiv 2503.10622)."""

    def __init__(self, dim: int, alpha: float):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((1,), float(above("norm.alpha", alpha, 0))))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return (torch.tanh(self.alpha * x) * self.weight + self.bias).to(x.dtype)


class NoNorm(nn.Module):
    """y = x."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return x
