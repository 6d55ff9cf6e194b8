"""Small copies of cells, which can be trained for a few steps while a study is planned."""

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
from ablate.config.depth import fewest, first_layers, mapped
from ablate.config.errors import BadComponent, one_line
from ablate.config.schema import BUILT, COMPONENTS, Config
from ablate.data.task import Batch
from ablate.formatting import flat
from ablate.model.build import build_objective, initialised_model
from ablate.model.cost import Budget
from ablate.model.dropout import rekey, step_seed
from ablate.model.objective import terms_of
from ablate.runs.key import is_foreign
from ablate.runs.records import Matched, UserCode
from ablate.training.step import Step, build_step

SHALLOW = 2  # layers; sharing layers, and scaling by depth, need two
TOO_LARGE = 5e7  # parameters beyond which there is no copy: it would take seconds and gigabytes
VOCAB = 512
ROWS = 4
LENGTHS = (16, 72)  # the fewest positions, and those of a small model: more than 64, a usual size of chunks
LONGEST = 1024
WORK = 4e7  # parameters · positions above which sequences are shorter
WIDTHS = ("ffn", "embedding")  # groups whose whole numbers are widths
RATE = 1.0  # learning rate of SGD
CLIP = 0.1  # gradient clipping, small enough that a step that does not clip differs
UPDATES = 32  # in which happens what happens now and then in training, such as a dropped layer


class Checked(NamedTuple):
    """A cell that passed its own checks: its configuration with every `auto` and the FFN's width resolved."""

    config: Config
    task: Any
    budget: Budget
    defaults: dict[str, Any] = {}  # noqa: RUF012 (of constructors, by dotted name; never written to)
    matched: Matched | None = None
    user_code: UserCode | None = None


class Spec(NamedTuple):
    """A copy to build: its configuration, its task's sizes, the positions of its batches, and its precision."""

    config: Config
    task: dict[str, Any]
    length: int
    double: bool = True


def whole_numbers(config: Config) -> set[int]:
    """The integers of components that may be positions; those of FFN and embedding are widths."""
    numbers = set()
    for group in COMPONENTS:
        if group not in WIDTHS:
            values = flat(getattr(config, group)).values()
            numbers |= {value for value in values if isinstance(value, int) and not isinstance(value, bool)}
    return numbers


def facts_of(task: Any, largest: int = VOCAB) -> dict[str, Any]:
    """The facts on a task that a model is built from; vocabularies are limited to `largest`."""
    vocab = min(task.vocab, largest)
    outputs = vocab if task.outputs == task.vocab else min(task.outputs, largest)
    inputs = {name: [list(x.shape[1:]), x.is_floating_point()] for name, x in task.blank().items()}
    facts = {name: getattr(task, name) for name in ("kind", "features", "context")}
    return facts | {"vocab": vocab, "outputs": outputs, "inputs": inputs}


def copy_of(cell: Checked) -> Spec | None:
    """The copy of a cell with few layers; None if even they are too large.

    Its sequences are longer than any integer in the configuration below the context, so that windows have an effect.
    """
    config = first_layers(cell.config, fewest(cell.config, SHALLOW))
    parameters = cell.budget.core * config.model.layers / cell.config.model.layers
    if parameters > TOO_LARGE:
        return None
    # A user's objective may hold a teacher, which has logits for the whole vocabulary.
    largest = cell.task.vocab + cell.task.outputs if is_foreign(config.objective) else VOCAB
    parameters += min(largest, cell.task.vocab) * config.model.dim
    numbers = [number for number in whole_numbers(config) if number < cell.task.context]
    shortest, usual = LENGTHS
    affordable = min(usual, int(WORK / parameters / ROWS))
    length = max(shortest, affordable, 1 + max(numbers, default=0))
    parts = {group: getattr(config, group) for group in (*BUILT, "model", "user")}
    # Kernels need a GPU.
    parts["attention"] = mapped(config.attention, lambda node: node | {"kernels": None} if "kernels" in node else node)
    config = Config(**parts, data={"context": cell.task.context})
    return Spec(config, facts_of(cell.task, largest), min(length, cell.task.context, LONGEST))


def build(spec: Spec) -> nn.Module:
    """The copy's model, initialised like the cell's."""
    model = initialised_model(spec.config, SimpleNamespace(**spec.task), 0)
    return model.double() if spec.double else model


def some_inputs(spec: Spec, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random inputs, masks of ones."""
    draw = torch.Generator().manual_seed(seed)
    inputs = {}
    for name, (shape, is_number) in spec.task["inputs"].items():
        size = (ROWS, min(shape[0], spec.length), *shape[1:])
        if name.endswith("mask"):
            inputs[name] = torch.ones(size)
        elif is_number:
            inputs[name] = torch.randn(size, generator=draw, dtype=torch.float64 if spec.double else torch.float32)
        else:
            inputs[name] = torch.randint(spec.task["vocab"], size, generator=draw)
    return inputs


@torch.no_grad()
def perturb(model: nn.Module) -> nn.Module:
    """Add noise, keyed by name, to every parameter in place: a gate with initial value zero would hide its input."""
    for name, parameter in model.named_parameters():
        draw = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
        size = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3
        noise = torch.rand(parameter.shape, generator=draw) - 0.5  # normals would take as long as all the rest
        parameter.add_(noise.to(parameter.dtype), alpha=12**0.5 * size)
    return model


def random_targets(shape: torch.Size, seed: int) -> Tensor:
    """Targets for logits of a shape."""
    return torch.randint(shape[-1], shape[:-1], generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def random_loss(model: nn.Module, spec: Spec) -> float:
    """The loss of a model on a random batch, in its current mode."""
    rekey(model, 0, 0)
    torch.default_generator.manual_seed(0)
    logits = model(**some_inputs(spec))
    return float(F.cross_entropy(logits.flatten(0, -2), random_targets(logits.shape, 0).flatten()))


class Trial:
    """A copy that is trained with its cell's step, by SGD on random targets; an update sets these attributes.

    losses     of each gradient so far
    logits     of the first gradient
    passes     gradients taken so far, in batches: that of half a batch counts half
    """

    def __init__(self, spec: Spec, model: nn.Module):
        self.spec = spec
        self.model = model.train()
        self.objective = build_objective(spec.config)
        optimiser = torch.optim.SGD(model.parameters())
        optimiser.param_groups[0]["lr_share"] = 1.0
        self.step = build_step(spec.config, model, optimiser, CLIP)
        self.shape: torch.Size | None = None  # of the logits
        self.losses: list[float] = []
        self.passes = 0.0

    def update(self, number: int) -> Trial:
        """One update."""
        self.number = number
        self.is_first = True
        batch = self.random_batch(number)
        self.step.generator.manual_seed(step_seed(0, number))
        self.step.update(batch, RATE, partial(self.take_gradients, batch.targets.numel()))
        self.model.zero_grad(set_to_none=True)
        return self

    @torch.no_grad()
    def random_batch(self, number: int) -> Batch:
        """A batch with random targets."""
        inputs = some_inputs(self.spec, number)
        if self.shape is None:
            self.shape = self.model.eval()(**inputs).shape
            self.model.train()
        return Batch(inputs, random_targets(self.shape, number))

    def take_gradients(self, targets_of_batch: int, batch: Batch) -> dict[str, Tensor]:
        """Replace the parameters' gradients by those of a batch, or part of one, and return its losses by name: what
        `Step.update` calls `gradients`.  The whole batch has `targets_of_batch` targets."""
        self.model.zero_grad(set_to_none=True)
        rekey(self.model, 0, self.number)
        torch.default_generator.manual_seed(self.number)  # for components that use it
        targets = batch.targets
        logits = self.model(**batch.inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        terms = terms_of(self.model, self.objective, logits, targets, batch.inputs, targets.numel(), 1.0)
        objective = loss
        for term in terms.values():
            objective = objective + term
        objective.backward()
        self.losses.append(float(objective.detach()))
        self.passes += targets.numel() / targets_of_batch
        if self.is_first:
            self.is_first = False
            self.logits = logits.detach()
        losses = {"loss": loss}
        if terms:
            losses |= terms
            losses["objective"] = objective
        return {name: value.detach() for name, value in losses.items()}


def with_passes(budget: Budget, config: Config, task: Any) -> Budget:
    """The budget with the FLOPs of all gradients that a step takes, on average.  Raises BadComponent."""
    step = resolve("step", config.step["_target_"], config.user)
    spec = copy_of(Checked(config, task, budget))
    if step is Step or spec is None:
        return budget
    try:
        with torch.random.fork_rng(devices=[]):
            spec = spec._replace(double=False)
            trial = Trial(spec, build(spec))
            for number in range(UPDATES):
                trial.update(number)
    except Exception as error:  # a user's step can fail in any way
        raise BadComponent("step", f"cannot be run on a small copy of the model ({one_line(error)})") from None
    passes = trial.passes / UPDATES
    if passes == 1:
        return budget
    note = f"{step.__name__}: takes {passes:.3g} gradients of a batch in a step; its FLOPs are those of all of them"
    return dataclasses.replace(budget, flops_per_token=passes * budget.flops_per_token, notes=[*budget.notes, note])
