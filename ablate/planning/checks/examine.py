"""What a tiny copy of a cell shows before training: leakage, parts without any effect, a loss far from guessing."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.planning.checks.leakage import ALONE, CHECKS, TOLD, Inputs, called, guilty, run, settled
from ablate.planning.checks.small_models import Spec, build, some_inputs

FAR = 2.0  # nats from ln(outputs); tied embeddings under a last norm cost up to 1.7, logits of size 8 cost 60
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
        loss, logits, idle = two_steps(model, inputs)
        problems += idle_parts(spec, model, idle)
        notes += far_off(loss, spec.task["outputs"])
        made = signature([seen, *logits, run(model.eval(), inputs)])
        return {"problems": problems, "notes": notes, "signature": made}


def two_steps(model: nn.Module, inputs: Inputs) -> tuple[float, list[Tensor], set[str]]:
    """Expected loss of random targets at first, logits of two steps of training, parameters without a gradient.

    The optimiser is a plain one: cells that are compared share theirs, so that it is not what they can differ in.
    """
    made, loss, idle = [], math.nan, set()
    model.train()
    for step in range(2):
        rekey(model, 0, step)
        torch.default_generator.manual_seed(step)  # for parts that draw from it
        logits = model(**inputs)
        if step == 0:
            with torch.no_grad():
                loss = float((logits.logsumexp(-1) - logits.mean(-1)).mean())
        targets = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(step))
        F.cross_entropy(logits.flatten(0, -2), targets.flatten()).backward()
        made.append(logits.detach())
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad and parameter.grad is None:
                    idle.add(name)
                elif parameter.grad is not None:
                    size = parameter.grad.square().mean().sqrt().clamp(min=1e-12)
                    parameter.sub_(RATE * parameter.grad / size)
                    parameter.grad = None
    return loss, made, idle


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


def idle_parts(spec: Spec, model: nn.Module, idle: set[str]) -> list[list[str]]:
    """Components of which nothing reaches the outputs, though they have parameters, or not all parameters do."""
    nodes = [(group, node) for group in COMPONENTS for node in variants_of(getattr(spec.config, group))]
    targets = [(group, resolve(group, node["_target_"], spec.config.user)) for group, node in nodes]
    found = []
    for group, target in targets:
        others = tuple(other for _, other in targets if other is not target and inspect.isclass(other))
        for place, module in model.named_modules():
            names = [f"{place}.{name}" for name, _ in module.named_parameters()] if type(module) is target else []
            if names and idle.issuperset(names):
                what = f"{called(spec, group)} is built but never used: nothing of {place} reaches the outputs"
            elif unread := idle.intersection(f"{place}.{name}" for name in own_parameters(module, others) if names):
                what = f"{called(spec, group)} never uses {', '.join(sorted(unread))}, which counts all the same"
                what += "; take it out"
            else:
                continue
            found.append([group, what])
            break
    return found


def own_parameters(module: nn.Module, others: tuple[type, ...], prefix: str = "") -> list[str]:
    """Names of a module's parameters but for those of other components in it."""
    names = [prefix + name for name, _ in module.named_parameters(recurse=False)]
    for name, child in module.named_children():
        if not isinstance(child, others):
            names += own_parameters(child, others, f"{prefix}{name}.")
    return names


def far_off(loss: float, outputs: int) -> list[str]:
    """What to say of a loss at initialisation that is far from that of guessing."""
    if abs(loss - math.log(outputs)) <= FAR:
        return []
    how = "its logits start out large" if loss > 0 else "its outputs are no logits"
    said = f"on a small copy the loss at initialisation is {loss:.1f} nats, guessing has {math.log(outputs):.1f}"
    return [f"{said}: {how}"]
