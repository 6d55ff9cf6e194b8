"""Finds cells that are the same network, or have the same data: a setting that differs has no effect."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import BUILT, VARIED, Config
from ablate.data.build import build_task
from ablate.formatting import flat, show
from ablate.planning.checks.user_code import DescribedTask, isolate_user_code
from ablate.planning.checks.validate import Checked
from ablate.results.records import Cell
from ablate.results.run_key import numbers
from ablate.training.schedule import build_schedule, learning_rate

Pair = tuple[int, int]
Signature = list[list[float]] | None  # size and projections of each output of a copy
OF_RATES = ("schedule", "optim.lr", "optim.warmup", "optim.min_lr_ratio")  # keys of the learning rate
MOST_RATES = 10_000  # evenly spaced steps at which learning rates are compared
ROUNDING = 1e-10  # relative; more than another order of sums in float64 changes, and far below float32's precision


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
        message = f"{row.label} is the same cell as {rows[first].label}{why}"
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


def same_networks(
    checked: list[Checked], signatures: list[Signature], confirm: Callable[[int], Signature]
) -> Iterator[Pair]:
    """Pairs of cells that differ in components or the model's keys only and whose copies agree up to rounding.
    `confirm` gives a cell's signature at its own sizes, since cells may differ in those only."""
    seen: dict[str, list[int]] = {}
    for i, cell in enumerate(checked):
        late = _named_settings(cell.config, "late")
        if any(cell.task.span(length) > cell.task.context for length in cell.config.eval.lengths):
            late += _named_settings(cell.config, "beyond_context")
        rest = [_without(cell.config, (*BUILT, "model")), cell.task.fingerprint, late]
        others = seen.setdefault(json.dumps(rest, sort_keys=True), [])
        first = next((j for j in others if alike(signatures[j], signatures[i])), None)
        if first is None:
            others.append(i)
            continue
        used = [_without(checked[j].config, checked[j].budget.unused) for j in (first, i)]
        # Cells that use the same settings have been reported, or are allowed.
        if used[0] != used[1] and alike(confirm(first), confirm(i)):
            yield first, i


def alike(first: Signature, second: Signature) -> bool:
    """Whether two copies agree up to rounding."""
    if first is None or second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(abs(x - y) <= ROUNDING * abs(one[0]) for one, other in pairs for x, y in zip(one, other, strict=True))


def base_width(checked: list[Checked], pair: Pair) -> int | None:
    """The width of two cells with different parametrizations that differ at another width of the sweep; else None."""
    first, second = (checked[i].config for i in pair)
    width, both = first.model.dim, [first.parametrization, second.parametrization]
    elsewhere = any(cell.config.parametrization in both and cell.config.model.dim != width for cell in checked)
    alone = _without(first, ("parametrization",)) == _without(second, ("parametrization",))
    return width if alone and elsewhere else None


def acting_beyond(checked: list[Checked], pair: Pair) -> str:
    """A hint for two cells that differ in a setting that only acts beyond the training context; else ""."""
    first, second = (_named_settings(checked[i].config, "beyond_context") for i in pair)
    found = next((f"{group}.{key}" for group, key, value in first if [group, key, value] not in second), None)
    how = f"to compare it write eval.lengths=[{2 * checked[pair[0]].task.context}]"
    return f"; {found} acts beyond the training context alone; {how}" if found else ""


def _named_settings(config: Config, where: str) -> list[Any]:
    """Settings that a component's class names in `late` (no effect in the first steps) or in `beyond_context`."""
    return list(isolate_user_code(config, partial(_settings_in, config, where)))


def _settings_in(config: Config, where: str) -> list[Any]:
    parts = [(group, node) for group in VARIED for node in variants_of(getattr(config, group))]
    targets = [(group, node, resolve(group, node["_target_"], config.user)) for group, node in parts]
    return [[group, key, node.get(key)] for group, node, found in targets for key in getattr(found, where, ())]


def equal_in(checked: list[Checked], keys: Iterable[str], content: Callable[[Checked], str]) -> Iterator[Pair]:
    """Pairs of cells that differ in these keys only, and have equal `content`."""
    strata: dict[str, list[int]] = {}
    for i, cell in enumerate(checked):
        strata.setdefault(json.dumps(_without(cell.config, keys), sort_keys=True), []).append(i)
    for members in strata.values():
        seen: dict[str, int] = {}
        for i in members if len(members) > 1 else []:
            shown = isolate_user_code(checked[i].config, partial(content, checked[i]), anew=True)
            first = seen.setdefault(shown, i)
            if numbers(checked[first].config) != numbers(checked[i].config):
                yield first, i


def rates(cell: Checked) -> str:
    """Hash of a cell's learning rates, rounded."""
    config = cell.config
    schedule, optim, steps = build_schedule(config), config.optim, config.train.steps
    given = (optim.lr, optim.warmup, schedule, optim.min_lr_ratio)
    each = (f"{learning_rate(step, steps, *given):.12e}" for step in range(0, steps, -(-steps // MOST_RATES)))
    return hashlib.sha256(" ".join(each).encode()).hexdigest()


def contents(cell: Checked) -> str:
    """Hash of some of a cell's batches, its held-out examples, and the facts on its task that a model needs."""
    task = build_task(cell.config) if isinstance(cell.task, DescribedTask) else cell.task
    size, tokens = cell.config.train.batch_size, cell.config.eval.tokens
    last = cell.config.train.steps - 1
    parts = [task.batch(0, step, size) for step in sorted({0, 1, 2, last // 2, last})]
    parts += [task.held_out(split, tokens) for split in ("val", "test")]
    found = hashlib.sha256(json.dumps([task.kind, task.vocab, task.outputs, task.context, task.metrics]).encode())
    for part in parts:
        for name, tensor in [*sorted(part.inputs.items()), ("targets", part.targets)]:
            found.update(f"{name} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def _without(config: Config, keys: Iterable[str]) -> dict[str, Any]:
    """The settings that a run's numbers depend on by dotted name, without some keys or groups."""
    left_out = tuple(f"{key}." for key in keys)
    return {key: value for key, value in flat(numbers(config)).items() if not f"{key}.".startswith(left_out)}


def names(rows: list[Cell], pair: Pair) -> str:
    """Two cells by the keys in which they differ."""
    levels = [rows[i].levels for i in pair]
    keys = [key for key in levels[0] if levels[0][key] != levels[1][key]]
    each = (" + ".join(f"{key}={show(own[key])}" for key in keys) for own in levels)
    return " and ".join(text or rows[i].label for i, text in zip(pair, each, strict=True))
