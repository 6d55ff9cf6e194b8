"""The grammar of `mirror`: a paper's figure or table as data, which is drawn beside the study's own numbers."""

import dataclasses
import math
from collections.abc import Collection, Iterator
from typing import Any

from ablate.config.claims import Levels, Number, level_problems
from ablate.config.errors import Problem
from ablate.config.typed_json import Record, optional, parse, unread
from ablate.formatting import instead, is_number

EPOCH, LENGTHS = "epoch", "eval.lengths"
Factors = dict[str, list[Any]]
FORM = "write {source: PAPER AND TABLE, metric: BLEU, series: [{of: {norm: rms}, value: 26.8}]}"


class Series(Record):
    """One row or line of the paper: levels, and its value or its points [x, y]; neither if the paper prints none."""

    of: Levels
    value: Number | None = optional()
    points: list[tuple[Number, Number]] = optional(default=[])


class Mirror(Record):
    """A paper's figure or table: its numbers and its arrangement."""

    source: str  # the paper, the table or figure, and whether numbers were read off a plot
    metric: str  # what the paper measures, with its unit
    x: str | None = optional()  # a factor of numbers, epoch, or eval.lengths; without it there are rows of values
    trained: Number | None = optional()  # the paper's epochs, or the length that it trains at
    panels: str | None = optional()  # the factor with a panel for each level
    at: Levels = optional(default={})  # levels of factors that no series names, else the reference's or the first
    series: list[Series]  # in the paper's order


def read_mirror(given: Any, factors: Factors, settings: Collection[str]) -> tuple[Mirror | None, list[Problem]]:
    """The mirror of a study with these factors and settings, and all problems."""
    if given is None:
        return None, []
    try:
        mirror = parse(Mirror, given)
    except ValueError as error:
        return None, [Problem("mirror", f"{error}; {FORM}")]
    return mirror, [Problem("mirror", message) for message in _problems(mirror, factors, settings)]


def _problems(mirror: Mirror, factors: Factors, settings: Collection[str]) -> Iterator[str]:
    known = [field.name for kind in (Mirror, Series) for field in dataclasses.fields(kind) if field.name != "unread"]
    yield from (f"no such key: {key}; {instead(key.rpartition('.')[2], known)}" for key in unread(mirror))
    yield from (f"{name}: is empty; {FORM}" for name in ("source", "metric") if not getattr(mirror, name).strip())
    numeric = [name for name, levels in factors.items() if len(levels) > 1 and all(map(is_number, levels))]
    if mirror.x not in (None, EPOCH, LENGTHS, *numeric):
        yield f"x: {mirror.x} is no factor of numbers; {instead(str(mirror.x), [*numeric, EPOCH, LENGTHS])}"
    if mirror.x == LENGTHS and LENGTHS not in settings:
        yield f"x: nothing is tested at other lengths; write {LENGTHS} in the study, too"
    scaled, trained = mirror.x in (EPOCH, LENGTHS), mirror.trained
    if (trained is None or not 0 < trained < math.inf) if scaled else trained is not None:
        yield f"trained: must be the paper's training, > 0, with x: {EPOCH} or x: {LENGTHS}, and be left out otherwise"
    yield from level_problems(mirror.at, factors, "at") if mirror.at else ()
    if mirror.panels not in (None, *factors):
        yield f"panels: {mirror.panels} is not a factor of this study; {instead(str(mirror.panels), factors)}"
    yield from () if mirror.series else ["series: has none; write at least one"]
    for place, series in enumerate(mirror.series):
        yield from level_problems(series.of, factors, "series")
        if mirror.panels in factors and mirror.panels not in series.of:
            yield f"panels: {mirror.panels} has no level in {series.of}; write one in every series"
        if series.of in [other.of for other in mirror.series[:place]]:
            yield f"series: {series.of} is given twice; write it once"
        if series.value is not None if mirror.x else series.points:
            yield "series: write points: [[x, y], ...] with x, and value: NUMBER without"
        if not all(abs(number) < 1e300 for point in [*series.points, [series.value or 0]] for number in point):
            yield f"series: {series.of} has a number that is not finite, or too large"
