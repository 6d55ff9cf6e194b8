"""Norms that share statistics between tokens: batch statistics in training, running ones at evaluation."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from ablate.config.ranges import at_least, within


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
        self.eps, self.frozen = at_least("norm.eps", eps, 0), False
        self.momentum: float | None = within("norm.momentum", momentum, 0, 1)
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> (B, T, C)
        y = self.normalise(*weighted(x, mask)) * self.weight + self.bias
        return y.to(x.dtype)

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
    def move(self, known: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
        """Update each running statistic (C,) from the batch's, unless `known` () says that the batch has none."""
        if self.frozen:
            return
        self.updates.add_(known)
        known = known.to(pairs[0][1].dtype)
        rate = known / self.updates.clamp(min=1) if self.momentum is None else known * self.momentum
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
        mean, var = self.running_mean, self.running_var
        if self.training:
            count, mean, var = self.statistics(x, real)
            degrees = (count - 1).clamp(min=0).sum()
            pooled = (count * var).sum((0, 1)) / degrees.clamp(min=1)
            self.move(degrees > 0, (self.running_mean, self.pooled(count, mean)), (self.running_var, pooled))
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
        count, mean, _ = self.statistics(*weighted(x, mask))
        distance = self.pooled(count, mean) - self.running_mean
        return (distance.square() / (self.running_var + self.eps)).mean().sqrt()


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
        self.warmup = at_least("norm.warmup", warmup, 0)
        self.register_buffer("running_square", torch.ones(dim))
        self.register_buffer("nu", torch.zeros(dim))

    def normalise(self, x: Tensor, real: Tensor) -> Tensor:  # (B, T, C), (B, T, 1) -> (B, T, C)
        """x / √(ψ² + ε)."""
        if not self.training:
            return x * torch.rsqrt(self.running_square + self.eps)
        settled = not self.frozen and self.momentum is not None
        share, square = self.statistics(x.detach(), real)
        own = self.updates < self.warmup if settled else self.updates >= 0
        scale = torch.rsqrt(torch.where(own, square, self.running_square) + self.eps)
        self.move(real.sum() > 0, (self.running_square, square))
        return QuadraticMean.apply(x, scale, share, own, self.nu, self.momentum if settled else 0.0)

    def statistics(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Weight of each position in a mean over the real ones (B, T, 1), and ψ² of the batch (C,)."""
        share = real / real.sum().clamp(min=1)
        return share, (x.square() * share).sum((0, 1))

    def reset(self) -> None:
        super().reset()
        self.running_square.fill_(1)
        self.nu.zero_()

    def drift(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # (B, T, C) -> ()
        """‖(ψ² of the batch − running ψ²) / running ψ²‖ / √C."""
        _, square = self.statistics(*weighted(x, mask))
        return ((square - self.running_square) / (self.running_square + self.eps)).square().mean().sqrt()


class QuadraticMean(torch.autograd.Function):
    """x̂ = x · s; backward ∂L/∂x = (∂L/∂x̂ − ν ⊙ x̂) · s and ν ← ν · (1 − a · Γ) + a · Λ (Shen 2020, algorithm 2).

    Γ = mean(x̂²) and Λ = mean(∂L/∂x̂ ⊙ x̂) over the real positions, a = 1 − α.  With `own` statistics Λ replaces ν, which
    gives the exact derivative.  `share` (B, T, 1) weights the positions; padded ones are not corrected by ν.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, share: Tensor, own: Tensor, nu: Tensor, rate: float) -> Tensor:
        """x̂."""
        y, ctx.rate = x * scale, rate
        ctx.save_for_backward(y, scale, share, own, nu)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """∂L/∂x; updates ν, which only the backward pass can compute."""
        y, scale, share, own, nu = ctx.saved_tensors
        gamma, lamda = (y.square() * share).sum((0, 1)), (gradient * y * share).sum((0, 1))
        slope = torch.where(own, lamda, nu)
        result = (gradient - slope * y * (share > 0)) * scale
        if ctx.rate:
            nu.add_(ctx.rate * (lamda - nu * gamma))
        return result, None, None, None, None, None


def weighted(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """x in float32 or wider, and 1 at its real positions, 0 at padding (B, T, 1)."""
    x = widened(x)
    return x, torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)


def widened(x: Tensor) -> Tensor:
    """x in float32 or wider: squares of half-precision numbers overflow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def running_norms(model: nn.Module) -> list[RunningNorm]:
    """Every norm of a model that keeps running statistics."""
    # By attribute, not class: every run calls this, and a change of the class would then change every run's key.
    return [cast("RunningNorm", norm) for norm in model.modules() if getattr(norm, "keeps_statistics", False)]
