"""Relations of claims: the cells that each side of a claim names, and what a sum over them would be made of."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ablate.config.key_checks import fraction_of
from ablate.config.typed_json import Record, optional, record
from ablate.formatting import is_number

BOUNDED = ("equivalent", "not_greater", "not_less")  # a difference within a margin, which each of them needs
DIFFERENCES = ("less", "greater", *BOUNDED)  # of two means
RELATIONS = (*DIFFERENCES, "diverges_more", "rank_correlates")

# Whose statistics BatchNorm and its kin may be evaluated with, beside their running ones, each a loss of its own.
STATISTICS = ("recalibrated", "batch")

Number = int | float
Level = str | int | float | bool | None  # of a factor
Levels = dict[str, Level]  # one of each factor
Side = dict[str, Level | list[Level]]  # the levels of factors that it asks for, one or several of each
Sides = tuple[Side, Side]


@record
class Claim(Record):
    """One relation between two sides, as in {less: [{ffn: swiglu}, {ffn: [mlp, gelu]}]}.

    rank_correlates  several levels of one factor, and the number that was published for each
    metric           that of both sides, or of two, in this order
    margin           in the metric's unit: of `less` and `greater` by how much at least, of `not_greater` and `not_less`
                     by how much at most, of `equivalent` either way, which takes "2 %" of the training steps, too
    at               levels of factors that no side names
    """

    less: Sides | None = optional()
    greater: Sides | None = optional()
    equivalent: Sides | None = optional()
    not_greater: Sides | None = optional()
    not_less: Sides | None = optional()
    diverges_more: Sides | None = optional()
    rank_correlates: tuple[Side, list[Number]] | None = optional()
    metric: str | tuple[str, str] | None = optional()
    margin: Number | str | None = optional()
    at: Side = optional(default={})

    @property
    def relations(self) -> list[str]:
        """The relations that it states; of a claim that is sound exactly one."""
        return [relation for relation in RELATIONS if getattr(self, relation) is not None]

    @property
    def relation(self) -> str:
        """The one that it states."""
        (relation,) = self.relations
        return relation

    @property
    def sides(self) -> list[Side]:
        """The sides that it compares; of `rank_correlates` one per level."""
        if self.rank_correlates is None:
            return list(getattr(self, self.relation))
        ((factor, levels),) = self.rank_correlates[0].items()
        return [{factor: level} for level in levels_of(levels)]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it names: none, one, or side one's and side two's."""
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    @property
    def flaw(self) -> str | None:
        """What it has and cannot have, whatever study it is of, as the end of a sentence; None where it is sound."""
        if len(self.relations) != 1:
            return f"states {' and '.join(self.relations) or 'none'} of {', '.join(RELATIONS)}"
        if self.rank_correlates and [len(levels_of(each)) for each in self.rank_correlates[0].values()] != [
            len(self.published)
        ]:
            return "does not rank one factor's levels by as many published numbers"
        if self.relation not in DIFFERENCES:
            return "has two metrics, which only differences have" if len(self.metrics) > 1 else None
        share = self.equivalent and fraction_of(self.margin)
        if not (is_number(self.margin) or share or (self.margin is None and self.relation not in BOUNDED)):
            nor = " and no share of the steps" * bool(self.equivalent)
            return f"has the margin {self.margin!r}, which is no number{nor}"
        return None

    @property
    def published(self) -> list[Number]:
        """The numbers that `rank_correlates` compares levels with."""
        return self.rank_correlates[1] if self.rank_correlates else []


@record
class Criterion(Record):
    """What a study counts as replicated: these claims supported, all of them unless `at_least` says how many."""

    of: list[str]
    at_least: int | None = optional()

    @property
    def needed(self) -> int:
        """How many of its claims have to be supported."""
        return self.at_least or len(self.of)


def plain_metric(metric: str) -> str:
    """A metric without the length and the statistics that it was measured with."""
    plain = metric.partition("@")[0]
    return plain.partition("_")[0] if plain in {f"test/loss_{name}" for name in STATISTICS} else plain


class Leveled(Protocol):
    """A cell, as far as claims know it."""

    @property
    def id(self) -> str:
        """What sides name it by."""

    @property
    def label(self) -> str:
        """What people call it."""

    @property
    def levels(self) -> dict[str, Level]:
        """Its level of each factor."""


def sides_of(claim: Claim, cells: Sequence[Leveled]) -> list[set[str]]:
    """The ids of the cells on each side of a claim; of `rank_correlates` those of each level."""
    return [{cell.id for cell in cells if holds(cell.levels, side | claim.at)} for side in claim.sides]


def levels_of(asked: Any) -> list[Any]:
    """The levels that a side asks for of a factor, of which it names one or lists several."""
    return asked if isinstance(asked, list) else [asked]


def holds(levels: dict[str, Level], side: Side) -> bool:
    """Whether a cell's levels are among those of a side; a zipped factor is found by any of its keys."""
    alone = _alone(levels)
    return all(key in alone and _among(alone[key], levels_of(asked), key in levels) for key, asked in side.items())


def _among(level: Any, asked: list[Any], own: bool) -> bool:
    """Whether a level is asked for, by its text, too: that of one of several zipped keys, not its `own`, is a text.

    None is no text, since people call levels None, and leave others empty.
    """
    texts = {str(each) for each in asked if each is not None or not own}
    return level in asked or (level is not None and str(level) in texts)


def _alone(levels: dict[str, Level]) -> dict[str, Level]:
    """Levels with those of a zipped factor under each of its keys, too."""
    alone = dict(levels)
    for name, level in levels.items():
        members, values = name.split("+"), str(level).split("+")
        alone |= dict(zip(members, values, strict=False)) if len(members) == len(values) > 1 else {}
    return alone


def weighed(claim: Claim, cells: Sequence[Leveled]) -> list[dict[str, float]]:
    """Weights of each side's cells that make its mean, Σ w = 1; empty where the sides cannot be compared.

    With unnamed factors' levels u averaged equally: mean over u of the mean over the side's cells at u.  Sides of
    designs other than grids have cells at different u: only the u that all sides have count.  A fraction may have none
    in common, and needs none where each side has every level of every unnamed factor equally often.
    """
    named = {key for side in claim.sides for key in side}
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


def _grouped(side: list[str], levels: dict[str, dict[str, Level]], named: Collection[str]) -> dict[Unnamed, list[str]]:
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
