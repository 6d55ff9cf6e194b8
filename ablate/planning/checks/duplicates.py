"""Finds cells that are the same configuration or the same network, before both are trained."""

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ablate.config.components import resolve
from ablate.config.depth import fewest, variants_of
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import BUILT, VARIED, Config
from ablate.formatting import flat, show
from ablate.planning.checks.small_models import (
    SHALLOW,
    UPDATES,
    Checked,
    Spec,
    Trial,
    build,
    distinguishing,
    full,
    small,
    some_inputs,
)
from ablate.planning.checks.user_code import Record, cached
from ablate.runs.key import code_of, numbers
from ablate.runs.records import Cell

ROUNDING = 1e-10  # relative; more than another order of sums in float64 changes, and far below float32's precision
PROJECTIONS = 3  # of each output: a difference could be orthogonal to a single one
STEPS = 2  # of training, in which a gate that is closed at first has opened
FAR = 2.0  # nats from ln(outputs); tied embeddings under a last norm cost up to 1.7, logits of size 8 cost 60

Signature = list[list[float]] | None  # size and projections of each output of a copy


@dataclasses.dataclass(frozen=True)
class Twins:
    """Two cells, by their places, that are the same network; `meets`: at this width alone."""

    first: int
    second: int
    why: str = ""
    meets: bool = False


def same_networks(checked: list[Checked]) -> tuple[list[Twins], list[list[str]]]:
    """The cells that are the same network: which differ in components or the model's keys only, and of which copies
    that are initialised and trained alike give equal outputs up to rounding.  Also notes on each cell's loss."""
    keys, positions = distinguishing(checked)
    least = max(fewest(cell.config, SHALLOW) for cell in checked)
    looks = [_look(cell, small(cell, keys, positions)) for cell in checked]
    twins = []
    unlike: dict[str, list[int]] = {}  # cells with equal settings of training, none of which are the same network
    for i, cell in enumerate(checked):
        others = unlike.setdefault(json.dumps(_compared(cell), sort_keys=True), [])
        first = next((j for j in others if alike(looks[j]["signature"], looks[i]["signature"])), None)
        if first is None:
            others.append(i)
            continue
        used = [_without(checked[j].config, checked[j].budget.unused) for j in (first, i)]
        if used[0] == used[1]:  # has been reported, or is allowed
            continue
        # Copies of their own size, since cells may differ in sizes only, and more steps, since layers may be dropped.
        specs = [[full(checked[j], positions, least), small(checked[j], keys, positions)] for j in (first, i)]
        if all(
            alike(train_copy(one, steps), train_copy(other, steps))
            for one, other, steps in zip(*specs, (STEPS, UPDATES), strict=True)
        ):
            twins.append(_twins(checked, first, i))
    return twins, [look["notes"] for look in looks]


def _compared(cell: Checked) -> list[Any]:
    """What two cells have in common if they are compared: their settings of training, their task, and the settings
    without effect on the first steps or within the context."""
    late = settings_named(cell.config, "late")
    if any(cell.task.span(length) > cell.task.context for length in cell.config.eval.lengths):
        late += settings_named(cell.config, "beyond_context")
    return [_without(cell.config, (*BUILT, "model")), cell.task.fingerprint, late]


def _look(cell: Checked, spec: Spec) -> Record:
    """`look` at a cell's copy, from the cache if it is there; nothing for a user's component that fails."""
    data = [cell.config.data["_target_"], *sorted(cell.config.data)]
    depends = [spec.config.as_json(), list(spec[1:]), data, code_of(cell.config, cell.user_code).content]
    try:
        return cached("look", depends, lambda: look(spec))
    except Exception:
        return {"signature": None, "notes": []}


def look(spec: Spec) -> Record:
    """The signature of a copy's outputs at initialisation, and a note if its loss is far from that of guessing."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        logits = build(spec).eval()(**some_inputs(spec))
    loss = float((logits.logsumexp(-1) - logits.mean(-1)).mean())  # expected, of random targets
    guess = math.log(spec.task["outputs"])
    notes = []
    if abs(loss - guess) > FAR:
        how = "its logits start out large" if loss > 0 else "its outputs are no logits"
        notes.append(f"on a small copy the loss at initialisation is {loss:.1f} nats, guessing has {guess:.1f}: {how}")
    return {"signature": signature([logits]), "notes": notes}


def train_copy(spec: Spec, steps: int) -> Signature:
    """The signature of a copy's outputs in each of some training steps, of their learning rates and gradient norms, and
    of its outputs afterwards, also at a length beyond the context if it is tested there; None if it fails."""
    with torch.random.fork_rng(devices=[]):
        try:
            trial = Trial(spec, build(spec))
            inputs = some_inputs(spec)
            outputs = [trial.update(inputs, step).logits for step in range(steps)]
            outputs.append(torch.tensor(trial.optimiser.seen))
            model = trial.model.eval()
            with torch.no_grad():
                outputs.append(model(**inputs))
                if spec.beyond:
                    outputs.append(model(**some_inputs(spec.longer)))
        except Exception:  # user code can fail in any way
            return None
    return signature(outputs)


def signature(tensors: list[Tensor]) -> Signature:
    """√(mean x²) of each tensor x and its projections Σ x · w / √n, w ~ U(−½, ½); None if a number is not finite."""
    found = []
    for tensor in tensors:
        x = tensor.double().flatten()
        if not x.isfinite().all():
            return None
        row = [float(x.square().mean().sqrt())]
        for seed in range(PROJECTIONS):
            weights = torch.rand(len(x), generator=torch.Generator().manual_seed(seed)).double() - 0.5
            row.append(float(x @ weights) / len(x) ** 0.5)
        found.append(row)
    return found


def alike(first: Signature, second: Signature) -> bool:
    """Whether two copies agree up to rounding."""
    if first is None or second is None or len(first) != len(second):
        return False
    for row, other in zip(first, second, strict=True):
        if any(abs(x - y) > ROUNDING * abs(row[0]) for x, y in zip(row, other, strict=True)):
            return False
    return True


def _twins(checked: list[Checked], first: int, second: int) -> Twins:
    """Two cells that are the same network, and what explains it."""
    cells = [checked[first], checked[second]]
    configs = [cell.config for cell in cells]
    width, rules = configs[0].model.dim, [config.parametrization for config in configs]
    alone = _without(configs[0], ("parametrization",)) == _without(configs[1], ("parametrization",))
    if alone and any(cell.config.parametrization in rules and cell.config.model.dim != width for cell in checked):
        return Twins(first, second, meets=True)  # they differ at another width of the sweep
    why = ""
    windows = set()
    for cell in cells:
        for node in variants_of(cell.config.attention):
            if (node.get("window") or 0) >= cell.task.context:
                windows.add((node["window"], cell.task.context))
    for window, context in sorted(windows):
        why += f"; attention.window={window} covers the context of {context}"
    others = settings_named(configs[1], "beyond_context")
    for setting in settings_named(configs[0], "beyond_context"):
        if setting not in others:
            how = f"to compare it write eval.lengths=[{2 * cells[0].task.context}]"
            why += f"; {setting[0]}.{setting[1]} acts beyond the training context alone; {how}"
            break
    return Twins(first, second, why)


def about_twins(rows: list[Cell], twins: Iterable[Twins], allowed: bool) -> tuple[list[Problem], list[str]]:
    """Problems of cells that are the same network, or notes if they are allowed, and notes on those that meet."""
    problems, notes = [], []
    reason = "trained for two steps from equal seeds they agree but for rounding"
    for pair in twins:
        both, dim = names(rows, pair), rows[pair.first].planned_config.model.dim
        if pair.meets:
            where = f"model.dim={dim}, the base width"
            notes.append(f"{both} are one network at {where}: there both train to equal numbers")
        elif allowed:
            notes.append(f"{both} make the same network: {reason}{pair.why}; allow_duplicates=true trains both")
        else:
            how = "leave one out, or write allow_duplicates=true"
            problems.append(Problem("", f"{both} make the same network: {reason}{pair.why}; {how}"))
    return sorted(problems), sorted(notes)


def refuse_equal(rows: list[Cell], checked: list[Checked], allowed: bool) -> list[str]:
    """Raise PlanError for cells with equal settings, or with equal ids.  Returns notes on allowed ones that differ only
    in a component that their model has no place for."""
    seen: dict[str, int] = {}
    named: dict[str, int] = {}
    problems, notes = [], []
    for i, (row, cell) in enumerate(zip(rows, checked, strict=True)):
        used = {key: value for key, value in numbers(cell.config).items() if key not in cell.budget.unused}
        first = seen.setdefault(json.dumps([used, row.task], sort_keys=True), i)
        if first == i:
            if (other := named.setdefault(row.id, i)) != i:
                classes = f"{row.label} and {rows[other].label} are classes of one name"
                problems.append(Problem("", f"{classes}; write a variant, a YAML of its own, for each"))
            continue
        why = "".join(f", which has no place for a {group}" for group in cell.budget.unused)
        message = f"{row.label} is the same configuration as {rows[first].label}{why}"
        if allowed and numbers(cell.config) != numbers(checked[first].config):
            notes.append(f"{message}; allow_duplicates=true trains both")
        else:
            levels = {key: {str(level), str(rows[first].levels[key])} for key, level in row.levels.items()}
            open_keys = [key for key, both in levels.items() if "auto" in both and len(both) == 2]
            how = "leave one of them out"
            if open_keys:  # `auto` stands for one of the other values
                decided = f"{open_keys[0]}=auto is decided by ablate, compiling for the whole study"
                how = f"{decided}; write the values to compare, or leave it out"
            problems.append(Problem("", f"{message}; {how}"))
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return notes


def settings_named(config: Config, where: str) -> list[Any]:
    """Settings that a component's class names in `late` (no effect in the first steps) or in `beyond_context`."""
    found = []
    for group in VARIED:
        for node in variants_of(getattr(config, group)):
            component = resolve(group, node["_target_"], config.user)
            found += [[group, key, node.get(key)] for key in getattr(component, where, ())]
    return found


def _without(config: Config, keys: Iterable[str]) -> dict[str, Any]:
    """The settings that a run's numbers depend on by dotted name, without some keys or groups."""
    left_out = tuple(f"{key}." for key in keys)
    return {key: value for key, value in flat(numbers(config)).items() if not f"{key}.".startswith(left_out)}


def names(rows: list[Cell], pair: Twins) -> str:
    """Two cells by the keys in which they differ."""
    first, second = rows[pair.first], rows[pair.second]
    keys = [key for key in first.levels if first.levels[key] != second.levels[key]]
    texts = []
    for row in (first, second):
        texts.append(" + ".join(f"{key}={show(row.levels[key])}" for key in keys) or row.label)
    return " and ".join(texts)
