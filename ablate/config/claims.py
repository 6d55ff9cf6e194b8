"""Claims, such as {less: [{ffn: swiglu}, {ffn: [mlp, gelu]}]}: their grammar, and the weights of each side's cells."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ablate.config.choices import unzipped
from ablate.config.designs import RUNG
from ablate.config.errors import Problem
from ablate.config.key_checks import fraction_of
from ablate.config.typed_json import Record, optional, parse, refuse_unknown_keys
from ablate.formatting import SPEED, grouped, instead, listed

BOUNDED = ("equivalent", "not_greater", "not_less")  # bound a difference by a margin, which is required
DIFFERENCES = ("less", "greater", *BOUNDED)  # compare two means
RELATIONS = (*DIFFERENCES, "diverges_more", "rank_correlates", "multiplier")
# Metrics that not every study has, and what they need.  Training steps cannot be converted into them.
NEEDS = {**dict.fromkeys(SPEED, "timing=isolated"), "test/solved": "a task with solved_at in its YAML"}

# Statistics with which BatchNorm and similar norms are evaluated in addition to running ones; each gives a loss.
STATISTICS = ("recalibrated", "batch")

FORM = "write {less: [{ffn: swiglu}, {ffn: [mlp, gelu]}], metric: test/loss}"

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
    def relation(self) -> str:
        """The relation that it states."""
        return next(relation for relation in RELATIONS if getattr(self, relation) is not None)

    @property
    def sides(self) -> list[Side]:
        """The sides that it compares; for `rank_correlates` one per level."""
        if self.rank_correlates is None:
            return list(getattr(self, self.relation))
        [(factor, levels)] = self.rank_correlates[0].items()
        return [{factor: level} for level in levels_of(levels)]

    @property
    def compared_factors(self) -> set[str]:
        """The factors that its sides name."""
        return {factor for side in self.sides for factor in side}

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
        return [self.at, self.at | self.than_at] if self.than_at else [self.at]

    @property
    def metrics(self) -> list[str]:
        """The metrics that it names: none, one, or one for each side."""
        return [self.metric] if isinstance(self.metric, str) else list(self.metric or ())

    @property
    def bound(self) -> tuple[float, int]:
        """The number that a multiplier is claimed to lie above (1) or below (−1)."""
        return (float(self.above), 1) if self.above is not None else (float(self.below or 0), -1)

    @property
    def published(self) -> list[Number]:
        """The published numbers of `rank_correlates`."""
        return self.rank_correlates[1] if self.rank_correlates else []


class Criterion(Record):
    """A study's criterion of replication: the claims that must all be supported."""

    of: list[str]


class Leveled(Record):
    """What claims use of a cell: its names, its levels, and whether it is the reference."""

    id: str
    name: str  # the folder of its runs
    label: str
    levels: Levels
    reference: bool


def plain_metric(metric: str) -> str:
    """A metric's name without length and statistics: test/loss of test/loss@512 and of test/loss_batch."""
    name = metric.partition("@")[0]
    for statistics in STATISTICS:
        name = name.removesuffix(f"_{statistics}")
    return name


def levels_of(wanted: Any) -> list[Any]:
    """A factor's levels in a side as a list, though a single level may be given alone."""
    return wanted if isinstance(wanted, list) else [wanted]


def level(value: Any) -> Any:
    """A value as a level of a factor."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def spell(value: Any) -> str:
    """A level as it is typed on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# Which cells a claim compares


def sides_of(claim: Claim, cells: Sequence[Leveled]) -> list[set[str]]:
    """The ids of the cells on each side of a claim; for `rank_correlates` those of each level.  With `than_at` they are
    four: both sides at the first place, then both at the other."""
    sides = []
    for at in claim.places:
        for side in claim.sides:
            sides.append({cell.id for cell in cells if holds(cell.levels, side | at)})
    return sides


def holds(levels: dict[str, Level], side: Side) -> bool:
    """Whether a cell's levels match a side; a zipped factor can be named by any of its keys."""
    by_key = dict(levels)
    for factor, level in levels.items():
        by_key |= unzipped(factor, level)
    for key, wanted in side.items():
        if key not in by_key:
            return False
        levels_wanted = levels_of(wanted)
        texts = [spell(level) for level in levels_wanted]  # as levels of zipped keys are
        if by_key[key] not in levels_wanted and spell(by_key[key]) not in texts:
            return False
    return True


def weighed(claim: Claim, cells: Sequence[Leveled]) -> list[dict[str, float]]:
    """Weights of the cells in each side's mean, Σ w = 1; empty if the sides cannot be compared.

    Let u be the levels of the factors that no side names.  A side's mean is the mean over u of the mean over its cells
    at u, of the u that all sides have.  With `than_at`, the difference there is subtracted, so that its side two is
    part of side one, and Σ w = 2.
    """
    named = claim.compared_factors | set(claim.than_at)
    groups = []
    for side in sides_of(claim, cells):
        groups.append(grouped((unnamed_levels(cell, named), cell.id) for cell in cells if cell.id in side))
    common = set(groups[0]).intersection(*groups[1:])
    weights = []
    for group in groups:
        weights_of_side: dict[str, float] = {}
        for levels, ids in group.items():
            if levels in common:
                weights_of_side |= dict.fromkeys(ids, 1 / len(common) / len(ids))
        weights.append(weights_of_side)
    return [weights[0] | weights[3], weights[1] | weights[2]] if claim.than_at else weights


def unnamed_levels(cell: Leveled, named: Collection[str]) -> tuple[tuple[str, str], ...]:
    """A cell's levels of the factors that no side names; a zipped factor is named by any of its keys."""
    levels = []
    for factor, level in cell.levels.items():
        if factor not in named and not any(key in named for key in factor.split("+")):
            levels.append((factor, repr(level)))
    return tuple(levels)


# The claims of a study file


def read_claims(claims: Any, factors: dict[str, list[Any]]) -> tuple[dict[str, Claim], list[Problem]]:
    """The valid claims over these factors, and the problems of all others."""
    if not isinstance(claims, dict):
        return {}, [Problem("claims", "must be a mapping; write claims: {NAME: {less: [SIDE, SIDE]}}")]
    valid = {}
    problems = []
    for name, content in claims.items():
        try:
            claim = read_claim(content, factors)
            messages = list(claim_problems(claim, factors))
        except ValueError as error:
            messages = [str(error)]
        if not messages:
            valid[name] = claim
        problems += [Problem(f"claims.{name}", message) for message in messages]
    return valid, problems


def read_claim(content: Any, factors: dict[str, list[Any]]) -> Claim:
    """A claim whose entries have the right types.  Raises ValueError."""
    if not isinstance(content, dict):
        raise ValueError(f"{content!r} must be a mapping; {FORM}")
    if isinstance(content.get("at"), int):
        content = content | {"at": {RUNG: content["at"]}}  # at: 4 is a rung
    refuse_unknown_keys(Claim, content)
    try:
        claim = parse(Claim, without_plus(content))
    except ValueError as error:
        raise ValueError(f"{error}; {FORM}") from None
    stated = [relation for relation in RELATIONS if getattr(claim, relation) is not None]
    if len(stated) != 1:
        raise ValueError(f"has {' and '.join(stated) or 'no relation'}; write one of {', '.join(RELATIONS)}")
    return claim


def without_plus(content: Any) -> Any:
    """A claim whose factors may be written as the file has them: +attention.qk_norm is attention.qk_norm."""
    if isinstance(content, list):
        return [without_plus(item) for item in content]
    if not isinstance(content, dict):
        return content
    return {str(key).lstrip("+"): without_plus(value) for key, value in content.items()}


def claim_problems(claim: Claim, factors: dict[str, list[Any]]) -> Iterator[str]:
    """What is wrong with a claim over these factors, whichever configurations there are."""
    relation = claim.relation
    sides: dict[str, Any] = {relation: getattr(claim, relation), "at": [claim.at], "than_at": [claim.than_at]}
    if claim.rank_correlates:
        sides[relation] = claim.rank_correlates[:1]
    for name, levels_of_sides in sides.items():
        for levels in levels_of_sides:
            yield from (f"{name}: {message}" for message in level_problems(levels, factors))
    if claim.rank_correlates:
        [*levels] = claim.rank_correlates[0].values()
        if len(levels) != 1 or len(levels_of(levels[0])) != len(claim.published) or len(claim.published) < 3:
            yield f"{relation}: takes one factor's levels, at least 3, and as many published numbers"
    yield from margin_problems(claim)
    yield from bound_problems(claim, factors)
    if claim.metrics and relation == "diverges_more":
        yield "metric: diverges_more counts runs that diverge; leave it out"
    is_of_two_differences = len(set(claim.metrics)) > 1 or claim.than_at
    if (is_of_two_differences and relation not in DIFFERENCES) or (len(claim.metrics) > 1 and claim.than_at):
        yield f"than_at, or else two metrics, go with {listed(DIFFERENCES)}"


def level_problems(side: Levels | Side, factors: dict[str, list[Any]]) -> Iterator[str]:
    """What is wrong with levels of these factors, such as {ffn: swiglu}."""
    for key, wanted in side.items():
        if key not in factors:
            yield f"{key} is not a factor of this study; {instead(str(key), factors)}"
            continue
        for level in levels_of(wanted):
            if level not in factors[key]:
                text = level if isinstance(level, str) and "(" not in level else ""  # no spelling hints for numbers
                yield f"{key} has no level {level}; {instead(text, map(str, factors[key]))}"


def margin_problems(claim: Claim) -> Iterator[str]:
    """What is wrong with the margin of a claim."""
    relation = claim.relation
    margin = claim.margin
    if margin is None:
        if relation in BOUNDED:
            yield f"{relation} needs a margin, the largest difference that does not matter: margin: 0.01"
    elif relation not in DIFFERENCES:
        yield f"margin: {relation} takes none; it goes with {listed(DIFFERENCES)}"
    elif isinstance(margin, str):
        if not fraction_of(margin) or relation != "equivalent" or len(claim.metrics) > 1 or claim.than_at:
            yield f"margin: {margin}: write a number above 0, or for equivalent, of one metric, a share such as 2 %"
    elif not margin > 0:
        yield f"margin: {margin} must be above 0"


def bound_problems(claim: Claim, factors: dict[str, list[Any]]) -> Iterator[str]:
    """What is wrong with the bound of a multiplier."""
    bounds = [bound for bound in (claim.above, claim.below) if bound is not None]
    if not claim.multiplier:
        if bounds:
            yield "above and below belong to multiplier; write margin"
    elif RUNG not in factors:
        yield "multiplier: needs rungs; write design: ladder"
    elif len(bounds) != 1 or not bounds[0] > 0:
        yield "multiplier: needs one bound above 0, above: 1.1 or below: 1.1"


def read_criterion(content: Any, claims: Iterable[object], problems: list[Problem]) -> Criterion | None:
    """A study file's criterion of replication over these claims; what is wrong with it is added to `problems`."""
    if content is None:
        return None
    if not isinstance(content, list) or not content:
        message = "must list the claims that must all be supported; write [CLAIM, CLAIM]"
        problems.append(Problem("replicated", message))
        return None
    names = [str(name) for name in claims]
    for name in map(str, content):
        if name not in names:
            problems.append(Problem("replicated", f"no such claim: {name}; {instead(name, names)}"))
    return Criterion(of=list(dict.fromkeys(map(str, content))))


# Claims about the metrics and the cells of a planned study


def metric_problems(
    claims: dict[str, Claim], tasks: list[dict[str, str]], lengths: list[int], timed: bool = False
) -> list[Problem]:
    """Problems of claims about metrics that no run has: of these tasks, at these lengths, and of speed if `timed`."""
    measured = {f"test/{name}" for metrics in tasks for name in metrics}
    if "test/loss" in measured:
        measured |= {"test/bpb", *(f"test/loss_{statistics}" for statistics in STATISTICS)}
    if timed:
        measured |= SPEED.keys()
    problems = []
    for name, claim in claims.items():
        messages = [metric_problem(claim, metric, measured, lengths) for metric in claim.metrics]
        if not any(messages) and len({plain_metric(metric) for metric in claim.metrics}) > 1:
            why = "are not one metric at two lengths or of two statistics, and have no difference"
            messages.append(f"metric: {' and '.join(claim.metrics)} {why}")
        problems += [Problem(f"claims.{name}", message) for message in messages if message]
    return problems


def metric_problem(claim: Claim, metric: str, measured: set[str], lengths: list[int]) -> str | None:
    """Why a claim cannot be about a metric, if so."""
    name, _, length = metric.partition("@")
    if name in NEEDS and isinstance(claim.margin, str):
        return f"margin: {claim.margin} is a share of the training steps, and {name} cannot be; write a number"
    if name in NEEDS and name not in measured:
        return f"metric: {metric} needs {NEEDS[name]}"
    if name not in measured:
        return f"no such metric: {metric}; {instead(name, sorted(measured))}"
    if length and length not in map(str, lengths):
        return f"metric: nothing is tested at length {length}; add it to eval.lengths"
    return None


def applicable(
    claims: dict[str, Claim], cells: Sequence[Leveled], tasks: Sequence[str] = ()
) -> tuple[dict[str, Claim], list[Problem]]:
    """The claims that these cells can test, and why not the others; if known, the task of each cell."""
    task_of = {cell.id: task for cell, task in zip(cells, tasks, strict=False)}
    tested: dict[str, Claim] = {}
    problems = []
    for name, claim in claims.items():
        message = (
            missing_level(claim, cells)
            or cell_on_both_sides(claim, cells)
            or task_problem(claim, cells, task_of)
            or weights_problem(claim, cells)
        )
        if message:
            problems.append(Problem(f"claims.{name}", message))
        else:
            tested[name] = claim
    return tested, problems


def missing_level(claim: Claim, cells: Sequence[Leveled]) -> str | None:
    """Whether no cell has a level of a claim together with the other levels of its side."""
    for at in claim.places:
        for side in claim.sides:
            for key, wanted in (side | at).items():
                for level in levels_of(wanted):
                    levels = side | at | {key: level}
                    if not any(holds(cell.levels, levels) for cell in cells):
                        names = [f"{name}={spell(value)}" for name, value in levels.items()]
                        return f"{', '.join(names)} has no configuration in this study"
    return None


def cell_on_both_sides(claim: Claim, cells: Sequence[Leveled]) -> str | None:
    """Whether a cell is on two sides; with two metrics both sides may be the same cells."""
    sides = sides_of(claim, cells)
    if len(claim.metrics) > 1 and sides[0] == sides[1]:
        return None
    for cell in cells:
        if sum(cell.id in side for side in sides) > 1:
            return f"both sides hold {cell.label}; fix more factors, or use `at`"
    return None


def task_problem(claim: Claim, cells: Sequence[Leveled], task_of: Mapping[str, str]) -> str | None:
    """Whether a claim's cells have several tasks."""
    tasks = {task_of.get(cell) for side in sides_of(claim, cells) for cell in side}
    if len(tasks) < 2 or claim.relation == "diverges_more":  # counts can always be compared
        return None
    why = f"its configurations have {len(tasks)} tasks, whose scores have no mean"
    return f"{why}; write a claim for each, as in at: {{data: copy}}"


def weights_problem(claim: Claim, cells: Sequence[Leveled]) -> str | None:
    """Whether the sides of a claim differ in more than it names; of a multiplier, whether they are not one change and
    its reference."""
    weights = weighed(claim, cells)
    if not all(weights):
        differ = "its sides have no levels of the other factors in common, so that these would be compared, too"
        return f"{differ}; name them on both sides, or use `at`"
    if RUNG in cells[0].levels and not any(RUNG in side for side in (claim.at, *claim.sides)):
        return f"would mix all rungs, and three learning rates of one; write at: {{{RUNG}: 4}}, say"
    if claim.multiplier:
        references = {cell.id for cell in cells if cell.reference}
        change, reference = weights
        is_one_change = len(change) == 1 and not references & set(change)
        if not is_one_change or len(reference) != 1 or not references.issuperset(reference):
            return "multiplier: side one must be one change, and side two its reference"
    return None
