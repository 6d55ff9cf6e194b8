"""Designs: which combinations of levels are cells, and what each design can and cannot estimate.  Needs no torch."""

import itertools
import math
from collections.abc import Callable, Sequence

RUNG = "rung"  # the factor of design=ladder
Indices = tuple[int, ...]  # the index of its level of each factor, in the order of the factors


def size(design: str, counts: Sequence[int]) -> int:
    """An upper bound of a design's number of cells, given the number of levels of each factor."""
    if design == "ladder":
        *others, rungs = counts
        return rungs * (1 + sum(others) - len(others))
    if design == "grid":
        return math.prod(counts)
    return 1 + sum(counts)


def grid(counts: Sequence[int], reference: Indices) -> list[Indices]:
    """Every combination; the last factor varies fastest."""
    return list(itertools.product(*(range(count) for count in counts)))


def single_changes(counts: Sequence[int], reference: Indices) -> list[Indices]:
    """The reference, then each other level of each factor with the reference's levels of all others."""
    cells = [reference]
    for i, count in enumerate(counts):
        for level in range(count):
            if level != reference[i]:
                cells.append((*reference[:i], level, *reference[i + 1 :]))
    return cells


def cumulative(counts: Sequence[int], reference: Indices) -> list[Indices]:
    """From the first values to the last, one change after another, in the given order."""
    cells: list[Indices] = [(0,) * len(counts)]
    for i, count in enumerate(counts):
        for level in range(1, count):
            before = cells[-1]
            cells.append((*before[:i], level, *before[i + 1 :]))
    return cells


def ladder(counts: Sequence[int], reference: Indices) -> list[Indices]:
    """On every rung, the levels of the last factor, the reference and each change of one other factor."""
    *others, rungs = counts
    changes = single_changes(others, reference[:-1])
    return [(*change, rung) for rung in range(rungs) for change in changes]


# The cells of each design for the number of levels of each factor, and the reference's level of each factor.
DESIGNS: dict[str, Callable[[Sequence[int], Indices], list[Indices]]] = {
    "grid": grid,
    "one_at_a_time": single_changes,
    "leave_one_out": single_changes,  # of a reference with each factor's last value
    "cumulative": cumulative,
    "ladder": ladder,
}
ONE_FACTOR = "each configuration is the reference with one factor"
NOTES = {  # what a design cannot estimate
    "one_at_a_time": f"one at a time: {ONE_FACTOR} changed; interactions are not measured",
    "leave_one_out": f"leave one out: {ONE_FACTOR} reverted; interactions are not measured",
    "cumulative": (
        "cumulative: each step is compared with the one before it, so its effect depends on the order of the steps"
    ),
    "ladder": "ladder: on each rung, the reference and each change of one factor; interactions are not measured",
}
