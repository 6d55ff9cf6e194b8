"""Checks of a tiny copy of a cell with user code: does it see later tokens, other rows or padding, keep state that no
checkpoint has, or have parameters without any effect, and through which component?

What is built in is tested for all of this (tests/model/test_variants.py, tests/planning/checks/test_examine.py).
"""

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import BadComponent, Problem, one_line
from ablate.config.files import read_plain
from ablate.config.groups import defaults, groups
from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.model.norm import running_norms
from ablate.planning.checks.small_models import (
    Checked,
    Spec,
    Trial,
    build,
    full,
    others,
    perturb,
    small,
    some_inputs,
    whole_numbers,
)

BATCHES = 6  # tried before a parameter counts as never having a gradient
MODELS = 8  # other initialisations tried, too
CAUSAL = ("lm", "seq2seq")

Inputs = dict[str, Tensor]
Check = Callable[[nn.Module, Inputs, Spec], bool]


def unsteady(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether the same inputs give different outputs: then the other checks mean nothing."""
    return differ(run(model, inputs), run(model, inputs))


def inconstant(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether a model that is built again gives other outputs, because it counts its instances, say."""
    return differ(run(model, inputs), run(settled(build(spec), inputs), inputs))


def look_ahead(model: nn.Module, inputs: Inputs, spec: Spec, together: bool = False) -> bool:
    """Whether outputs of a causal model change with tokens after position `now`, which differs from row to row.  With
    `together` it is the same in all rows, so that mixing rows does not count as looking ahead."""
    if spec.task["kind"] not in CAUSAL:
        return False
    tokens, other = inputs["tokens"], others(inputs["tokens"], spec.task["vocab"])
    before, (rows, length) = run(model, inputs), tokens.shape[:2]
    # Odd and even ones, ends of chunks of 2ⁿ and of all integers in the configuration: it may look ahead at some only.
    chunks = {2**n for n in range(length.bit_length())} | whole_numbers(spec.config)
    wanted = {chunk - 1 for chunk in chunks} | {2, length // 2, length - 3, length - 2}
    todo, each = sorted(wanted & {*range(length - 1)}), 1 if together else rows
    while todo:
        now, todo = torch.tensor((todo[:each] * rows)[:rows]), todo[each:]
        seen = torch.arange(length) <= now[:, None]
        kept = seen.view(*seen.shape, *[1] * (tokens.ndim - 2))
        after = run(model, inputs | {"tokens": torch.where(kept, tokens, other)})
        if differ(before[seen], after[seen]):
            return True
    return False


def train_ahead(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change with later tokens in training mode; not for running statistics or random outputs."""
    if running_norms(model):
        return False
    model = copy.deepcopy(model).train()
    if not look_ahead(model, inputs, spec) or unsteady(model, inputs, spec):
        return False
    return not mixed_rows(model, inputs, spec) or look_ahead(model, inputs, spec, together=True)


def train_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change with the other examples of the batch in training mode; exceptions as in `train_ahead`."""
    if running_norms(model):
        return False
    model = copy.deepcopy(model).train()
    return mixed_rows(model, inputs, spec) and not unsteady(model, inputs, spec)


def ahead_beyond(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change with later tokens at a length beyond the context, if the cell is tested there."""
    return bool(spec.beyond) and look_ahead(model, some_inputs(spec.longer), spec)


def mixed_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of one example change with the others of its batch."""
    other = {name: torch.cat([x[:1], others(x, spec.task["vocab"])[1:]]) for name, x in plain(inputs).items()}
    return differ(run(model, inputs)[0], run(model, inputs | other)[0])


def read_padding(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs at real positions change with the contents of padded ones, at the start and at the end."""
    takes, masks, padded = inspect.signature(model.forward).parameters, Inputs(), Inputs()
    for name, x in plain(inputs).items():
        key, real = "source_mask" if name == "source" else "mask", torch.ones(x.shape[:2])
        if key in takes and x.shape[1] > 3:
            part, masks[key] = x.shape[1] // 3, real
            real[0, 1 : 1 + part] = 0  # a hole, which later positions of a causal model could read
            real[1, -part:] = 0
        seen = real.bool().view(*real.shape, *[1] * (x.ndim - 2))
        padded[name] = torch.where(seen, x, others(x, spec.task["vocab"]))
    if not masks:
        return False
    before, after = run(model, inputs | masks), run(model, inputs | padded | masks)
    if before.ndim > 2 and "mask" in masks:
        real = masks["mask"].bool()
        before, after = before[real], after[real]
    return differ(before, after)


def forgets_state(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether a model of user code computes something else after a training step if it was saved and loaded before."""
    untrained = build(spec)
    trial = Trial(spec, copy.deepcopy(untrained)).update(inputs, 0)
    resumed = Trial(spec, untrained)
    resumed.shape = trial.shape
    resumed.model.load_state_dict(trial.model.state_dict())
    resumed.step.load_state_dict(trial.step.state_dict())
    return differ(trial.update(inputs, 1).logits, resumed.update(inputs, 1).logits)


def plain(inputs: Inputs) -> Inputs:
    """Inputs without masks."""
    return {name: x for name, x in inputs.items() if not name.endswith("mask")}


@torch.no_grad()
def run(model: nn.Module, inputs: Inputs) -> Tensor:
    """Outputs in the model's current mode, with the same random numbers each time.  Raises BadComponent."""
    torch.default_generator.manual_seed(0)
    rekey(model, 0, 0)
    found: Tensor = model(**inputs)
    if not found.isfinite().all():
        raise BadComponent("", "its outputs are not finite")
    return found


def differ(first: Tensor, second: Tensor) -> bool:
    """Whether outputs differ by more than rounding; parts of a float64 model may compute in float32."""
    rounding = 1e-5 if first.dtype == torch.float64 else 1e-4
    return bool((first - second).abs().max() > rounding * max(1.0, float(first.abs().max())))


ALONE = ("unsteady", "rows")  # if one of these fails, later checks mean nothing
NOTED = ("unsteady", "training", "batch")  # these give a note instead of a problem
# Each check, and what is said of the component that fails it.
CHECKS: dict[str, tuple[Check, str]] = {
    "state": (
        forgets_state,
        "keeps state where no checkpoint has it: a run that is resumed would have other numbers; keep tensors in "
        "buffers (register_buffer), and what a step keeps in its state_dict",
    ),
    "unsteady": (unsteady, "gives other outputs for the same inputs, at evaluation; the other checks were left out"),
    "anew": (inconstant, "is another model each time it is built; to know its layer it asks for `layer`"),
    "rows": (mixed_rows, "mixes rows: outputs of one example change with the others of its batch, at evaluation"),
    "ahead": (look_ahead, "looks ahead: outputs of a causal model change with later tokens; it must not see them"),
    "beyond": (ahead_beyond, "looks ahead at lengths beyond the context, at which eval.lengths has it tested"),
    "training": (train_ahead, "looks ahead in training: its training loss sees what is to be predicted"),
    "batch": (train_rows, "mixes rows in training: what it makes of an example depends on the others of its batch"),
    "padding": (read_padding, "reads padding: outputs at real positions change with padded ones; use its mask"),
}


def settled(model: nn.Module, inputs: Inputs) -> nn.Module:
    """The model in evaluation mode, with perturbed parameters and the running statistics of one batch."""
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        perturb(model).train()(**inputs)
    return model.eval()


def guilty(spec: Spec, check: Check) -> list[tuple[str, str]]:
    """The components that fail a check in the reference model, as (group, name); if none does, the whole model."""
    files, usual = groups(), defaults()
    nodes = {group: read_plain(files[group][usual[group]]) for group in usual if group in COMPONENTS}
    found = []
    for group, node in nodes.items():
        own = getattr(spec.config, group)
        if node["_target_"] == own.get("_target_"):
            continue
        other = spec._replace(config=dataclasses.replace(spec.config, **nodes | {group: own}))
        try:
            inputs = some_inputs(other)
            if check(settled(build(other), inputs), inputs, other):
                found.append((group, called(spec, group)))
        except Exception:  # the component does not fit into the reference model
            continue
    return found or [("", "the model of " + ", ".join(called(spec, group) for group in (*nodes, "model")))]


def called(spec: Spec, group: str) -> str:
    """The class of a component, or the classes of a pattern over the layers."""
    nodes = variants_of(spec.config.as_json()[group])
    return " + ".join(node["_target_"].removeprefix("ablate.model.") for node in nodes)


def examine_cell(cell: Checked, positions: int) -> tuple[list[Problem], list[str]]:
    """Problems and notes of a cell, from the first copy that runs: small, then of the cell's own size; each in float64,
    then in float32.  A note alone if none runs."""
    why = ""
    for spec in (small(cell, set(), positions), full(cell, positions)):
        for double in (True, False):
            try:
                return examine(spec._replace(double=double))
            except Exception as error:  # user code can fail in any way
                why = why or one_line(error)
    return [], [f"it could not be tried out on a small copy ({why})"]


def examine(spec: Spec) -> tuple[list[Problem], list[str]]:
    """Problems and notes of a copy.  Raises any error."""
    with torch.random.fork_rng(devices=[]):
        model, inputs = build(spec), some_inputs(spec)
        moved = settled(copy.deepcopy(model), inputs)
        problems, notes = list[Problem](), list[str]()
        for name, (check, message) in CHECKS.items():
            if not check(moved, inputs, spec):
                continue
            pads = any(given.endswith("mask") for given in spec.task["inputs"])
            harmless = " (this task pads nothing)" * (name == "padding" and not pads)
            for key, part in guilty(spec, check):
                if harmless or name in NOTED:
                    notes.append(f"{part} {message}{harmless}")
                else:
                    problems.append(Problem(key, f"{part} {message}"))
            if name in ALONE:
                break
        idle, sometimes = _without_gradient(spec, model, inputs)
        never, unsent = _idle_parts(spec, model, idle, sometimes)
        return problems + never, notes + unsent


def _without_gradient(spec: Spec, model: nn.Module, inputs: Inputs) -> tuple[set[str], set[str]]:
    """The parameters that never have a gradient, and those that have one in some batches only.

    Parameters without a gradient are tried with more batches and initialisations: experts may get no tokens of a batch.
    """
    trial = Trial(spec, copy.deepcopy(model))
    seen = [trial.update(inputs, 0).idle, trial.update(inputs, 1).idle]
    if set.intersection(*seen):
        for batch in range(2, BATCHES):
            seen.append(trial.update(some_inputs(spec, batch), batch).idle)
    if set.intersection(*seen):
        for seed in range(1, MODELS + 1):
            seen.append(Trial(spec, perturb(build(spec, seed))).update(some_inputs(spec, seed), seed).idle)
    idle = set.intersection(*seen)
    return idle, set.union(*seen) - idle


def _idle_parts(spec: Spec, model: nn.Module, idle: set[str], sometimes: set[str]) -> tuple[list[Problem], list[str]]:
    """Problems and notes of components with `idle` parameters, which never have a gradient: only a note for an expert
    that got no token, if its name equals that of one with a gradient `sometimes`, but for a number."""
    nodes = [(group, node) for group in COMPONENTS for node in variants_of(getattr(spec.config, group))]
    targets = [(group, resolve(group, node["_target_"], spec.config.user)) for group, node in nodes]
    problems, notes = list[Problem](), list[str]()
    for group, target in targets:
        others = tuple(other for _, other in targets if other is not target and inspect.isclass(other))
        wrong, harmless = list[str](), list[str]()
        for place, module in ((place, module) for place, module in model.named_modules() if type(module) is target):
            names = [name for name, _ in module.named_parameters()]
            silent = {name for name in names if f"{place}.{name}" in idle}
            if names and silent == {*names}:
                wrong.append(f"is built but never used: nothing of {place} reaches the outputs")
                continue
            inside = tuple(f"{name}." for name, part in module.named_modules() if name and isinstance(part, others))
            own = {name for name in silent if not name.startswith(inside)}  # not those of other components inside it
            alike = {re.sub(r"\b\d+\b", "#", name) for name in names if f"{place}.{name}" in sometimes}
            spared = {name for name in own if re.sub(r"\b\d+\b", "#", name) in alike}
            if own - spared:
                never = ", ".join(sorted(f"{place}.{name}" for name in own - spared))
                wrong.append(f"never uses {never}, which counts all the same; take it out")
            if spared:
                unsent = ", ".join(sorted(f"{place}.{name}" for name in spared))
                harmless.append(f"sent nothing to {unsent} in all batches of a small copy, though to others like it")
        problems += [Problem(group, f"{called(spec, group)} {what}") for what in wrong[:1]]
        notes += [f"{called(spec, group)} {what}" for what in harmless[:1]]
    return problems, notes
