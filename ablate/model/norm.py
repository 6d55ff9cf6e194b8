"""Normalisation.  Every norm maps (B, T, C) to (B, T, C); `mask` (B, T) is 1 at real positions, 0 at padding.

First those that treat each token alone, then those that share statistics between tokens: batch statistics in training,
running ones at evaluation.
"""

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import BadValue, above, at_least, within


class LayerNorm(nn.Module):
    """y = (x − mean(x)) / √(var(x) + ε) · g + b, over the features of one token (Ba 2016, arXiv 1607.06450).  With
    `gain` false, g is 1; with `bias` false, b is 0 (OLMo has neither, 2402.00838; MPT and Cohere have no bias)."""

    def __init__(self, dim: int, eps: float, gain: bool | None = None, bias: bool | None = None):
        super().__init__()
        self.eps = at_least("eps", eps, 0)
        self.weight = nn.Parameter(torch.ones(dim)) if gain is not False else None
        self.bias = nn.Parameter(torch.zeros(dim)) if bias is not False else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)

    def affine(self, x: Tensor) -> Tensor:  # (B, T, C) -> (B, T, C)
        """x · g + b, without g or b if the norm has none."""
        if self.weight is not None:
            x = x * self.weight
        if self.bias is not None:
            x = x + self.bias
        return x


class StdLayerNorm(LayerNorm):
    """y = (x − mean(x)) / (std(x) + ε) · g + b, std unbiased, ε outside the root (Rush 2018, Annotated Transformer)."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        x_wide = widened(x)
        std, mean = torch.std_mean(x_wide, -1, keepdim=True)
        normalised = (x_wide - mean) / (std + self.eps)
        return self.affine(normalised).to(x.dtype)


class GroupNorm(LayerNorm):
    """LayerNorm over each of `groups` equal groups of a token's features, with one g and b per feature.  Wu & He 2018,
    arXiv 1803.08494, without their mean over positions, which a causal decoder must not use."""

    def __init__(self, dim: int, eps: float, groups: int, gain: bool | None = None, bias: bool | None = None):
        super().__init__(dim, eps, gain, bias)
        if groups < 1 or dim % groups:
            raise BadValue("groups", f"must divide the width {dim}, not {groups}")
        self.groups = groups

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        grouped = x.unflatten(-1, (self.groups, -1))  # (B, T, G, C / G)
        normalised = F.layer_norm(grouped, grouped.shape[-1:], eps=self.eps).flatten(-2)
        return self.affine(normalised).to(normalised.dtype)


class RMSNorm(nn.Module):
    """y = x / √(mean(x²) + ε) · g, over the features of one token (Zhang & Sennrich 2019, arXiv 1910.07467).  With
    `gain` false g is 1."""

    def __init__(self, dim: int, eps: float, gain: bool | None = None):
        super().__init__()
        self.eps = at_least("eps", eps, 0)
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
        within("share", share, 0, 1, "(]")
        self.features = math.ceil(share * dim - 1e-9)  # those that the mean square is of

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        x_wide = widened(x)
        mean_square = x_wide[..., : self.features].square().mean(-1, keepdim=True)  # (B, T, 1)
        normalised = x_wide * torch.rsqrt(mean_square + self.eps)
        if self.weight is not None:
            normalised = normalised * self.weight
        return normalised.to(x.dtype)


class ScaleNorm(nn.Module):
    """y = g · x / max(‖x‖, ε) with one learned number g, initially √C (Nguyen & Salazar 2019, arXiv 1910.05895)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = at_least("eps", eps, 0)
        self.weight = nn.Parameter(torch.full((1,), dim**0.5))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        x_wide = widened(x)
        length = x_wide.norm(dim=-1, keepdim=True).clamp(min=self.eps)
        return (self.weight * x_wide / length).to(x.dtype)


class DynamicTanh(nn.Module):
    """y = tanh(α · x) · g + b with one learned number α: no statistics (Zhu 2025, arXiv 2503.10622)."""

    def __init__(self, dim: int, alpha: float):
        super().__init__()
        above("alpha", alpha, 0)
        self.alpha = nn.Parameter(torch.full((1,), float(alpha)))
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return (torch.tanh(self.alpha * x) * self.weight + self.bias).to(x.dtype)


class NoNorm(nn.Module):
    """y = x."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        return x


class RunningNorm(nn.Module):
    """y = x̂ · g + b, with x̂ from statistics of each feature over real positions, in float32 or wider.

    In a causal decoder a position's training statistics include later positions; evaluation uses the running ones,
    which do not.  To re-evaluate a trained model, `reset` with `momentum` None makes the running statistics plain
    averages over the updates since then, and `frozen` lets training mode use the statistics of the batch without
    updating the running ones.
    """

    note: str
    keeps_statistics = True  # marks the class for `running_norms`
    updates: Tensor

    def __init__(self, dim: int, eps: float, momentum: float):
        super().__init__()
        self.eps = at_least("eps", eps, 0)
        self.momentum: float | None = within("momentum", momentum, 0, 1)
        self.frozen = False
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        normalised = self.normalise(widened(x), real_positions(x, mask))
        return (normalised * self.weight + self.bias).to(x.dtype)

    def normalise(self, x: Tensor, real: Tensor) -> Tensor:  # (B, T, C), (B, T, 1) -> (B, T, C)
        """x̂; updates the running statistics in training."""
        raise NotImplementedError

    def reset(self) -> None:
        """Reset the running statistics to their initial values."""
        self.updates.zero_()

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> ()
        """Root mean square over features of (batch statistic − running statistic) / running statistic.  Follows the
        distance of Shen 2020 (arXiv 2003.07845, section 3)."""
        raise NotImplementedError

    @torch.no_grad()
    def update(self, has_statistics: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
        """Move each running statistic (C,) towards the batch's, if the batch has any: `has_statistics` ()."""
        if self.frozen:
            return
        self.updates.add_(has_statistics)
        counts = has_statistics.to(pairs[0][1].dtype)  # 0 or 1
        rate = counts / self.updates.clamp(min=1) if self.momentum is None else counts * self.momentum
        for running, batch in pairs:
            running.mul_(1 - rate).add_(rate * batch)


class Moments(RunningNorm):
    """x̂ = (x − μ) / √(σ² + ε), with running μ and σ² pooled over all real positions, σ² unbiased."""

    over: tuple[int, ...]  # the dimensions of (B, T, C) that share μ and σ²
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int, eps: float, momentum: float):
        super().__init__(dim, eps, momentum)
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def normalise(self, x: Tensor, real: Tensor) -> Tensor:  # (B, T, C), (B, T, 1) -> (B, T, C)
        """x̂ from the batch's μ and σ² in training, from the running ones at evaluation."""
        if self.training:
            count, mean, var = self.statistics(x, real)
            degrees = (count - 1).clamp(min=0).sum()
            batch_var = (count * var).sum((0, 1)) / degrees.clamp(min=1)
            batch_mean = self.pooled(count, mean)
            self.update(degrees > 0, (self.running_mean, batch_mean), (self.running_var, batch_var))
        else:
            mean = self.running_mean
            var = self.running_var
        return (x - mean) * torch.rsqrt(var + self.eps)

    def statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Number of real positions, mean and biased variance of each group that shares statistics."""
        count = real.sum(self.over, keepdim=True)
        mean = (x * real).sum(self.over, keepdim=True) / count.clamp(min=1)
        var = ((x - mean).square() * real).sum(self.over, keepdim=True) / count.clamp(min=1)
        return count, mean, var

    def pooled(self, count: Tensor, mean: Tensor) -> Tensor:  # -> (C,)
        """Mean over all real positions."""
        return (count * mean).sum((0, 1)) / count.sum().clamp(min=1)

    def reset(self) -> None:
        super().reset()
        self.running_mean.zero_()
        self.running_var.fill_(1)

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> ()
        """‖(μ of the batch − running μ) / running σ‖ / √C."""
        count, mean, _ = self.statistics(widened(x), real_positions(x, mask))
        difference = self.pooled(count, mean) - self.running_mean
        return (difference.square() / (self.running_var + self.eps)).mean().sqrt()


class BatchNorm(Moments):
    """y = (x − μ) / √(σ² + ε) · g + b, per feature over all real (batch, position) pairs; running μ, σ² at evaluation.
    Ioffe & Szegedy 2015, arXiv 1502.03167; in Transformers: Shen 2020, arXiv 2003.07845."""

    note = "training statistics are of the whole batch, in a decoder of the future, too; evaluated with running ones"
    over = (0, 1)


class InstanceNorm(Moments):
    """y = (x − μ) / √(σ² + ε) · g + b, per feature and sequence; running μ, σ² at evaluation.

    Ulyanov 2016, arXiv 1607.08022.  The paper normalises by the sample at evaluation, too, by which a decoder would see
    the future of the sequence.
    """

    note = "training statistics are of the whole sequence, in a decoder of the future, too; evaluated with running ones"
    centres_positions = True  # the mean over positions is constant afterwards
    over = (1,)


class PowerNorm(RunningNorm):
    """y = x / √(ψ² + ε) · g + b with the running quadratic mean ψ² before this batch (Shen 2020, arXiv 2003.07845).

    The backward pass is the paper's approximation, not the derivative: see `QuadraticMean`.  The first `warmup` updates
    use the ψ² of the batch and its derivative (the paper's PN-V) while ψ² and ν settle; only they see the future of the
    batch.  The authors' code scales groups of each token's features first; the paper's algorithm does not, and neither
    does this.  Each forward pass may have one backward pass, before the next forward pass.
    """

    note = "training statistics are of the whole batch until its warm-up is over, with its future; approximate gradient"
    late = ("warmup",)  # settings that may have no effect in the first steps
    running_square: Tensor
    nu: Tensor

    def __init__(self, dim: int, eps: float, momentum: float, warmup: int):
        super().__init__(dim, eps, momentum)
        self.warmup = at_least("warmup", warmup, 0)
        self.register_buffer("running_square", torch.ones(dim))
        self.register_buffer("nu", torch.zeros(dim))

    def normalise(self, x: Tensor, real: Tensor) -> Tensor:  # (B, T, C), (B, T, 1) -> (B, T, C)
        """x / √(ψ² + ε)."""
        if not self.training:
            return x * torch.rsqrt(self.running_square + self.eps)
        weight, square = self.statistics(x.detach(), real)
        if self.frozen or self.momentum is None:  # only the statistics of the batch
            rate = 0.0
            by_batch = self.updates >= 0
        else:
            rate = self.momentum
            by_batch = self.updates < self.warmup
        scale = torch.rsqrt(torch.where(by_batch, square, self.running_square) + self.eps)
        self.update(real.sum() > 0, (self.running_square, square))
        return QuadraticMean.apply(x, scale, weight, by_batch, self.nu, rate)

    def statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Weight of each position in a mean over the real ones (B, T, 1), and ψ² of the batch (C,)."""
        weight = real / real.sum().clamp(min=1)
        return weight, (x.square() * weight).sum((0, 1))

    def reset(self) -> None:
        super().reset()
        self.running_square.fill_(1)
        self.nu.zero_()

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> ()
        """‖(ψ² of the batch − running ψ²) / running ψ²‖ / √C."""
        _, square = self.statistics(widened(x), real_positions(x, mask))
        difference = (square - self.running_square) / (self.running_square + self.eps)
        return difference.square().mean().sqrt()


class QuadraticMean(torch.autograd.Function):
    """x̂ = x · s; backward ∂L/∂x = (∂L/∂x̂ − ν ⊙ x̂) · s and ν ← ν · (1 − a · Γ) + a · Λ (Shen 2020, algorithm 2).

    Γ = mean(x̂²) and Λ = mean(∂L/∂x̂ ⊙ x̂) over the real positions, a = 1 − α.  Where the statistics are `by_batch`, Λ
    replaces ν, which gives the exact derivative.  `weight` (B, T, 1) is that of each position in a mean; padded ones,
    with weight 0, are not corrected by ν.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, weight: Tensor, by_batch: Tensor, nu: Tensor, rate: float
    ) -> Tensor:
        """x̂."""
        y = x * scale
        ctx.rate = rate
        ctx.save_for_backward(y, scale, weight, by_batch, nu)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """∂L/∂x; updates ν, which only the backward pass can compute."""
        y, scale, weight, by_batch, nu = ctx.saved_tensors
        gamma = (y.square() * weight).sum((0, 1))
        lamda = (gradient * y * weight).sum((0, 1))
        slope = torch.where(by_batch, lamda, nu)
        x_gradient = (gradient - slope * y * (weight > 0)) * scale
        if ctx.rate:
            nu.add_(ctx.rate * (lamda - nu * gamma))
        return x_gradient, None, None, None, None, None


def real_positions(x: Tensor, mask: Tensor | None) -> Tensor:  # (B, T, C), (B, T) -> (B, T, 1)
    """1 at real positions, 0 at padding, in float32 or wider."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if mask is None:
        return torch.ones_like(x[..., :1], dtype=dtype)
    return mask[..., None].to(dtype)


def widened(x: Tensor) -> Tensor:
    """x in float32 or wider: squares of half-precision numbers overflow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """Every norm of a model that keeps running statistics."""
    # By attribute, not class: every run calls this, and a change of the class would then change every run's key.
    return [cast("RunningNorm", norm) for norm in model.modules() if getattr(norm, "keeps_statistics", False)]
