"""Finds cells that are the same configuration or the same network, before both are trained."""

import json
import math
from functools import partial
from typing import Any

import torch

from ablate.config.components import resolve
from ablate.config.depth import patterned, variants_of
from ablate.config.errors import PlanError, Problem
from ablate.config.schema import BUILT, LAYERS, VARIED, Config
from ablate.planning.cache import once
from ablate.planning.checks.small_models import UPDATES, Checked, Spec, Trial, build, copy_of, perturb, random_loss
from ablate.runs.key import numbers
from ablate.runs.records import Cell

ROUNDING = 1e-10  # relative; more than another order of sums in float64 changes, and far below float32's precision


def same_networks(checked: list[Checked]) -> list[tuple[int, int]]:
    """The places of cells that differ in components or the model's keys only, but train with equal losses up to
    rounding: where small copies of two cells agree before training, they are trained for some steps."""
    pairs = []
    distinct: dict[str, list[int]] = {}  # by the settings that the losses of a few steps do not show
    losses = [first_loss(cell) for cell in checked]
    for place, cell in enumerate(checked):
        compared = distinct.setdefault(json.dumps(unseen_settings(cell), sort_keys=True), [])
        for earlier in compared:
            if agree(losses[earlier], losses[place]) and is_same_network(checked[earlier], cell):
                pairs.append((earlier, place))
                break
        else:
            compared.append(place)
    return pairs


def is_same_network(first: Checked, second: Checked) -> bool:
    """Whether copies agree over many steps."""
    return agree(losses_of_training(first), losses_of_training(second))


def unseen_settings(cell: Checked) -> list[Any]:
    """The settings that the losses of a copy's first steps do not show: those of training, depth, and parametrization,
    and what the class of a component names in `late` or `beyond_context`."""
    config = cell.config
    training = {key: value for key, value in numbers(config).items() if key not in (*BUILT, "model")}
    depth = [config.model.layers, *(node[LAYERS] for _, node in patterned(config))]
    settings = [training, cell.task.fingerprint, depth, config.parametrization, settings_named(config, "late")]
    if any(cell.task.span(length) > cell.task.context for length in config.eval.lengths):
        settings += settings_named(config, "beyond_context")
    return settings


def settings_named(config: Config, attribute: str) -> list[Any]:
    """The settings whose names are in an attribute of their component's class."""
    settings = []
    for group in VARIED:
        for node in variants_of(getattr(config, group)):
            component = resolve(group, node["_target_"], config.user)
            settings += [[group, key, node.get(key)] for key in getattr(component, attribute, ())]
    return settings


def first_loss(cell: Checked) -> list[float]:
    """The loss of a cell's small copy in training mode; [] if there is no copy, or none that computes."""
    spec = copy_of(cell)
    if spec is None:
        return []
    return once("loss", spec.config, [spec.task, spec.length], partial(loss_without_training, spec))


def loss_without_training(spec: Spec) -> list[float]:
    """See `first_loss`; parameters are perturbed, which opens gates that are closed at first."""
    with torch.random.fork_rng(devices=[]):
        try:
            return finite([random_loss(perturb(build(spec)).train(), spec)])
        except Exception:  # user code can fail in any way
            return []


def finite(losses: list[float]) -> list[float]:
    """The losses; [] if one is not finite."""
    return losses if all(map(math.isfinite, losses)) else []


def losses_of_training(cell: Checked) -> list[float]:
    """Train a small copy for some steps: its loss at each gradient, of which a step may take several, then in an
    evaluation; [] if it cannot be trained, or if one is not finite."""
    spec = copy_of(cell)
    if spec is None:
        return []
    with torch.random.fork_rng(devices=[]):
        try:
            trial = Trial(spec, build(spec))
            for number in range(UPDATES):
                trial.update(number)
            return finite([*trial.losses, random_loss(trial.model.eval(), spec)])
        except Exception:  # user code can fail in any way
            return []


def agree(losses: list[float], others: list[float]) -> bool:
    """Whether two copies have equal losses up to rounding; false if one has none."""
    if not losses or len(losses) != len(others):
        return False
    return all(math.isclose(loss, other, rel_tol=ROUNDING) for loss, other in zip(losses, others, strict=True))


def used_settings(cell: Checked) -> dict[str, Any]:
    """The settings that a cell's numbers depend on, without components that its model has no place for."""
    return {key: value for key, value in numbers(cell.config).items() if key not in cell.budget.unused}


def refuse_equal(rows: list[Cell], checked: list[Checked], allowed: bool) -> None:
    """Raise PlanError for cells with equal settings, or with equal ids; `allowed` are those that differ only in a
    component that their model has no place for."""
    seen: dict[str, int] = {}
    by_id: dict[str, Cell] = {}
    problems = []
    for place, (row, cell) in enumerate(zip(rows, checked, strict=True)):
        first = seen.setdefault(json.dumps([used_settings(cell), row.task], sort_keys=True), place)
        of_id = by_id.setdefault(row.id, row)
        if first != place:
            if allowed and numbers(cell.config) != numbers(checked[first].config):
                continue
            why = "".join(f", which has no place for a {group}" for group in cell.budget.unused)
            message = f"{row.label} is the same configuration as {rows[first].label}{why}; leave one of them out"
            problems.append(Problem("", message))
        elif of_id is not row:
            message = f"{row.label} and {of_id.label} are classes of one name; write a variant, a YAML, for each"
            problems.append(Problem("", message))
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
