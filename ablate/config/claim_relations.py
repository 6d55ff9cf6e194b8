"""Relations of claims: the cells that each side of a claim names, and what a sum over them would be made of."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

RELATIONS = ("less", "greater", "equivalent", "diverges_more", "rank_correlates")
Side = dict[str, Any]


class Leveled(Protocol):
    """A cell, as far as claims know it."""

    @property
    def id(self) -> str:
        """What sides name it by."""

    @property
    def label(self) -> str:
        """What people call it."""

    @property
    def levels(self) -> dict[str, Any]:
        """Its level of each factor."""


def relation_of(claim: dict[str, Any]) -> str:
    """The one relation of a claim."""
    (relation,) = (relation for relation in RELATIONS if relation in claim)
    return relation


def sides_of(claim: dict[str, Any], cells: Sequence[Leveled]) -> list[set[str]]:
    """The ids of the cells on each side of a claim; of `rank_correlates` those of each level."""
    at = claim.get("at", {})
    return [{cell.id for cell in cells if holds(cell.levels, side | at)} for side in compared(claim)]


def compared(claim: dict[str, Any]) -> list[Side]:
    """The sides that a claim compares, as mappings of factors to levels; of `rank_correlates` one per level."""
    sides = claim[relation_of(claim)]
    if "rank_correlates" not in claim:
        return list(sides)
    ((factor, levels),) = sides[0].items()
    return [{factor: level} for level in levels]


def levels_of(asked: Any) -> list[Any]:
    """The levels that a side asks for of a factor, of which it names one or lists several."""
    return asked if isinstance(asked, list) else [asked]


def holds(levels: dict[str, Any], side: Side) -> bool:
    """Whether a cell's levels are among those of a side; a zipped factor is found by any of its keys."""
    alone = _alone(levels)
    return all(key in alone and _among(alone[key], levels_of(asked), key in levels) for key, asked in side.items())


def _among(level: Any, asked: list[Any], own: bool) -> bool:
    """Whether a level is asked for, by its text, too: that of one of several zipped keys, not its `own`, is a text.

    None is no text, since people call levels None, and leave others empty.
    """
    texts = {str(each) for each in asked if each is not None or not own}
    return level in asked or (level is not None and str(level) in texts)


def _alone(levels: dict[str, Any]) -> dict[str, Any]:
    """Levels with those of a zipped factor under each of its keys, too."""
    alone = dict(levels)
    for name, level in levels.items():
        members, values = name.split("+"), str(level).split("+")
        alone |= dict(zip(members, values, strict=False)) if len(members) == len(values) > 1 else {}
    return alone


def weighed(claim: dict[str, Any], cells: Sequence[Leveled]) -> list[dict[str, float]]:
    """Weights of each side's cells that make its mean, Σ w = 1; empty where the sides cannot be compared.

    With unnamed factors' levels u averaged equally: mean over u of the mean over the side's cells at u.  Sides of
    designs other than grids have cells at different u: only the u that all sides have count.  A fraction may have none
    in common, and needs none where each side has every level of every unnamed factor equally often.
    """
    named = {key for side in compared(claim) for key in side}
    by_id = {cell.id: cell.levels for cell in cells}
    groups = [_grouped([cell for cell in by_id if cell in side], by_id, named) for side in sides_of(claim, cells)]
    common = set(groups[0]).intersection(*groups[1:])
    if common:
        kept = [{key: found[key] for key in found if key in common} for found in groups]
    elif _balanced(groups):
        kept = groups
    else:
        return [{} for _ in groups]
    return [{cell: 1 / len(found) / len(same) for same in found.values() for cell in same} for found in kept]


Unnamed = tuple[tuple[str, str], ...]


def _grouped(side: list[str], levels: dict[str, dict[str, Any]], named: Collection[str]) -> dict[Unnamed, list[str]]:
    """The cells of a side by their levels of the factors that no side names."""
    found: dict[Unnamed, list[str]] = {}
    for cell in side:
        rest = {name: repr(level) for name, level in levels[cell].items() if not {name, *name.split("+")} & {*named}}
        found.setdefault(tuple(rest.items()), []).append(cell)
    return found


def _balanced(groups: list[dict[Unnamed, list[str]]]) -> bool:
    """Whether every side has each level of each unnamed factor in the same share of its groups."""
    shares = []
    for found in groups:
        pairs = [pair for key in found for pair in key]
        shares.append({pair: pairs.count(pair) / len(found) for pair in pairs})
    return all(share == shares[0] for share in shares)
