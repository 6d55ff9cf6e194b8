"""Components that are built and never used, or not all of whose parameters are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from torch import nn

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.schema import COMPONENTS
from ablate.planning.checks.leakage import called
from ablate.planning.checks.small_models import Spec


def idle_parts(spec: Spec, model: nn.Module, idle: set[str], dispatched: set[str]) -> tuple[list[list[str]], list[str]]:
    """Components of which nothing reaches the outputs, or not all parameters do, as [key, message]; and notes.

    `idle` are the parameters that never have a gradient, `dispatched` those that have one now and then.  A note is all
    where one of the latter has the same name but for a number in it: of an expert that no token of the small batches
    was sent to, others are without tokens at times.
    """
    nodes = [(group, node) for group in COMPONENTS for node in variants_of(getattr(spec.config, group))]
    targets = [(group, resolve(group, node["_target_"], spec.config.user)) for group, node in nodes]
    problems, notes = [], []
    for group, target in targets:
        others = tuple(other for _, other in targets if other is not target and inspect.isclass(other))
        places = {place: module for place, module in model.named_modules() if type(module) is target}
        found = [said for place, module in places.items() for said in said_of(place, module, others, idle, dispatched)]
        name = called(spec, group)
        problems += [[group, f"{name} {what}"] for what, harmless in found if not harmless][:1]
        notes += [f"{name} {what}" for what, harmless in found if harmless][:1]
    return problems, notes


def said_of(
    place: str, module: nn.Module, others: tuple[type, ...], idle: set[str], dispatched: set[str]
) -> Iterator[tuple[str, bool]]:
    """What to say of a component at a place, and whether it may be so."""
    names = [name for name, _ in module.named_parameters()]
    silent = {name for name in names if f"{place}.{name}" in idle}
    if names and silent == {*names}:
        yield f"is built but never used: nothing of {place} reaches the outputs", False
        return
    own = silent.intersection(own_parameters(module, others))
    spared = own & unrouted(silent, {name for name in names if f"{place}.{name}" in dispatched})
    if own - spared:
        never = ", ".join(sorted(f"{place}.{name}" for name in own - spared))
        yield f"never uses {never}, which counts all the same; take it out", False
    if spared:
        unsent = ", ".join(sorted(f"{place}.{name}" for name in spared))
        yield f"sent nothing to {unsent} in all batches of a small copy, though to others like it", True


def unrouted(silent: set[str], dispatched: set[str]) -> set[str]:
    """Of parameters without a gradient those of which another of the same name, but for a number in it, has one now and
    then.
    """
    alike = {re.sub(r"\b\d+\b", "#", name) for name in dispatched}
    return {name for name in silent if re.sub(r"\b\d+\b", "#", name) in alike}


def own_parameters(module: nn.Module, others: tuple[type, ...], prefix: str = "") -> list[str]:
    """Names of a module's parameters but for those of other components in it."""
    names = [prefix + name for name, _ in module.named_parameters(recurse=False)]
    for name, child in module.named_children():
        if not isinstance(child, others):
            names += own_parameters(child, others, f"{prefix}{name}.")
    return names
