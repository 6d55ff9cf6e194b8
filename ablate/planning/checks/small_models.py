"""Tiny copies of cells: models small enough to be tried out in planning, in which every setting still has an effect.

`Trial` trains one with the cell's own step, and counts the gradients that a step takes.
"""

from __future__ import annotations

import dataclasses
import hashlib
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.depth import fewest, first_layers, mapped, patterned, variants_of
from ablate.config.errors import BadComponent, one_line
from ablate.config.schema import BUILT, COMPONENTS, LAYERS, PLACED, Config
from ablate.data.task import Batch
from ablate.formatting import flat
from ablate.model.build import build_objective, initialised_model
from ablate.model.cost import Budget
from ablate.model.dropout import rekey, step_seed
from ablate.model.objective import terms_of
from ablate.runs.key import is_foreign
from ablate.runs.records import Matched, UserCode
from ablate.training.step import Step, build_step

HEAD = 16  # features of a head; fewer would leave rotary shares and bases nothing to turn
SHALLOW = 2  # sharing layers, and scaling by depth, need two
VOCAB = 512
CONTEXT = 1024
SHORTEST = 16  # positions
WIDTHS = ("ffn", "embedding")  # groups whose whole numbers are widths
WORK = 1.5e8  # parameters · positions of a batch, about what is tried out in half a second
WIDE = 2e7  # parameters up to which a cell is tried out in all its depth, to confirm


class Checked(NamedTuple):
    """A cell that passed its own checks: its configuration with every `auto` and the FFN's width resolved."""

    config: Config
    task: Any
    budget: Budget
    defaults: dict[str, Any] = {}  # noqa: RUF012 (of constructors, by dotted name; never written to)
    matched: Matched | None = None
    user_code: UserCode | None = None
    memory: dict[str, Any] | None = None  # of `count_memory`


class Spec(NamedTuple):
    """A copy to build: its configuration, its task's sizes, the rows and positions of its batches.  `beyond` is a
    length beyond the context at which it is tested, too; 0 for none."""

    config: Config
    task: dict[str, Any]
    rows: int
    length: int
    double: bool
    beyond: int = 0

    @property
    def longer(self) -> Spec:
        """The copy with batches of length `beyond`."""
        inputs = {name: [[self.beyond, *shape[1:]], numbers] for name, (shape, numbers) in self.task["inputs"].items()}
        return self._replace(task=self.task | {"inputs": inputs}, length=self.beyond)


def distinguishing(cells: list[Checked]) -> tuple[set[str], int]:
    """The dotted keys whose values differ between cells, and enough positions for every setting to have an effect: one
    more than any integer below the context."""
    found = [flat(cell.config.as_json()) for cell in cells]
    keys = {key for one in found for key in one}
    numbers = [number for cell in cells for number in whole_numbers(cell.config) if number < cell.task.context]
    differing = {key for key in keys if any(one.get(key) != found[0].get(key) or key not in one for one in found)}
    return differing, 1 + max(numbers, default=0)


def whole_numbers(config: Config) -> set[int]:
    """The integers of components that may be positions; those of FFN and embedding are widths."""
    values = [value for group in COMPONENTS if group not in WIDTHS for value in flat(getattr(config, group)).values()]
    return {value for value in values if isinstance(value, int) and not isinstance(value, bool)}


def facts_of(task: Any, largest: int = VOCAB) -> dict[str, Any]:
    """The facts on a task that a model is built from; vocabularies are limited to `largest`."""
    vocab = min(task.vocab, largest)
    outputs = vocab if task.outputs == task.vocab else min(task.outputs, largest)
    inputs = {name: [list(x.shape[1:]), x.is_floating_point()] for name, x in task.blank().items()}
    same = {name: getattr(task, name) for name in ("kind", "features", "context")}
    return same | {"vocab": vocab, "outputs": outputs, "inputs": inputs}


def small(cell: Checked, kept: set[str], positions: int) -> Spec:
    """The copy that is tried first: narrow heads and few layers, without changing the keys in `kept`."""
    config, heads, dim = cell.config, cell.config.model.heads, cell.config.model.dim
    narrow = dim if kept & {"model.dim", "model.heads"} or dim <= heads else heads * min(HEAD, dim // heads)
    rule = config.parametrization
    if base := rule.get("base_dim"):  # the ratio of the widths stays
        narrow = dim if rule.get("base_head_dim") or base * narrow % dim else narrow
        config = config.with_value("parametrization.base_dim", base * narrow // dim)
    config = config.with_value("model.dim", narrow)
    if config.model.head_dim is not None and "model.head_dim" not in kept:
        config = config.with_value("model.head_dim", min(HEAD, config.model.head_dim))
    deep = kept & {"model.layers", *(f"{group}.{LAYERS}" for group in PLACED)}
    if not deep and not any(patterned(config)):  # a pattern needs all its layers
        config = config.with_value("model.layers", min(SHALLOW, config.model.layers))

    def narrowed(ffn: dict[str, Any]) -> dict[str, Any]:
        width = ffn.get("hidden")
        return ffn | {"hidden": max(1, round(width * narrow / dim))} if isinstance(width, int) else ffn

    if not any(key.startswith("ffn.") and key.endswith(".hidden") for key in kept):
        config = config.with_value("ffn", mapped(config.ffn, narrowed))
    return fit(cell, config, positions)


def full(cell: Checked, positions: int, least: int = SHALLOW) -> Spec:
    """The copy with the cell's own sizes, and with all layers if the model is not too large, else at least `least`."""
    layers = cell.config.model.layers if cell.budget.core < WIDE else fewest(cell.config, least)
    return fit(cell, first_layers(cell.config, layers), positions)


def fit(cell: Checked, config: Config, positions: int) -> Spec:
    """A copy with batches as long as its size allows, of at least `positions` if the task has as many."""
    # A user's objective may hold a teacher, which has logits for the whole vocabulary.
    whole = cell.task.vocab + cell.task.outputs if is_foreign(config.objective) else VOCAB
    model, facts = config.model, facts_of(cell.task, whole)
    widths = [node.get("hidden") for node in variants_of(config.ffn)]
    width = max(hidden if isinstance(hidden, int) else 4 * model.dim for hidden in widths)
    parameters = model.layers * model.dim * (4 * model.dim + 3 * width) + facts["vocab"] * model.dim
    context = min(cell.task.context, CONTEXT)
    rows = 3 if context <= 128 else 2
    length = max(int(WORK / parameters / rows), positions, SHORTEST)
    longest = max((cell.task.span(each) for each in cell.config.eval.lengths), default=0)
    beyond = min(longest, max(length, context + 1), CONTEXT)
    parts = {group: getattr(config, group) for group in (*BUILT, "model", "user")}
    # Without kernels, which need a GPU and wider heads.
    parts["attention"] = mapped(config.attention, lambda node: node | {"kernels": None} if "kernels" in node else node)
    config = Config(**parts, data={"context": cell.task.context})
    return Spec(config, facts, rows, min(context, length), True, beyond if beyond > context else 0)


def build(spec: Spec, seed: int = 0) -> nn.Module:
    """The copy's model, initialised like the cell's."""
    model = initialised_model(spec.config, SimpleNamespace(**spec.task), seed)
    return model.double() if spec.double else model


def some_inputs(spec: Spec, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random inputs, masks of ones."""
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for name, (shape, numbers) in spec.task["inputs"].items():
        size = (spec.rows, min(shape[0], spec.length), *shape[1:])
        if name.endswith("mask"):
            found[name] = torch.ones(size)
        elif numbers:
            found[name] = torch.randn(size, generator=draw, dtype=torch.float64 if spec.double else torch.float32)
        else:
            found[name] = torch.randint(spec.task["vocab"], size, generator=draw)
    return found


def others(x: Tensor, vocab: int) -> Tensor:
    """Inputs that differ at every position."""
    draw = torch.Generator().manual_seed(1)
    if x.is_floating_point():
        return x + torch.randn(x.shape, generator=draw, dtype=x.dtype)
    return (x + torch.randint(1, max(2, vocab), x.shape, generator=draw)) % vocab


@torch.no_grad()
def perturb(model: nn.Module) -> nn.Module:
    """Add noise, keyed by name, to every parameter in place: a gate with initial value zero would hide its input."""
    for name, parameter in model.named_parameters():
        draw = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
        size = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
        noise = torch.rand(parameter.shape, generator=draw) - 0.5  # normals would take as long as all the rest
        parameter.add_(noise.to(parameter.dtype), alpha=12**0.5 * size)
    return model


RATE = 1e-2  # learning rate, for gradients of RMS 1
CLIP = 1e-3  # gradient clipping, small enough that a step that does not clip differs
UPDATES = 32  # in which gradients are counted, and what happens now and then in training is seen
TRIAL_ROWS = 8  # of their batches, which a step may split


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
    """The budget with the FLOPs of all gradients that a step takes, on average.  Raises BadComponent."""
    step, why = resolve("step", config.step["_target_"], config.user), ""
    if step is Step:
        return budget
    for double in (True, False):
        spec = small(Checked(config, task, budget), set(), SHORTEST)._replace(rows=TRIAL_ROWS, double=double)
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
