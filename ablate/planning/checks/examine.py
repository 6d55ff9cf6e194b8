"""What a tiny copy of a cell shows before training: leakage, parts without any effect, a loss far from guessing."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.build import build_objective
from ablate.model.dropout import rekey
from ablate.model.objective import Objective, terms_of
from ablate.planning.checks.idle_parts import idle_parts
from ablate.planning.checks.leakage import ALONE, CHECKS, TOLD, Inputs, guilty, run, settled
from ablate.planning.checks.small_models import Spec, build, perturb, some_inputs

FAR = 2.0  # nats from ln(outputs); tied embeddings under a last norm cost up to 1.7, logits of size 8 cost 60
DRAWS = 32  # of cells that look like one network
BATCHES = 6  # that a parameter without a gradient is looked for in
MODELS = 8  # drawn anew, in which it is looked for, too
RATE = 1e-2  # of the two steps of training, for gradients of RMS 1
PROJECTIONS = 3  # projections of each output: one alone a difference could be at right angles to


def examine(spec: Spec) -> dict[str, Any]:
    """All that a copy shows: problems as [key, message], notes, and a signature that equal networks have in common.

    Raises whatever the components raise, and Strange.
    """
    with torch.random.fork_rng(devices=[]):
        model, inputs = build(spec), some_inputs(spec)
        moved = settled(copy.deepcopy(model), inputs)
        problems, notes = [], []
        for name, (check, message) in CHECKS.items():
            if not check(moved, inputs, spec):
                continue
            pads = any(given.endswith("mask") for given in spec.task["inputs"])
            for key, part in guilty(spec, check):
                if name in TOLD:
                    notes.append(f"{part} {message}")
                elif name != "padding" or pads:
                    problems.append([key, f"{part} {message}"])
                else:
                    notes.append(f"{part} {message} (this task pads nothing)")
            if name in ALONE:
                break
        seen = run(moved, inputs)
        loss, logits, idle, dispatched = two_steps(spec, model, inputs)
        never, unrouted = idle_parts(spec, model, idle, dispatched)
        problems, notes = problems + never, notes + unrouted
        notes += far_off(loss, spec.task["outputs"])
        longer = [run(moved, some_inputs(spec.longer))] if spec.beyond else []
        made = signature([seen, *longer, *logits, run(model.eval(), inputs)])
        return {"problems": problems, "notes": notes, "signature": made}


def two_steps(spec: Spec, model: nn.Module, inputs: Inputs) -> tuple[float, list[Tensor], set[str], set[str]]:
    """Expected loss of random targets at first, logits of two steps of training, parameters that have no gradient, and
    those that have one now and then.

    The optimiser is a plain one: cells that are compared share theirs, so that it is not what they can differ in.
    Where parameters have no gradient, more batches are tried, and other draws of the model: what dispatches tokens
    sends some to few of its parts, and to others when they, or what decides, are others.
    """
    objective = build_objective(spec.config)
    model.train()
    made = [step_of(model, objective, inputs, step) for step in range(2)]
    seen, tried = [one.idle for one in made], copy.deepcopy(model)
    for batch in range(2, BATCHES) if set.intersection(*seen) else ():
        seen.append(step_of(tried, objective, some_inputs(spec, batch), batch).idle)
    for seed in range(1, MODELS + 1) if set.intersection(*seen) else ():
        seen.append(step_of(perturb(build(spec, seed)).train(), objective, some_inputs(spec, seed), seed).idle)
    idle = set.intersection(*seen)
    return made[0].loss, [one.logits for one in made], idle, set.union(*seen) - idle


class Step(NamedTuple):
    """One step of training: the expected loss of random targets before it, logits, parameters without a gradient."""

    loss: float
    logits: Tensor
    idle: set[str]


def step_of(model: nn.Module, objective: Objective, inputs: Inputs, step: int) -> Step:
    """Take one step on random targets."""
    rekey(model, 0, step)
    torch.default_generator.manual_seed(step)  # for parts that draw from it
    logits, idle = model(**inputs), set()
    with torch.no_grad():
        loss = float((logits.logsumexp(-1) - logits.mean(-1)).mean())
    targets = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(step))
    terms = terms_of(model, objective, logits, targets, targets.numel(), 1.0)
    sum(terms.values(), F.cross_entropy(logits.flatten(0, -2), targets.flatten())).backward()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and parameter.grad is None:
                idle.add(name)
            elif parameter.grad is not None:
                size = parameter.grad.square().mean().sqrt().clamp(min=1e-12)
                parameter.sub_(RATE * parameter.grad / size)
                parameter.grad = None
    return Step(loss, logits.detach(), idle)


def many_draws(spec: Spec) -> list[list[float]] | None:
    """The signature of forward passes in training, each with draws of its own: what drops a layer now and then, shows.

    Raises whatever the components raise.
    """
    found = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model, inputs = perturb(build(spec)).train(), some_inputs(spec)
        for step in range(DRAWS):
            rekey(model, 0, step)
            torch.default_generator.manual_seed(step)
            found.append(model(**inputs))
    return signature(found)


def signature(tensors: list[Tensor]) -> list[list[float]] | None:
    """Of each tensor x its size and projections: √(mean x²), and Σ x · w / √n for weights w ~ U(−½, ½) of its own.

    None where a number is not finite: there everything is equal.
    """
    found = []
    for tensor in tensors:
        x = tensor.double().flatten()
        if not x.isfinite().all():
            return None
        weights = (
            torch.rand(len(x), generator=torch.Generator().manual_seed(i)).double() - 0.5 for i in range(PROJECTIONS)
        )
        found.append([float(x.square().mean().sqrt()), *(float(x @ w) / len(x) ** 0.5 for w in weights)])
    return found


def far_off(loss: float, outputs: int) -> list[str]:
    """What to say of a loss at initialisation that is far from that of guessing."""
    if abs(loss - math.log(outputs)) <= FAR:
        return []
    how = "its logits start out large" if loss > 0 else "its outputs are no logits"
    said = f"on a small copy the loss at initialisation is {loss:.1f} nats, guessing has {math.log(outputs):.1f}"
    return [f"{said}: {how}"]
