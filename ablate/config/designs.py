"""Designs: which combinations of levels are cells, and what each design can and cannot estimate.  Needs no torch."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

RUNG = "rung"  # the factor of design=ladder
Cell = tuple[int, ...]  # the index of its level of each factor, in the order of the factors


class Arranged(NamedTuple):
    """The cells of a design, and notes on it."""

    cells: list[Cell]
    notes: list[str]


def size(design: str, counts: dict[str, int]) -> int:
    """An upper bound of a design's number of cells."""
    if design == "ladder":
        *others, rungs = counts.values()
        return rungs * (1 + sum(others) - len(others))
    if design == "grid":
        return math.prod(counts.values())
    return 1 + sum(counts.values())


def grid(counts: dict[str, int], base: Cell) -> Arranged:
    """Every combination; the last factor varies fastest."""
    return Arranged(list(itertools.product(*map(range, counts.values()))), [])


def _changes(name: str, change: str, counts: dict[str, int], base: Cell) -> Arranged:
    """The reference, then each other level of each factor with the reference's levels of all others."""
    found = [base]
    for place, count in enumerate(counts.values()):
        found += [(*base[:place], level, *base[place + 1 :]) for level in range(count) if level != base[place]]
    note = f"{name}: each configuration is the reference with one factor {change}; interactions are not measured"
    return Arranged(found, [note])


def cumulative(counts: dict[str, int], base: Cell) -> Arranged:
    """From the first values to the last, one change after another, in the given order."""
    found = [(0,) * len(counts)]
    for place, count in enumerate(counts.values()):
        found += [(*found[-1][:place], level, *found[-1][place + 1 :]) for level in range(1, count)]
    note = "cumulative: each step is compared with the one before it, so its effect depends on the order of the steps"
    return Arranged(found, [note])


def ladder(counts: dict[str, int], base: Cell) -> Arranged:
    """On every rung, the levels of the last factor, the reference and each change of one other factor."""
    *others, rungs = counts.items()
    arms = _changes("", "", dict(others), base[:-1]).cells
    note = "ladder: on each rung, the reference and each change of one factor; interactions are not measured"
    return Arranged([(*arm, rung) for rung in range(rungs[1]) for arm in arms], [note])


# The cells of each design for numbers of levels by factor, and the reference's level of each factor.
DESIGNS: dict[str, Callable[[dict[str, int], Cell], Arranged]] = {
    "grid": grid,
    "one_at_a_time": partial(_changes, "one at a time", "changed"),
    "leave_one_out": partial(_changes, "leave one out", "reverted"),  # of a reference with each factor's last value
    "cumulative": cumulative,
    "ladder": ladder,
}
