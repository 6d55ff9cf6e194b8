"""Checks of a small copy of a cell with user code: does it see later tokens, other rows or padding, or keep state that
no checkpoint has?

What is built in is tested for all of this (tests/planning/checks/test_examine.py).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ablate.config.errors import BadComponent, Problem, one_line
from ablate.model.dropout import rekey
from ablate.planning.checks.small_models import (
    ROWS,
    Checked,
    Spec,
    Trial,
    build,
    copy_of,
    perturb,
    some_inputs,
    whole_numbers,
)
from ablate.planning.checks.user_code import foreign_parts

CAUSAL = ("lm", "seq2seq")

Inputs = dict[str, Tensor]
Check = Callable[[nn.Module, Inputs, Spec], bool]


def forgets_state(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether a model computes something else after a training step if it was saved and loaded before."""
    untrained = build(spec)
    trial = Trial(spec, copy.deepcopy(untrained)).update(0)
    resumed = Trial(spec, untrained)
    resumed.model.load_state_dict(trial.model.state_dict())
    resumed.step.load_state_dict(trial.step.state_dict())
    return differ(trial.update(1).logits, resumed.update(1).logits)


def counts_instances(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether a model that is built again gives other outputs."""
    return differ(outputs(model, inputs), outputs(settled(build(spec), inputs), inputs))


def mixes_rows(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of one example change with the others of its batch."""
    changed = {}
    for name, x in without_masks(inputs).items():
        changed[name] = torch.cat([x[:1], changed_everywhere(x, spec)[1:]])
    return differ(outputs(model, inputs)[0], outputs(model, inputs | changed)[0])


def looks_ahead(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs of a causal model change with tokens after some position, which differs from row to row."""
    if spec.task["kind"] not in CAUSAL:
        return False
    tokens = inputs["tokens"]
    length = tokens.shape[1]
    before = outputs(model, inputs)
    # Ends of chunks of 2ⁿ and of all integers in the configuration: it may look ahead at some positions only.
    chunks = {2**n for n in range(length.bit_length())} | whole_numbers(spec.config)
    places = {chunk - 1 for chunk in chunks} | {2, length // 2, length - 3, length - 2}
    last = sorted(place for place in places if 0 <= place < length - 1)
    for start in range(0, len(last), ROWS):
        row = torch.tensor((last[start : start + ROWS] * ROWS)[:ROWS])
        is_past = torch.arange(length) <= row[:, None]
        is_unchanged = is_past.view(*is_past.shape, *[1] * (tokens.ndim - 2))
        after = outputs(model, inputs | {"tokens": torch.where(is_unchanged, tokens, changed_everywhere(tokens, spec))})
        if differ(before[is_past], after[is_past]):
            return True
    return False


def reads_padding(model: nn.Module, inputs: Inputs, spec: Spec) -> bool:
    """Whether outputs at real positions change with the contents of padded ones, at the start and at the end."""
    masks = {}
    padded = {}
    for name, x in without_masks(inputs).items():
        mask = torch.ones(x.shape[:2])
        key = "source_mask" if name == "source" else "mask"
        if key in inputs and x.shape[1] > 3:
            part = x.shape[1] // 3
            mask[0, 1 : 1 + part] = 0  # a hole, which later positions of a causal model could read
            mask[1, -part:] = 0
            masks[key] = mask
        is_real = mask.bool().view(*mask.shape, *[1] * (x.ndim - 2))
        padded[name] = torch.where(is_real, x, changed_everywhere(x, spec))
    if not masks:  # the task pads nothing
        return False
    before = outputs(model, inputs | masks)
    after = outputs(model, inputs | padded | masks)
    if before.ndim > 2 and "mask" in masks:
        is_real = masks["mask"].bool()
        before = before[is_real]
        after = after[is_real]
    return differ(before, after)


def without_masks(inputs: Inputs) -> Inputs:
    """Inputs without masks."""
    return {name: x for name, x in inputs.items() if not name.endswith("mask")}


def changed_everywhere(x: Tensor, spec: Spec) -> Tensor:
    """Inputs that differ at every position."""
    draw = torch.Generator().manual_seed(1)
    if x.is_floating_point():
        return x + torch.randn(x.shape, generator=draw, dtype=x.dtype)
    vocab = spec.task["vocab"]
    return (x + torch.randint(1, max(2, vocab), x.shape, generator=draw)) % vocab


@torch.no_grad()
def outputs(model: nn.Module, inputs: Inputs) -> Tensor:
    """Outputs in the model's current mode, with the same random numbers each time.  Raises BadComponent."""
    torch.default_generator.manual_seed(0)
    rekey(model, 0, 0)
    logits: Tensor = model(**inputs)
    if not logits.isfinite().all():
        raise BadComponent("", "its outputs are not finite")
    return logits


def differ(first: Tensor, second: Tensor) -> bool:
    """Whether outputs differ by more than rounding; parts of a float64 model may compute in float32."""
    rounding = 1e-5 if first.dtype == torch.float64 else 1e-4
    return bool((first - second).abs().max() > rounding * max(1.0, float(first.abs().max())))


def settled(model: nn.Module, inputs: Inputs) -> nn.Module:
    """The model in evaluation mode, with perturbed parameters and the running statistics of one batch."""
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        perturb(model).train()(**inputs)
    return model.eval()


# Each check of a settled model, and what is said of user code that fails it.
CHECKS: dict[Check, str] = {
    forgets_state: "keeps state where no checkpoint has it: a run that is resumed would have other numbers; keep "
    "tensors in buffers (register_buffer), and what a step keeps in its state_dict",
    counts_instances: "is another model each time it is built; to know its layer it asks for `layer`",
    mixes_rows: "mixes rows: outputs of one example change with the others of its batch, at evaluation",
    looks_ahead: "looks ahead: outputs of a causal model change with later tokens; it must not see them",
    reads_padding: "reads padding: outputs at real positions change with padded ones; use its mask",
}


def examine_cell(cell: Checked) -> tuple[list[Problem], list[str]]:
    """The problems of a cell, from its copy in float64, else in float32; a note if neither runs."""
    spec = copy_of(cell)
    if spec is None:
        return [], ["it is too large to be tried out on a small copy; plan it with a smaller model.dim first"]
    why = ""
    for double in (True, False):
        try:
            return examine(spec._replace(double=double), foreign_parts(cell.config)), []
        except Exception as error:  # user code can fail in any way
            why = why or one_line(error)
    return [], [f"it could not be tried out on a small copy ({why})"]


def examine(spec: Spec, code: str) -> list[Problem]:
    """Problems of a copy; `code` names its user code.  Raises any error."""
    problems = []
    with torch.random.fork_rng(devices=[]):
        inputs = some_inputs(spec)
        model = settled(build(spec), inputs)
        for check, message in CHECKS.items():
            if check(model, inputs, spec):
                problems.append(Problem("", f"{code} {message}"))
                if check in (forgets_state, mixes_rows):  # then later checks mean nothing
                    break
    return problems
