"""What tiny copies show before training: looks ahead, mixed rows, padding that is read, parts without any effect."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.groups import defaults, groups
from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.model.norm import running_norms
from ablate.planning.checks.small_models import Spec, build, others, perturb, some_inputs, whole_numbers

FAR = 2.0  # nats from ln(outputs); tied embeddings under a last norm cost up to 1.7, logits of size 8 cost 60
RATE = 1e-2  # of the two steps of training, for gradients of RMS 1
CAUSAL = ("lm", "seq2seq")
PROJECTIONS = 3  # projections of each output: one alone a difference could be at right angles to

Inputs = dict[str, Tensor]
Probe = Callable[[nn.Module, Inputs, Spec], bool]


class Strange(Exception):
    """A copy whose numbers say nothing."""


def unsteady(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change though inputs do not: then other probes say nothing."""
    return differ(run(model, inputs), run(model, inputs))


def look_ahead(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of a causal model change with later tokens; each row of the batch has a `now` of its own."""
    if spec.task["kind"] not in CAUSAL:
        return False
    tokens, other = inputs["tokens"], others(inputs["tokens"], spec.task["vocab"])
    before, (rows, length) = run(model, inputs), tokens.shape[:2]
    todo = nows(spec, length)
    while todo:
        now, todo = torch.tensor((todo[:rows] * rows)[:rows]), todo[rows:]
        seen = torch.arange(length) <= now[:, None]
        kept = seen.view(*seen.shape, *[1] * (tokens.ndim - 2))
        after = run(model, inputs | {"tokens": torch.where(kept, tokens, other)})
        if differ(before[seen], after[seen]):
            return True
    return False


def train_ahead(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether only in training mode outputs change with later tokens.

    Norms that keep running statistics say so themselves; of parts that draw, or mix rows, nothing can be said.
    """
    if running_norms(model):
        return False
    model = copy.deepcopy(model).train()
    return look_ahead(model, inputs, spec) and not unsteady(model, inputs, spec) and not mixed_rows(model, inputs, spec)


def nows(spec: Spec, length: int) -> list[int]:
    """Positions to look ahead from: odd and even ones, the ends of chunks of 2ⁿ and of the whole numbers configured.

    A look at the next position alone, at some positions, is seen from those alone.
    """
    chunks = {2**n for n in range(length.bit_length())} | whole_numbers(spec.config)
    wanted = {chunk - 1 for chunk in chunks} | {2, length // 2, length - 3, length - 2}
    return sorted(wanted & {*range(length - 1)})


def mixed_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of one example change with the others of its batch."""
    other = {name: changed(x, others(x, spec.task["vocab"]), slice(1, None)) for name, x in plain(inputs).items()}
    return differ(run(model, inputs)[0], run(model, inputs | other)[0])


def read_padding(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs at real positions change with what stands at padded ones, at the start and at the end."""
    takes = inspect.signature(model.forward).parameters
    masks: Inputs = {}
    for name, x in plain(inputs).items():
        key = "source_mask" if name == "source" else "mask"
        if key in takes and x.shape[1] > 3:
            part, masks[key] = x.shape[1] // 3, torch.ones(x.shape[:2])
            masks[key][0, 1 : 1 + part] = 0  # a hole: what a causal model's later positions could see
            masks[key][1, -part:] = 0
    if not masks:
        return False
    padded = {}
    for name, x in plain(inputs).items():
        real = masks.get("source_mask" if name == "source" else "mask", torch.ones(x.shape[:2])).bool()
        padded[name] = torch.where(real.view(*real.shape, *[1] * (x.ndim - 2)), x, others(x, spec.task["vocab"]))
    before, after = run(model, inputs | masks), run(model, inputs | padded | masks)
    if before.ndim > 2 and "mask" in masks:
        real = masks["mask"].bool()
        before, after = before[real], after[real]
    return differ(before, after)


def plain(inputs: Inputs) -> Inputs:
    """Inputs without masks."""
    return {name: x for name, x in inputs.items() if not name.endswith("mask")}


def changed(x: Tensor, other: Tensor, rows: slice) -> Tensor:
    """A batch with some of its rows replaced."""
    x = x.clone()
    x[rows] = other[rows]
    return x


@torch.no_grad()
def run(model: nn.Module, inputs: Inputs) -> Tensor:
    """Outputs in the model's present mode, with the same draws each time.  Raises Strange for what is not finite."""
    torch.default_generator.manual_seed(0)
    rekey(model, 0, 0)
    found: Tensor = model(**inputs)
    if not found.isfinite().all():
        raise Strange("its outputs are not finite")
    return found


def differ(first: Tensor, second: Tensor) -> bool:
    """Whether outputs differ by more than rounding; parts of a float64 model may compute in float32 all the same."""
    rounding = 1e-5 if first.dtype == torch.float64 else 1e-4
    return bool((first - second).abs().max() > rounding * max(1.0, float(first.abs().max())))


ALONE = ("unsteady", "rows")  # probes that must pass for those after them to say anything
TOLD = ("unsteady", "training")  # probes after which a cell may train all the same
# What is asked of a copy, and what to say of the part that fails.
PROBES: dict[str, tuple[Probe, str]] = {
    "unsteady": (unsteady, "gives other outputs for the same inputs, at evaluation; what it sees cannot be tried out"),
    "rows": (mixed_rows, "mixes rows: outputs of one example change with the others of its batch, at evaluation"),
    "ahead": (look_ahead, "looks ahead: outputs of a causal model change with later tokens; it must not see them"),
    "training": (train_ahead, "looks ahead in training: its training loss sees what is to be predicted"),
    "padding": (read_padding, "reads padding: outputs at real positions change with padded ones; use its mask"),
}


def examine(spec: Spec) -> dict[str, Any]:
    """All that a copy shows: problems as [key, message], notes, and a signature that equal networks have in common.

    Raises whatever the components raise, and Strange.
    """
    with torch.random.fork_rng(devices=[]):
        model, inputs = build(spec), some_inputs(spec, 0)
        moved = settled(copy.deepcopy(model), inputs)
        problems, notes = [], []
        for name, (probe, message) in PROBES.items():
            if not probe(moved, inputs, spec):
                continue
            pads = any(given.endswith("mask") for given in spec.task["inputs"])
            for key, part in guilty(spec, probe):
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


def settled(model: nn.Module, inputs: Inputs) -> nn.Module:
    """A copy away from special starts, its running statistics those of a batch."""
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        perturb(model).train()(**inputs)
    return model.eval()


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
    targets = {group: resolve(group, getattr(spec.config, group)["_target_"], spec.config.user) for group in COMPONENTS}
    found = []
    for group, target in targets.items():
        others = tuple(other for other in targets.values() if other is not target and inspect.isclass(other))
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


def guilty(spec: Spec, probe: Probe) -> list[tuple[str, str]]:
    """Components with which a probe fails beside the reference model's parts, as (group, words); or the whole model."""
    nodes = {
        group: yaml.safe_load(groups()[group][choice].read_text(encoding="utf-8"))
        for group, choice in defaults().items()
        if group in COMPONENTS
    }
    found = []
    for group, node in nodes.items():
        own = getattr(spec.config, group)
        if node["_target_"] == own["_target_"]:
            continue
        other = spec._replace(config=dataclasses.replace(spec.config, **nodes | {group: own}))
        try:
            inputs = some_inputs(other, 0)
            if probe(settled(build(other), inputs), inputs, other):
                found.append((group, called(spec, group)))
        except Exception:  # the part does not fit beside the reference's: nothing is learned
            continue
    return found or [("", "the model of " + ", ".join(called(spec, group) for group in (*nodes, "model")))]


def called(spec: Spec, group: str) -> str:
    """A component by its class."""
    target: str = spec.config.as_json()[group]["_target_"]
    return target.removeprefix("ablate.model.")
