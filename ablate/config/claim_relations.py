"""Relations of claims: the cells on each side of a claim, and their weights in the side's mean."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ablate.config.depth import unzipped
from ablate.config.key_checks import fraction_of
from ablate.config.typed_json import Record, optional, record
from ablate.formatting import is_number

BOUNDED = ("equivalent", "not_greater", "not_less")  # bound a difference by a margin, which is required
DIFFERENCES = ("less", "greater", *BOUNDED)  # compare two means
RELATIONS = (*DIFFERENCES, "diverges_more", "rank_correlates")

# Statistics with which BatchNorm and similar norms are evaluated in addition to running ones; each gives a loss.
STATISTICS = ("recalibrated", "batch")

Number = int | float
Level = str | int | float | bool | None  # a level of a factor
Levels = dict[str, Level]  # one level of each factor
Side = dict[str, Level | list[Level]]  # one or several levels of some factors
Sides = tuple[Side, Side]


@record
class Claim(Record):
    """One relation between two sides, as in {less: [{ffn: swiglu}, {ffn: [mlp, gelu]}]}.

    rank_correlates  several levels of one factor, and the published number of each
    metric           one metric for both sides, or one for each side
    margin           in the metric's unit: the least difference for `less` and `greater`, the largest for `not_greater`
                     and `not_less`, the largest either way for `equivalent`, which also takes "2 %" of training steps
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
        """The relations that it states; exactly one in a valid claim."""
        return [relation for relation in RELATIONS if getattr(self, relation) is not None]

    @property
    def relation(self) -> str:
        """The only relation that it states."""
        (relation,) = self.relations
        return relation

    @property
    def sides(self) -> list[Side]:
        """The sides that it compares; for `rank_correlates` one per level."""
        if self.rank_correlates is None:
            return list(getattr(self, self.relation))
        ((factor, levels),) = self.rank_correlates[0].items()
        return [{factor: level} for level in levels_of(levels)]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it names: none, one, or one for each side."""
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    @property
    def flaw(self) -> str | None:
        """What makes it invalid in any study, as the end of a sentence; None if it is valid."""
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
        """The published numbers of `rank_correlates`."""
        return self.rank_correlates[1] if self.rank_correlates else []


@record
class Criterion(Record):
    """A study's criterion of replication: how many of these claims (all without `at_least`) must be supported."""

    of: list[str]
    at_least: int | None = optional()

    @property
    def needed(self) -> int:
        """The number of claims that must be supported."""
        return self.at_least or len(self.of)


def plain_metric(metric: str) -> str:
    """A metric's name without length and statistics."""
    plain = metric.partition("@")[0]
    return plain.partition("_")[0] if plain in {f"test/loss_{name}" for name in STATISTICS} else plain


class Leveled(Protocol):
    """What claims use of a cell: its identifier, its name for people, and its level of each factor."""

    @property
    def id(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def levels(self) -> dict[str, Level]: ...


def sides_of(claim: Claim, cells: Sequence[Leveled]) -> list[set[str]]:
    """The ids of the cells on each side of a claim; for `rank_correlates` those of each level."""
    return [{cell.id for cell in cells if holds(cell.levels, side | claim.at)} for side in claim.sides]


def levels_of(wanted: Any) -> list[Any]:
    """A factor's levels in a side as a list, though a single level may be given alone."""
    return wanted if isinstance(wanted, list) else [wanted]


def holds(levels: dict[str, Level], side: Side) -> bool:
    """Whether a cell's levels match a side; a zipped factor can be named by any of its keys."""
    alone = dict(levels)
    for name, level in levels.items():
        alone |= unzipped(name, level)
    for key, wanted in side.items():
        level, among = alone.get(key), levels_of(wanted)
        # Compared also as text, as levels of zipped keys are texts; but "None" can be the name of another level.
        texts = {str(each) for each in among if each is not None or key not in levels}
        if key not in alone or not (level in among or (level is not None and str(level) in texts)):
            return False
    return True


def weighed(claim: Claim, cells: Sequence[Leveled]) -> list[dict[str, float]]:
    """Weights of the cells in each side's mean, Σ w = 1; empty if the sides cannot be compared.

    Let u be the levels of the factors that no side names.  A side's mean is the mean over u of the mean over its cells
    at u.  In designs other than grids, only the u that all sides have count.  A fraction may have no common u; it can
    be compared if each level of each unnamed factor has the same share in all sides.
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
    """The cells of a side, grouped by their levels of the factors that no side names."""
    found: dict[Unnamed, list[str]] = {}
    for cell in side:
        rest = {name: repr(level) for name, level in levels[cell].items() if not {name, *name.split("+")} & {*named}}
        found.setdefault(tuple(rest.items()), []).append(cell)
    return found


def _balanced(groups: list[dict[Unnamed, list[str]]]) -> bool:
    """Whether each level of each unnamed factor has the same share of groups in every side."""
    shares = []
    for found in groups:
        pairs = [pair for key in found for pair in key]
        shares.append({pair: pairs.count(pair) / len(found) for pair in pairs})
    return all(share == shares[0] for share in shares)
