"""Whether a tiny copy sees what it must not: later tokens, other rows, padding; and which part of it does."""

import copy
import dataclasses
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ablate.config.depth import variants_of
from ablate.config.files import read_plain
from ablate.config.groups import defaults, groups
from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.model.norm import running_norms
from ablate.planning.checks.small_models import Spec, build, others, perturb, some_inputs, whole_numbers

CAUSAL = ("lm", "seq2seq")

Inputs = dict[str, Tensor]
Check = Callable[[nn.Module, Inputs, Spec], bool]


class Strange(Exception):
    """A copy whose numbers say nothing."""


def unsteady(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change though inputs do not: then other checks say nothing."""
    return differ(run(model, inputs), run(model, inputs))


def inconstant(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether a model that is built again gives other outputs: a count of instances, say, goes on from the first."""
    return differ(run(model, inputs), run(settled(build(spec), inputs), inputs))


def look_ahead(model: nn.Module, inputs: Inputs, spec: Spec, together: bool = False) -> bool:
    """Whether outputs of a causal model change with later tokens; each row of the batch has a `now` of its own.

    `together` all rows have one, so that a part which mixes rows gives the past no later tokens of others.
    """
    if spec.task["kind"] not in CAUSAL:
        return False
    tokens, other = inputs["tokens"], others(inputs["tokens"], spec.task["vocab"])
    before, (rows, length) = run(model, inputs), tokens.shape[:2]
    todo, each = _nows(spec, length), 1 if together else rows
    while todo:
        now, todo = torch.tensor((todo[:each] * rows)[:rows]), todo[each:]
        seen = torch.arange(length) <= now[:, None]
        kept = seen.view(*seen.shape, *[1] * (tokens.ndim - 2))
        after = run(model, inputs | {"tokens": torch.where(kept, tokens, other)})
        if differ(before[seen], after[seen]):
            return True
    return False


def train_ahead(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether only in training mode outputs change with later tokens.

    Norms with running statistics and parts that draw random numbers are left out.
    """
    if running_norms(model):
        return False
    model = copy.deepcopy(model).train()
    if not look_ahead(model, inputs, spec) or unsteady(model, inputs, spec):
        return False
    return not mixed_rows(model, inputs, spec) or look_ahead(model, inputs, spec, together=True)


def train_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether only in training mode outputs of one example change with the others of its batch; see `train_ahead`."""
    if running_norms(model):
        return False
    model = copy.deepcopy(model).train()
    return mixed_rows(model, inputs, spec) and not unsteady(model, inputs, spec)


def ahead_beyond(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs change with later tokens at a length beyond the context, where the cell is tested there."""
    return bool(spec.beyond) and look_ahead(model, some_inputs(spec.longer), spec)


def _nows(spec: Spec, length: int) -> list[int]:
    """Positions to look ahead from: odd and even ones, the ends of chunks of 2ⁿ and of the whole numbers configured.

    A look at the next position alone, at some positions, is seen from those alone.
    """
    chunks = {2**n for n in range(length.bit_length())} | whole_numbers(spec.config)
    wanted = {chunk - 1 for chunk in chunks} | {2, length // 2, length - 3, length - 2}
    return sorted(wanted & {*range(length - 1)})


def mixed_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of one example change with the others of its batch."""
    other = {name: torch.cat([x[:1], others(x, spec.task["vocab"])[1:]]) for name, x in plain(inputs).items()}
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


ALONE = ("unsteady", "rows")  # checks that must pass for those after them to say anything
NOTED = ("unsteady", "training", "batch")  # checks after which a cell may train all the same
# Checks of a copy, and how the part that fails is described.
CHECKS: dict[str, tuple[Check, str]] = {
    "unsteady": (unsteady, "gives other outputs for the same inputs, at evaluation; what it sees cannot be tried out"),
    "anew": (inconstant, "is another model each time it is built; to know its layer it asks for `layer`"),
    "rows": (mixed_rows, "mixes rows: outputs of one example change with the others of its batch, at evaluation"),
    "ahead": (look_ahead, "looks ahead: outputs of a causal model change with later tokens; it must not see them"),
    "beyond": (ahead_beyond, "looks ahead at lengths beyond the context, at which eval.lengths has it tested"),
    "training": (train_ahead, "looks ahead in training: its training loss sees what is to be predicted"),
    "batch": (train_rows, "mixes rows in training: what it makes of an example depends on the others of its batch"),
    "padding": (read_padding, "reads padding: outputs at real positions change with padded ones; use its mask"),
}


def settled(model: nn.Module, inputs: Inputs) -> nn.Module:
    """A copy away from special starts, its running statistics those of a batch."""
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        perturb(model).train()(**inputs)
    return model.eval()


def guilty(spec: Spec, check: Check) -> list[tuple[str, str]]:
    """Components with which a check fails beside the reference model's parts, as (group, words); or the whole model."""
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
        except Exception:  # the part does not fit beside the reference's: nothing is learned
            continue
    return found or [("", "the model of " + ", ".join(called(spec, group) for group in (*nodes, "model")))]


def called(spec: Spec, group: str) -> str:
    """A component by its class, or those of all its variants."""
    nodes = variants_of(spec.config.as_json()[group])
    return " + ".join(node["_target_"].removeprefix("ablate.model.") for node in nodes)
