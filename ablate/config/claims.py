"""Claims, such as {less: [{ffn: swiglu}, {ffn: [mlp, gelu]}]}: their grammar, and the weights of each side's cells."""

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablate.config.choices import unzipped
from ablate.config.designs import RUNG
from ablate.config.errors import Problem
from ablate.config.key_checks import fraction_of
from ablate.config.typed_json import Record, optional, parse
from ablate.formatting import SPEED, grouped, instead, is_number, listed

BOUNDED = ("equivalent", "not_greater", "not_less")  # bound a difference by a margin, which is required
DIFFERENCES = ("less", "greater", *BOUNDED)  # compare two means
RELATIONS = (*DIFFERENCES, "diverges_more", "rank_correlates", "multiplier")
BOUNDS = ("above", "below")  # of a multiplier
MODIFIERS = ("metric", "margin", "at", "than_at", *BOUNDS)
NUMBER = "write a number"
SOLVED = "test/solved"
ONE_METRIC = f"{listed(DIFFERENCES)}, of one metric, and a margin in its unit"
NOT_IN_STEPS = (*SPEED, SOLVED)  # metrics that training steps cannot be converted into

# Statistics with which BatchNorm and similar norms are evaluated in addition to running ones; each gives a loss.
STATISTICS = ("recalibrated", "batch")

Number = int | float
Level = str | int | float | bool | None  # a level of a factor
Levels = dict[str, Level]  # one level of each factor
Side = dict[str, Level | list[Level]]  # one or several levels of some factors
Sides = tuple[Side, Side]


class Claim(Record):
    """One relation between two sides, which `evidence.claims` tests."""

    less: Sides | None = optional()
    greater: Sides | None = optional()
    equivalent: Sides | None = optional()
    not_greater: Sides | None = optional()
    not_less: Sides | None = optional()
    diverges_more: Sides | None = optional()
    rank_correlates: tuple[Side, list[Number]] | None = optional()  # levels of one factor, and a number for each
    multiplier: Sides | None = optional()  # in compute, of a change against the reference of design=ladder
    metric: str | tuple[str, str] | None = optional()
    margin: Number | str | None = optional()  # the least difference for less and greater, else the largest; or "2 %"
    at: Side = optional(default={})  # levels of factors that no side names
    than_at: Side = optional(default={})  # other levels of some of these, at which the difference is subtracted
    above: Number | None = optional()
    below: Number | None = optional()

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
    def compared(self) -> Side:
        """The levels of `at` that `than_at` has others of."""
        return {key: level for key, level in self.at.items() if key in self.than_at}

    @property
    def fixed(self) -> Side:
        """The other levels of `at`."""
        return {key: level for key, level in self.at.items() if key not in self.than_at}

    @property
    def places(self) -> list[Side]:
        """The levels at which its sides are compared; two if differences are."""
        return [self.at, self.at | self.than_at][: 1 + bool(self.than_at)]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it names: none, one, or one for each side."""
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    @property
    def flaw(self) -> str | None:
        """What makes it invalid in any study, as the end of a sentence; None if it is valid."""
        if len(self.relations) != 1:
            return f"states {' and '.join(self.relations) or 'none'} of {', '.join(RELATIONS)}"
        if (ranks := self.rank_correlates) and [len(levels_of(each)) for each in ranks[0].values()] != [len(ranks[1])]:
            return "does not rank one factor's levels by as many published numbers"
        if self.multiplier and not is_number(self.above if self.below is None else self.below):
            return "has no number above or below which the multiplier lies"
        if self.than_at and (self.relation not in DIFFERENCES or len(self.metrics) > 1 or fraction_of(self.margin)):
            return f"has than_at, which goes with {ONE_METRIC}"
        if self.relation not in DIFFERENCES:
            return "has two metrics, which only differences have" if len(self.metrics) > 1 else None
        share = self.equivalent and fraction_of(self.margin)
        if not (is_number(self.margin) or share or (self.margin is None and self.relation not in BOUNDED)):
            nor = " and no share of the steps" * bool(self.equivalent)
            return f"has the margin {self.margin!r}, which is no number{nor}"
        return None

    @property
    def bound(self) -> tuple[float, int]:
        """The number that a multiplier is claimed to lie above (1) or below (−1)."""
        return (float(self.above), 1) if self.above is not None else (float(self.below or 0), -1)

    @property
    def published(self) -> list[Number]:
        """The published numbers of `rank_correlates`."""
        return self.rank_correlates[1] if self.rank_correlates else []


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


class Leveled(Record):
    """What claims use of a cell: its names, its levels, and whether it is the reference."""

    id: str
    name: str  # the folder of its runs
    label: str
    levels: Levels
    reference: bool


def sides_of(claim: Claim, cells: Sequence[Leveled]) -> list[set[str]]:
    """The ids of the cells on each side of a claim; for `rank_correlates` those of each level.  With `than_at` they are
    four: both sides at the first place, then both at the other."""
    wanted = [side | at for at in claim.places for side in claim.sides]
    return [{cell.id for cell in cells if holds(cell.levels, levels)} for levels in wanted]


def levels_of(wanted: Any) -> list[Any]:
    """A factor's levels in a side as a list, though a single level may be given alone."""
    return wanted if isinstance(wanted, list) else [wanted]


def level(value: Any) -> Any:
    """A value as a level of a factor."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def spell(value: Any) -> str:
    """A level as it is typed on the command line."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def holds(levels: dict[str, Level], side: Side) -> bool:
    """Whether a cell's levels match a side; a zipped factor can be named by any of its keys."""
    alone = dict(levels)
    for name, level in levels.items():
        alone |= unzipped(name, level)
    for key, wanted in side.items():
        level, among = alone.get(key), levels_of(wanted)
        # Compared also as typed, as levels of zipped keys are texts; but "null" can be the name of another level.
        texts = {spell(each) for each in among if each is not None or key not in levels}
        if key not in alone or not (level in among or (level is not None and spell(level) in texts)):
            return False
    return True


def weighed(claim: Claim, cells: Sequence[Leveled]) -> list[dict[str, float]]:
    """Weights of the cells in each side's mean, Σ w = 1; empty if the sides cannot be compared.

    Let u be the levels of the factors that no side names.  A side's mean is the mean over u of the mean over its cells
    at u.  In designs other than grids, only the u that all sides have count.  A fraction may have no common u; it can
    be compared if each level of each unnamed factor has the same share in all sides, and with `at`, where interactions
    count, each pair of levels.  With `than_at`, the difference there is subtracted, so that its side two is part of
    side one, and Σ w = 2.
    """
    named = {key for side in (*claim.sides, claim.than_at) for key in side}
    by_id = {cell.id: cell.levels for cell in cells}
    groups = [_grouped([cell for cell in by_id if cell in side], by_id, named) for side in sides_of(claim, cells)]
    common = set(groups[0]).intersection(*groups[1:])
    if common:
        kept = [{key: found[key] for key in found if key in common} for found in groups]
    elif _balanced(groups, 1 + bool(claim.at)):
        kept = groups
    else:
        return [{} for _ in claim.sides]
    weights = [{cell: 1 / len(found) / len(same) for same in found.values() for cell in same} for found in kept]
    return [weights[0] | weights[3], weights[1] | weights[2]] if claim.than_at else weights


Unnamed = tuple[tuple[str, str], ...]


def _grouped(side: list[str], levels: dict[str, dict[str, Level]], named: Collection[str]) -> dict[Unnamed, list[str]]:
    """The cells of a side, grouped by their levels of the factors that no side names."""
    rest = {
        cell: {name: repr(level) for name, level in levels[cell].items() if not {name, *name.split("+")} & {*named}}
        for cell in side
    }
    return grouped((tuple(own.items()), cell) for cell, own in rest.items())


def _balanced(groups: list[dict[Unnamed, list[str]]], many: int) -> bool:
    """Whether `many` levels of unnamed factors have the same share of groups in every side, whichever they are."""
    shares = []
    for found in groups:
        sets = [each for key in found for each in itertools.combinations(key, many)]
        shares.append({each: sets.count(each) / len(found) for each in sets})
    return all(share == shares[0] for share in shares)


def read_claims(claims: Any, factors: dict[str, list[Any]], at: Any = None) -> tuple[dict[str, Claim], list[Problem]]:
    """The claims over these factors, and all problems; levels of `at` join each claim that does not compare them."""
    if not isinstance(claims, dict):
        return {}, [Problem("claims", "must be a mapping; write claims: {NAME: {less: [SIDE, SIDE]}}")]
    unfit = level_problems(at, factors, "at") if at is not None else ()
    found = [Problem("at", message.removeprefix("at: ")) for message in unfit]
    kept: dict[str, Claim] = {}
    for name, given in claims.items():
        of_rung = isinstance(given, dict) and "multiplier" in given and isinstance(given.get("at"), int)
        content = given | {"at": {RUNG: given["at"]}} if of_rung else given
        wrong = list(_claim(content, factors))
        try:
            claim = parse(Claim, content)
            own = {key for side in claim.sides for key in side} if not wrong else set()
            fixed = {} if wrong or found else {key: level for key, level in (at or {}).items() if key not in own}
            kept[name] = dataclasses.replace(claim, at=fixed | claim.at)
        except ValueError as error:
            wrong = wrong or [str(error)]
        found += [Problem(f"claims.{name}", message) for message in wrong]
    return kept, found


def read_criterion(given: Any, claims: Iterable[object]) -> tuple[Criterion | None, list[Problem]]:
    """Parse a file's criterion of replication over these claims; returns it and all problems."""
    if given is None:
        return None, []
    whole = given if isinstance(given, dict) else {"of": given}
    wrong = [Problem("replicated", message) for message in _criterion(whole, list(map(str, claims)))]
    return None if wrong else parse(Criterion, whole), wrong


def _criterion(given: dict[str, Any], claims: list[str]) -> Iterator[str]:
    of, least = given.get("of"), given.get("at_least", 1)
    for key in sorted(map(str, given.keys() - {"of", "at_least"})):
        yield f"no such key: {key}; {instead(key, ['of', 'at_least'])}"
    if not isinstance(of, list) or not of or not all(isinstance(name, str) for name in of):
        yield "must list claims; write [CLAIM, CLAIM], all to be supported, or {at_least: 2, of: [CLAIM, CLAIM, CLAIM]}"
        return
    for name in dict.fromkeys(of):
        if name not in claims:
            yield f"no such claim: {name}; {instead(name, claims)}"
        elif of.count(name) > 1:
            yield f"has {name} twice; write each claim once"
    if type(least) is not int or not 1 <= least <= len(of):
        yield f"at_least: {least} must be a number of its claims, 1 to {len(of)}"


def metric_problems(
    claims: dict[str, Claim], tasks: list[dict[str, str]], lengths: list[int], timed: bool = False
) -> list[Problem]:
    """Problems of claims about metrics that no run has: of these tasks, at these lengths, and of speed if `timed`."""
    known = {f"test/{name}" for metrics in tasks for name in metrics}
    known |= {"test/bpb", *(f"test/loss_{name}" for name in STATISTICS)} if "test/loss" in known else set()
    known |= SPEED.keys() if timed else set()
    found = []
    for name, claim in claims.items():
        wrong = [message for metric in claim.metrics for message in _metric_of(claim, metric, known, lengths, timed)]
        if not wrong and len({*map(plain_metric, claim.metrics)}) > 1:
            unlike = f"{' and '.join(claim.metrics)} are not one metric at two lengths or of two statistics"
            wrong = [f"metric: {unlike}, and have no difference"]
        found += [Problem(f"claims.{name}", message) for message in wrong]
    return found


def _metric_of(claim: Claim, metric: str, known: set[str], lengths: list[int], timed: bool) -> Iterator[str]:
    plain, _, length = metric.partition("@")
    if plain in SPEED and not timed:
        yield f"{plain} is compared of runs with timing=isolated alone; write it"
    elif plain in NOT_IN_STEPS and isinstance(claim.margin, str):
        yield f"margin: {claim.margin} is a share of the training steps, which is worth no {plain}; {NUMBER}"
    elif plain not in known or (length and plain in SPEED):
        more = "it needs a task with solved_at in its YAML" if plain == SOLVED else ""
        yield f"no such metric: {metric}; {more or instead(plain, sorted(known | SPEED.keys()))}"
    elif length and length not in map(str, lengths):
        yield f"metric: nothing is tested at length {length}; add it to eval.lengths"


def _claim(claim: Any, factors: dict[str, list[Any]]) -> Iterator[str]:
    if not isinstance(claim, dict):
        yield f"{claim!r} must be a mapping; write {{less: [SIDE, SIDE]}}"
        return
    for key in sorted(map(str, claim.keys() - {*RELATIONS, *MODIFIERS})):
        yield f"no such key: {key}; {instead(key, [*RELATIONS, *MODIFIERS])}"
    relations = [relation for relation in RELATIONS if relation in claim]
    if len(relations) != 1:
        many = f"has {' and '.join(relations)}; make two claims of them"
        yield many if relations else f"has no relation; write one of {', '.join(RELATIONS)}"
        return
    pair = isinstance(claim.get("metric"), list)
    yield from _sides(relations[0], claim[relations[0]], factors, pair)
    yield from _margin(relations[0], claim.get("margin"))
    yield from _bounds(claim, relations[0], factors)
    if "at" in claim:
        at, sides = claim["at"], claim[relations[0]]
        yield from level_problems(at, factors, "at")
        given = at if isinstance(at, dict) else {}
        compared = {key for side in sides if isinstance(side, dict) for key in side} if isinstance(sides, list) else ()
        yield from (f"at: {key} is what its sides compare; leave it out" for key in given if key in compared)
    if "than_at" in claim:
        yield from _than_at(claim, relations[0], factors)
    if "metric" in claim and relations[0] == "diverges_more":
        yield "metric: diverges_more counts runs that diverge; leave it out"
    elif pair:
        yield from _pair(relations[0], claim["metric"], claim.get("margin"))


def _than_at(claim: dict[str, Any], relation: str, factors: dict[str, list[Any]]) -> Iterator[str]:
    given, at = claim["than_at"], claim["at"] if isinstance(claim.get("at"), dict) else {}
    yield from level_problems(given, factors, "than_at")
    for key, level in given.items() if isinstance(given, dict) else ():
        if key in factors and key not in at:
            yield f"than_at: at has no {key}; write there the level that is compared with {level}"
        elif key in at and set(map(str, levels_of(at[key]))) & set(map(str, levels_of(level))):
            yield f"than_at: at has {key}={level}, too; write another level there"
    if relation not in DIFFERENCES or isinstance(claim.get("metric"), list) or isinstance(claim.get("margin"), str):
        yield f"than_at: goes with {ONE_METRIC}"


def _bounds(claim: dict[str, Any], relation: str, factors: dict[str, list[Any]]) -> Iterator[str]:
    given = [bound for bound in BOUNDS if bound in claim]
    if relation != "multiplier":
        yield from (f"{bound}: belongs to multiplier; write margin" for bound in given)
    elif RUNG not in factors:
        yield "multiplier: needs rungs; write design: ladder"
    elif len(given) != 1 or not is_number(bound := claim[given[0]]) or not 0 < bound < float("inf"):
        yield "multiplier: needs one bound above 0, above: 1.1 or below: 1.1"
    elif not isinstance(claim.get("at"), dict) or type(claim["at"].get(RUNG)) is not int:
        yield f"multiplier: is that of one rung; write at: {len(factors[RUNG]) - 2}, say"


def _pair(relation: str, metrics: list[Any], margin: Any) -> Iterator[str]:
    if relation not in DIFFERENCES:
        yield f"metric: {relation} ranks by one metric; two go with {listed(DIFFERENCES)}"
    elif len(metrics) != 2 or not all(isinstance(metric, str) for metric in metrics):
        yield f"metric: {metrics} must be one metric, or that of side one and that of side two: [ONE, OTHER]"
    elif metrics[0] == metrics[1]:
        yield f"metric: both are {metrics[0]}; write it once"
    elif fraction_of(margin) is not None:
        yield f"margin: {margin} is a share of the training steps, which is worth more of one metric; {NUMBER}"


def _sides(relation: str, sides: Any, factors: dict[str, list[Any]], pair: bool) -> Iterator[str]:
    if not isinstance(sides, list) or len(sides) != 2:
        yield f"{relation} compares two sides; write {relation}: [SIDE, SIDE]"
    elif relation == "rank_correlates":
        side, published = sides
        yield from level_problems(side, factors, relation)
        levels = next(iter(side.values()), None) if isinstance(side, dict) and len(side) == 1 else None
        numbers = isinstance(published, list) and all(type(number) in (int, float) for number in published)
        if not isinstance(levels, list) or not numbers or len(levels) != len(published) or len(levels) < 3:
            yield "rank_correlates takes one factor's levels, at least 3, and as many published numbers"
    else:
        for side in sides:
            yield from level_problems(side, factors, relation)
        if sides[0] == sides[1] and not pair:  # with two metrics both sides may be the same cells
            yield f"{relation}: both sides are {sides[0]}; write what differs"


def level_problems(side: Any, factors: dict[str, list[Any]], where: str) -> Iterator[str]:
    """What is wrong with levels of these factors, such as {ffn: swiglu}, at the place `where`."""
    if not isinstance(side, dict) or not side:
        yield f"{where}: {side!r} must map factors to levels; write {{ffn: swiglu}} or {{ffn: [mlp, gelu]}}"
        return
    for key, named in side.items():
        if key not in factors:
            yield f"{where}: {key} is not a factor of this study; {instead(str(key), factors)}"
            continue
        several = levels_of(named)
        for level in (level for i, level in enumerate(several) if level in several[:i]):
            yield f"{where}: {key} has {level} twice; write each level once"
        for level in several:
            if level not in factors[key]:
                text = level if isinstance(level, str) and "(" not in level else ""  # no spelling hints for numbers
                yield f"{where}: {key} has no level {level}; {instead(text, map(str, factors[key]))}"
        if named == []:
            yield f"{where}: {key} has no levels; write at least one"


def _margin(relation: str, margin: Any) -> Iterator[str]:
    equal = relation == "equivalent"
    number = fraction_of(margin) if equal and isinstance(margin, str) else margin
    if margin is None:
        if relation in BOUNDED:
            share = ", or margin: 2 %" * equal
            yield f"{relation} needs a margin, the largest difference that does not matter: margin: 0.01{share}"
    elif relation not in DIFFERENCES:
        yield f"margin: {relation} takes none; it goes with {listed(DIFFERENCES)}"
    elif not is_number(number) or not 0 < number < float("inf"):
        rest = f": by how much {relation.removeprefix('not_')} at {'most' if relation in BOUNDED else 'least'}"
        rest = ", or a share of the training steps as in 2 %" if equal else rest
        yield f"margin: {margin} must be a number above 0{rest}"


def applicable(
    claims: dict[str, Claim],
    cells: Sequence[Leveled],
    running: Sequence[bool] = (),
    tasks: Sequence[str] = (),
    metrics: Mapping[str, Iterable[str]] | None = None,
) -> tuple[dict[str, Claim], list[Problem]]:
    """The claims that these cells can test (all levels have cells, no cell is on two sides), and why not the others.
    For each cell, if known: whether its norms keep running statistics, and its task; for each task: its metrics."""
    without = {cell.id: cell.label for cell, keeps in zip(cells, running, strict=False) if not keeps}
    task_of = dict(zip((cell.id for cell in cells), tasks, strict=False))
    kept: dict[str, Claim] = {}
    problems, references = list[Problem](), {cell.id: cell.reference for cell in cells}
    for name, claim in claims.items():
        sides, absent = sides_of(claim, cells), _missing_level(claim, cells)
        same = len(claim.metrics) > 1 and sides[0] == sides[1]
        own = set[str]().union(*sides)
        both = set[str]().union(*(one & other for one, other in itertools.combinations(sides, 2) if not same))
        if absent:
            problems.append(Problem(f"claims.{name}", f"{absent} has no configuration in this study"))
        elif both:
            label = next(cell.label for cell in cells if cell.id in both)
            problems.append(Problem(f"claims.{name}", f"both sides hold {label}; fix more factors, or use `at`"))
        elif wrong := _unscored(claim, sides, without, {task_of.get(cell, "") for cell in own}, metrics or {}):
            problems.append(Problem(f"claims.{name}", wrong))
        elif not all(weights := weighed(claim, cells)):
            differ = "its sides have no levels of the other factors in common, so that these would be compared, too"
            problems.append(Problem(f"claims.{name}", f"{differ}; name them on both sides, or use `at`"))
        elif RUNG in cells[0].levels and not any(RUNG in side for side in (claim.at, *claim.sides)):
            several = "would mix all rungs, and three learning rates of one"
            problems.append(Problem(f"claims.{name}", f"{several}; write at: {{{RUNG}: 4}}, say"))
        elif claim.multiplier and [[references[cell] for cell in side] for side in weights] != [[False], [True]]:
            wrong = "multiplier: side one must be one change, and side two its reference"
            problems.append(Problem(f"claims.{name}", wrong))
        else:
            kept[name] = claim
    return kept, problems


def _unscored(
    claim: Claim, sides: list[set[str]], without: dict[str, str], tasks: set[str], metrics: Mapping[str, Iterable[str]]
) -> str | None:
    """Why the sides of a claim have no scores to compare; `without`: labels, by id, of cells without statistics."""
    special = {f"test/loss_{name}" for name in STATISTICS}
    for number, side in enumerate(sides):
        metric = claim.metrics[number % len(claim.metrics)] if claim.metrics else ""
        found = [label for cell, label in without.items() if cell in side]
        if metric.partition("@")[0] in special and found:
            return f"metric: {found[0]} has no {metric}, as its norms keep no running statistics"
    if claim.relation == "diverges_more":  # counts can always be compared
        return None
    if len(tasks) > 1:
        why = f"its configurations have {len(tasks)} tasks, whose scores have no mean"
        return f"{why}; write a claim for each, as in at: {{data: copy}}"
    scored = [f"test/{name}" for task in tasks for name in metrics.get(task, ())]
    others = {f"test/{name}" for names in metrics.values() for name in names}.difference(scored)
    lacking = next((name for name in claim.metrics if name.partition("@")[0] in others), None)
    return f"metric: the task of its configurations has no {lacking}; {instead('', scored)}" if lacking else None


def _missing_level(claim: Claim, cells: Sequence[Leveled]) -> str | None:
    """A level in a claim that no cell has together with the other levels of its side; None if there is none."""
    wanted = itertools.product((False, True), claim.places, claim.sides)  # levels that are nowhere come first
    for rest, at, side in wanted:
        whole = side | at
        for key, level in ((key, level) for key, named in whole.items() for level in levels_of(named)):
            if not any(holds(cell.levels, (whole if rest else {}) | {key: level}) for cell in cells):
                return f"{key}={level}"
    return None
