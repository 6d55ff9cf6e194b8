"""Trains a tiny copy of a cell with the cell's own step, and counts the gradients that a step takes."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.errors import BadComponent, one_line
from ablate.config.schema import Config
from ablate.data.task import Batch
from ablate.model.build import build_objective
from ablate.model.cost import Budget
from ablate.model.dropout import rekey, step_seed
from ablate.model.objective import terms_of
from ablate.planning.checks.small_models import SHORTEST, Checked, Spec, build, small, some_inputs
from ablate.training.step import Step, build_step

RATE = 1e-2  # learning rate, for gradients of RMS 1
CLIP = 1e-3  # gradient clipping, small enough that a step that does not clip differs
UPDATES = 20  # in which gradients are counted
ROWS = 8  # of their batches, which a step may split


class Plain(torch.optim.Optimizer):
    """θ ← θ − lr · g / RMS(g) for each parameter; `seen` holds learning rate and gradient norm of every update."""

    def __init__(self, model: nn.Module):
        super().__init__(model.parameters(), {"lr": RATE, "lr_share": 1.0})
        self.seen: list[list[float]] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Move every parameter that has a gradient."""
        [group] = self.param_groups
        moved = [p for p in group["params"] if p.grad is not None]
        self.seen.append([group["lr"], float(nn.utils.get_total_norm([p.grad for p in moved]))])
        for p in moved:
            assert p.grad is not None
            p.sub_(group["lr"] * p.grad / p.grad.square().mean().sqrt().clamp(min=1e-12))


class Trial:
    """A copy with its step and a plain optimiser; an update sets these attributes.

    logits     of the first gradient
    loss       expected loss of random targets before the update
    idle       parameters that the first gradient left without one
    passes     gradients taken so far, in batches: that of half a batch counts half
    """

    def __init__(self, spec: Spec, model: nn.Module):
        self.model, self.objective, self.optimiser = model.train(), build_objective(spec.config), Plain(model)
        self.step = build_step(spec.config, model, self.optimiser, CLIP)
        self.passes, self.number, self.first = 0.0, 0, True
        self.logits, self.shape = torch.empty(0), torch.Size()

    def update(self, inputs: dict[str, Tensor], number: int) -> Trial:
        """One update on random targets."""
        self.number, self.first = number, True
        with torch.no_grad():
            shape = self.shape = self.shape or self.model.eval()(**inputs).shape
        targets = torch.randint(shape[-1], shape[:-1], generator=torch.Generator().manual_seed(number))
        self.model.train()
        self.step.generator.manual_seed(step_seed(0, number))
        self.step.update(Batch(inputs, targets), RATE, partial(self.gradients, targets.numel()))
        self.model.zero_grad(set_to_none=True)
        return self

    def gradients(self, whole_batch: int, batch: Batch) -> dict[str, Tensor]:
        """See Gradients."""
        self.model.zero_grad(set_to_none=True)
        rekey(self.model, 0, self.number)
        torch.default_generator.manual_seed(self.number)  # for components that use it
        logits, targets = self.model(**batch.inputs), batch.targets
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        terms = terms_of(self.model, self.objective, logits, targets, batch.inputs, targets.numel(), 1.0)
        whole = sum(terms.values(), loss)
        whole.backward()
        self.passes += targets.numel() / whole_batch
        if self.first:
            self.first, self.logits = False, logits.detach()
            self.loss = float((self.logits.logsumexp(-1) - self.logits.mean(-1)).mean())
            self.idle = {n for n, p in self.model.named_parameters() if p.requires_grad and p.grad is None}
        found = {"loss": loss} | (terms | {"objective": whole} if terms else {})
        return {name: value.detach() for name, value in found.items()}


def with_passes(budget: Budget, config: Config, task: Any) -> Budget:
    """The budget with the FLOPs of all gradients that a step takes: the mean number of those of a whole batch.  Raises
    BadComponent if the step cannot run."""
    step, why = resolve("step", config.step["_target_"], config.user), ""
    if step is Step:
        return budget
    for double in (True, False):
        spec = small(Checked(config, task, budget), set(), SHORTEST)._replace(rows=ROWS, double=double)
        try:
            with torch.random.fork_rng(devices=[]):
                trial = Trial(spec, build(spec))
                for number in range(UPDATES):
                    trial.update(some_inputs(spec, number), number)
        except Exception as error:  # a user's step can fail in any way
            why = why or one_line(error)
            continue
        passes = trial.passes / UPDATES
        note = f"{step.__name__}: takes {passes:.3g} gradients of a batch in a step; its FLOPs are those of all of them"
        notes = [*budget.notes, *[note] * (passes != 1)]
        return dataclasses.replace(budget, flops_per_token=passes * budget.flops_per_token, notes=notes)
    raise BadComponent("step", f"cannot be run on a small copy of the model ({why})")
