"""The grammar of `mirror`: a paper's figure or table as data, which is drawn beside the study's own numbers."""

from collections.abc import Iterator
from typing import Any

from ablate.config.claims import Levels, Number, level_problems
from ablate.config.errors import Problem
from ablate.config.typed_json import Record, optional, parse, refuse_unknown_keys
from ablate.formatting import instead, is_number

EPOCH = "epoch"
LENGTHS = "eval.lengths"
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
    at: Levels = optional(default={})  # levels of factors that no series names, else the reference's or the first
    series: list[Series]  # in the paper's order


def read_mirror(content: Any, factors: Factors, problems: list[Problem]) -> Mirror | None:
    """The mirror of a study with these factors; what is wrong with it is added to `problems`."""
    if content is None:
        return None
    try:
        mirror = parse(Mirror, content)
        refuse_unknown_keys(Mirror, content)
        for series in content["series"]:
            refuse_unknown_keys(Series, series)
    except ValueError as error:
        problems.append(Problem("mirror", f"{error}; {FORM}"))
        return None
    problems += [Problem("mirror", message) for message in mirror_problems(mirror, factors)]
    return mirror


def mirror_problems(mirror: Mirror, factors: Factors) -> Iterator[str]:
    """What is wrong with a mirror of a study with these factors."""
    axes = [name for name, levels in factors.items() if len(levels) > 1 and all(map(is_number, levels))]
    axes += [EPOCH, LENGTHS]
    if mirror.x is not None and mirror.x not in axes:
        yield f"x: {mirror.x} is no factor of numbers; {instead(mirror.x, axes)}"
    if (mirror.x in (EPOCH, LENGTHS)) != bool(mirror.trained and mirror.trained > 0):
        yield f"trained: must be the paper's training, > 0, with x: {EPOCH} or x: {LENGTHS}, and be left out otherwise"
    yield from (f"at: {message}" for message in level_problems(mirror.at, factors))
    for series in mirror.series:
        yield from (f"series: {message}" for message in level_problems(series.of, factors))
        if (series.value is not None) if mirror.x else series.points:
            yield "series: write points: [[x, y], ...] with x, and value: NUMBER without"
