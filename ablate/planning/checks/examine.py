"""What a tiny copy of a cell shows before training: leakage, parts without any effect, a loss far from guessing."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from ablate.model.dropout import rekey
from ablate.planning.checks.idle_parts import idle_parts
from ablate.planning.checks.leakage import ALONE, CHECKS, TOLD, Inputs, guilty, run, settled
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


def many_steps(spec: Spec) -> list[list[float]] | None:
    """The signature of so many training steps that most that a step does now and then, shows.

    Raises whatever the components raise.
    """
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


def far_off(loss: float, outputs: int) -> list[str]:
    """What to say of a loss at initialisation that is far from that of guessing."""
    if abs(loss - math.log(outputs)) <= FAR:
        return []
    how = "its logits start out large" if loss > 0 else "its outputs are no logits"
    said = f"on a small copy the loss at initialisation is {loss:.1f} nats, guessing has {math.log(outputs):.1f}"
    return [f"{said}: {how}"]
