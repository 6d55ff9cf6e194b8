"""One training step: updates the parameters from a batch and a learning rate."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.config.ranges import above
from ablate.config.schema import Config
from ablate.data.task import Batch
from ablate.training.optim import optimizer_step

Losses = dict[str, Tensor]
Gradients = Callable[[Batch], Losses]


class Step:
    """θ ← optimiser(θ, clip(∇L(θ))).  A subclass overrides `update`, and saves its own state, if it has any.
    `generator` is a CPU generator for a step's random numbers, seeded at each step from the run's seed."""

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, grad_clip: float):
        self.model = model
        self.optimiser = optimiser
        self.grad_clip = grad_clip
        self.generator = torch.Generator()
        self.parameters = list(model.parameters())

    def update(self, batch: Batch, lr: float, gradients: Gradients) -> tuple[Losses, Tensor]:
        """Train on a batch; returns the losses by name, and the norm of the gradient before clipping.

        `gradients(batch)` replaces the gradients of the parameters by those of a batch, or part of one, and returns its
        losses: the cross-entropy as `loss`, and L as `objective` if they differ.  All calls within a step draw the same
        dropout masks.
        """
        losses = gradients(batch)
        return losses, self.clip_and_step(lr)

    def clip_and_step(self, lr: float) -> Tensor:
        """Clip the gradients and take the optimiser's step; returns the norm before clipping."""
        for group in self.optimiser.param_groups:
            group["lr"] = lr * group["lr_share"]
        norm = nn.utils.clip_grad_norm_(self.parameters, self.grad_clip)
        optimizer_step(self.optimiser)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """State to save besides model and optimiser: tensors, numbers, text, and lists or dicts of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint."""


class SAM(Step):
    """θ ← optimiser(θ, clip(∇L(θ + ρ ∇L(θ) / ‖∇L(θ)‖))): sharpness-aware minimisation (Foret 2020, 2010.01412)."""

    def __init__(self, model: nn.Module, optimiser: torch.optim.Optimizer, grad_clip: float, rho: float):
        super().__init__(model, optimiser, grad_clip)
        self.rho = above("step.rho", rho, 0)

    def update(self, batch: Batch, lr: float, gradients: Gradients) -> tuple[Losses, Tensor]:
        """See Step; returns the losses at θ."""
        losses = gradients(batch)
        moved = [p for p in self.parameters if p.grad is not None]
        before = [p.detach().clone() for p in moved]
        grads = [p.grad for p in moved]
        scale = self.rho / (nn.utils.get_total_norm(grads) + 1e-12)
        with torch.no_grad():
            torch._foreach_add_(moved, torch._foreach_mul(grads, scale))
        gradients(batch)
        with torch.no_grad():
            torch._foreach_copy_(moved, before)
        return losses, self.clip_and_step(lr)


def build_step(config: Config, model: nn.Module, optimiser: torch.optim.Optimizer, grad_clip: float) -> Step:
    """The step of a resolved configuration.  Raises BadComponent and ValueError."""
    offered = {"model": model, "optimiser": optimiser, "grad_clip": grad_clip}
    return bind("step", config.step, offered, config.user)()
