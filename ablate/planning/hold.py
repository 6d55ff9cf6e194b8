"""`hold=`: arguments that variants of a component have are set to their reference's, so that one thing changes."""

from __future__ import annotations

from typing import Any

from ablate.config.components import RESERVED, defaults_of
from ablate.config.compose import Composed
from ablate.config.depth import patterned
from ablate.config.errors import BadComponent, Problem
from ablate.config.schema import COMPONENTS
from ablate.formatting import setting


def hold_equal(
    cells: list[Composed], at: list[int], swept: list[str]
) -> tuple[list[Composed], list[str], list[Problem]]:
    """The cells with the arguments that `hold` names as the cells `at` have them, what was changed, and what is wrong.

    `swept` are the keys of the factors.  Arguments of components whose variants differ, of those that are one class
    with other arguments only what is named.
    """
    requested = cells[0].config.hold
    if requested != "all" and not (isinstance(requested, list) and all(isinstance(name, str) for name in requested)):
        message = f"must be all or a list of arguments, not {requested!r}; write hold=[bias] or hold=all"
        return cells, [], [Problem("hold", message)]
    groups = [group for group in COMPONENTS if group in swept]
    if not requested:
        return cells, [], []
    if not groups:
        return cells, [], [Problem("hold", "holds arguments of variants equal; sweep a component, or leave it out")]
    if mixed := next((group for cell in cells for group in patterned(cell.config) if group in groups), None):
        return cells, [], [Problem("hold", f"{mixed} changes over the layers here; set its arguments, as {mixed}.KEY=")]
    try:
        own = [{group: arguments(cell, group) for group in groups} for cell in cells]
    except BadComponent:  # its check says what is wrong with it
        return cells, [], []
    names, problems = held_names(requested, cells, own, swept)
    if problems:
        return cells, [], problems
    changed: dict[str, str] = {}
    held = []
    for i, cell in enumerate(cells):
        config, reference = cell.config, cells[at[i]]
        for group, name in names:
            given, wanted = own[i][group], own[at[i]][group]
            if name in given and name in wanted and given[name] != wanted[name]:
                classes = {getattr(each.config, group)["_target_"] for each in (cell, reference)}
                if requested == "all" and len(classes) == 1:
                    continue
                config = config.with_value(f"{group}.{name}", wanted[name])
                changed[f"{group}.{name}"] = f"{setting(wanted[name])}, as in {reference.choices[group]}"
        held.append(Composed(config, cell.choices))
    return held, [f"held equal: {key} {how}" for key, how in changed.items()], []


def arguments(cell: Composed, group: str) -> dict[str, Any]:
    """A component's own arguments, those that its constructor fills in included.  Raises BadComponent."""
    node = getattr(cell.config, group)
    given = {name: value for name, value in node.items() if name not in RESERVED}
    return defaults_of(group, node, cell.config.user) | given


def held_names(
    requested: Any, cells: list[Composed], own: list[dict[str, dict[str, Any]]], swept: list[str]
) -> tuple[list[tuple[str, str]], list[Problem]]:
    """Group and name of each argument to hold, and what is wrong with the requested ones."""
    groups = list(own[0])
    known = {group: list(dict.fromkeys(name for each in own for name in each[group])) for group in groups}
    if requested == "all":
        return [(group, name) for group in groups for name in known[group] if f"{group}.{name}" not in swept], []
    found, messages = [], []
    for word in requested:
        group, _, name = word.rpartition(".")
        having = [each for each in groups if name in known[each] and group in ("", each)]
        if not having:
            there = ", ".join(dict.fromkeys(name for names in known.values() for name in names)) or "none"
            messages.append(f"{word} is not an argument of {' or '.join(groups)} here; there are {there}")
        for each in having:
            lacking = [cell.choices[each] for cell, given in zip(cells, own, strict=True) if name not in given[each]]
            if lacking:
                named = ", ".join(dict.fromkeys(lacking))
                messages.append(f"{each}={named} has no {name} to hold equal; leave it out")
            elif f"{each}.{name}" in swept:
                messages.append(f"{each}.{name} is swept, so it cannot be held; leave it out of one")
            else:
                found.append((each, name))
    return found, [Problem("hold", message) for message in messages]
