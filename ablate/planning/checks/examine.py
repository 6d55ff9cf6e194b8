"""What a tiny copy of a cell shows before training: leakage, parts without any effect, a loss far from guessing."""

import copy
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.planning.checks.leakage import ALONE, CHECKS, NOTED, Inputs, called, guilty, run, settled
from ablate.planning.checks.small_models import Spec, build, perturb, some_inputs
from ablate.planning.checks.trial_step import UPDATES, Trial

FAR = 2.0  # nats from ln(outputs); tied embeddings under a last norm cost up to 1.7, logits of size 8 cost 60
DRAWS = 32  # of cells that look like one network
BATCHES = 6  # that a parameter without a gradient is looked for in
MODELS = 8  # drawn anew, in which it is looked for, too
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
                if name in NOTED:
                    notes.append(f"{part} {message}")
                elif name != "padding" or pads:
                    problems.append([key, f"{part} {message}"])
                else:
                    notes.append(f"{part} {message} (this task pads nothing)")
            if name in ALONE:
                break
        seen = run(moved, inputs)
        loss, logits, idle, dispatched = _two_steps(spec, model, inputs)
        never, unsent = _idle_parts(spec, model, idle, dispatched)
        problems, notes, guess = problems + never, notes + unsent, math.log(spec.task["outputs"])
        if abs(loss - guess) > FAR:
            how = "its logits start out large" if loss > 0 else "its outputs are no logits"
            size = f"{loss:.1f} nats, guessing has {guess:.1f}"
            notes.append(f"on a small copy the loss at initialisation is {size}: {how}")
        longer = [run(moved, some_inputs(spec.longer))] if spec.beyond else []
        made = signature([seen, *longer, *logits, run(model.eval(), inputs)])
        return {"problems": problems, "notes": notes, "signature": made}


def _two_steps(spec: Spec, model: nn.Module, inputs: Inputs) -> tuple[float, list[Tensor], set[str], set[str]]:
    """Expected loss of random targets at first; logits of two steps of training, rates and norms of gradients of these;
    parameters that have no gradient, and those that have one now and then.

    Where parameters have no gradient, more batches are tried, and other draws of the model: what dispatches tokens
    sends some to few of its parts, and to others when they, or what decides, are others.
    """
    trial = Trial(spec, model)
    made = [(trial.update(inputs, number).loss, trial.logits, trial.idle) for number in range(2)]
    seen = [idle for _, _, idle in made]
    tried = copy.deepcopy(model)
    for batch in range(2, BATCHES) if set.intersection(*seen) else ():
        seen.append(Trial(spec, tried).update(some_inputs(spec, batch), batch).idle)
    for seed in range(1, MODELS + 1) if set.intersection(*seen) else ():
        seen.append(Trial(spec, perturb(build(spec, seed))).update(some_inputs(spec, seed), seed).idle)
    idle = set.intersection(*seen)
    shown = [*(logits for _, logits, _ in made), torch.tensor(trial.optimiser.seen)]
    return made[0][0], shown, idle, set.union(*seen) - idle


def many_draws(spec: Spec) -> list[list[float]] | None:
    """The signature of forward passes in training, each with its own draws: what drops a layer now and then, shows."""
    found = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model, inputs = perturb(build(spec)).train(), some_inputs(spec)
        for step in range(DRAWS):
            rekey(model, 0, step)
            torch.default_generator.manual_seed(step)
            found.append(model(**inputs))
    return signature(found)


def many_steps(spec: Spec) -> list[list[float]] | None:
    """The signature of so many training steps that most that a step does now and then, shows."""
    with torch.random.fork_rng(devices=[]):
        trial, inputs = Trial(spec, build(spec)), some_inputs(spec)
        for number in range(UPDATES):
            trial.update(inputs, number)
        return signature([torch.tensor(trial.optimiser.seen), run(trial.model.eval(), inputs)])


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


def _idle_parts(
    spec: Spec, model: nn.Module, idle: set[str], dispatched: set[str]
) -> tuple[list[list[str]], list[str]]:
    """Components of which nothing reaches the outputs, or not all parameters do.

    `idle` are the parameters that never have a gradient, `dispatched` those that have one now and then.  A note is all
    where one of the latter has the same name but for a number in it: of an expert that no token of the small batches
    was sent to, others are without tokens at times.
    """
    nodes = [(group, node) for group in COMPONENTS for node in variants_of(getattr(spec.config, group))]
    targets = [(group, resolve(group, node["_target_"], spec.config.user)) for group, node in nodes]
    problems, notes = [], []
    for group, target in targets:
        others = tuple(other for _, other in targets if other is not target and inspect.isclass(other))
        places = {place: module for place, module in model.named_modules() if type(module) is target}
        found = [one for place, module in places.items() for one in idle_in(place, module, others, idle, dispatched)]
        name = called(spec, group)
        problems += [[group, f"{name} {what}"] for what, harmless in found if not harmless][:1]
        notes += [f"{name} {what}" for what, harmless in found if harmless][:1]
    return problems, notes


def idle_in(
    place: str, module: nn.Module, others: tuple[type, ...], idle: set[str], dispatched: set[str]
) -> Iterator[tuple[str, bool]]:
    """The idle parameters of a component at a place, in words, and whether they may be idle."""
    names = [name for name, _ in module.named_parameters()]
    silent = {name for name in names if f"{place}.{name}" in idle}
    if names and silent == {*names}:
        yield f"is built but never used: nothing of {place} reaches the outputs", False
        return
    own = silent.intersection(_own_parameters(module, others))
    spared = own & unrouted(silent, {name for name in names if f"{place}.{name}" in dispatched})
    if own - spared:
        never = ", ".join(sorted(f"{place}.{name}" for name in own - spared))
        yield f"never uses {never}, which counts all the same; take it out", False
    if spared:
        unsent = ", ".join(sorted(f"{place}.{name}" for name in spared))
        yield f"sent nothing to {unsent} in all batches of a small copy, though to others like it", True


def unrouted(silent: set[str], dispatched: set[str]) -> set[str]:
    """Of parameters without a gradient those of which another of the same name, but for a number in it, has one now and
    then.
    """
    alike = {re.sub(r"\b\d+\b", "#", name) for name in dispatched}
    return {name for name in silent if re.sub(r"\b\d+\b", "#", name) in alike}


def _own_parameters(module: nn.Module, others: tuple[type, ...], prefix: str = "") -> list[str]:
    """Names of a module's parameters but for those of other components in it."""
    names = [prefix + name for name, _ in module.named_parameters(recurse=False)]
    for name, child in module.named_children():
        if not isinstance(child, others):
            names += _own_parameters(child, others, f"{prefix}{name}.")
    return names
