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


class RunningNorm(nn.Module):
    """A norm that keeps statistics of the batches that it was trained on, and uses them at evaluation.

    `momentum` None averages over all batches since `reset`; `frozen` uses batch statistics and keeps nothing of them.
    """

    momentum: float | None
    frozen = False

    def reset(self) -> None:
        """Forget all batches."""
        raise NotImplementedError

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """How far the statistics of a batch are from the running ones."""
        raise NotImplementedError


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """The norms of a model that keep running statistics."""
    return [module for module in model.modules() if isinstance(module, RunningNorm)]


class BatchNorm(RunningNorm):
    """y = (x − μ) / √(σ² + ε) · g + b, each feature over all real (batch, position) pairs; running μ, σ² at evaluation.

    In a causal decoder the training statistics of a position are taken over later positions, too: they see the future
    of the batch (Ioffe & Szegedy 2015, arXiv 1502.03167; in Transformers: Shen 2020, arXiv 2003.07845).
    """

    note = "training statistics see the future of the batch; evaluated with running statistics"

    def __init__(self, dim: int, eps: float, momentum: float):
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"norm.momentum={momentum} must lie in [0, 1]")
        self.eps, self.seen = at_least("norm.eps", eps, 0), 0
        self.momentum: float | None = momentum
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
        mean, var, count = self.moments(x, mask)
        if not self.frozen:
            self.seen += 1
            share = 1 / self.seen if self.momentum is None else self.momentum
            with torch.no_grad():
                self.running_mean.mul_(1 - share).add_(share * mean)
                self.running_var.mul_(1 - share).add_(share * var * count / (count - 1).clamp(min=1))
        return mean, var

    def moments(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance (C,) over the real positions, and how many there are."""
        real = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)  # (B, T, 1)
        count = real.sum().clamp(min=1)
        mean = (x * real).sum((0, 1)) / count
        return mean, ((x - mean).square() * real).sum((0, 1)) / count, count

    def reset(self) -> None:
        """See RunningNorm."""
        self.seen = 0
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Distance of the mean from the running one, in running standard deviations, root mean square over features."""
        mean = self.moments(x, mask)[0]
        return ((mean - self.running_mean).square() / (self.running_var + self.eps)).mean().sqrt()
