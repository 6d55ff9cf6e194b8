"""Normalisation.  Every norm maps (B, T, C) to (B, T, C); `mask` (B, T) is 1 at real positions, 0 at padding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.init import at_least


class LayerNorm(nn.Module):
    """y = (x − mean(x)) / √(var(x) + ε) · g + b, over the features of one token (Ba 2016, arXiv 1607.06450)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = at_least("norm.eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """y = x / √(mean(x²) + ε) · g, over the features of one token (Zhang & Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = at_least("norm.eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class BatchNorm(nn.Module):
    """y = (x − μ) / √(σ² + ε) · g + b, each feature over all real (batch, position) pairs; running μ, σ² at evaluation.

    In a causal decoder the training statistics of a position are taken over later positions, too: they see the future
    of the batch (Ioffe & Szegedy 2015, arXiv 1502.03167; in Transformers: Shen 2020, arXiv 2003.07845).
    """

    note = "training statistics see the future of the batch; evaluated with running statistics"

    def __init__(self, dim: int, eps: float, momentum: float):
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum={momentum} must lie in [0, 1]")
        self.eps, self.momentum = at_least("norm.eps", eps, 0), momentum
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        mean, var = self.batch_statistics(x, mask) if self.training else (self.running_mean, self.running_var)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias

    def batch_statistics(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and variance (C,) over the real positions; moves the running ones (unbiased) towards them."""
        real = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)  # (B, T, 1)
        count = real.sum().clamp(min=1)
        mean = (x * real).sum((0, 1)) / count
        var = ((x - mean).square() * real).sum((0, 1)) / count
        with torch.no_grad():
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean)
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * var * count / (count - 1).clamp(min=1))
        return mean, var
