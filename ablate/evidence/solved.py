"""Tasks that a run solves or does not: the share of runs that do, with exact intervals of its differences.

Differences of shares are not normal, and of two clumps a t interval of few seeds says nothing.  Within a seed the
difference D of a contrast takes few values v₀ < … < v_K, which its weights alone decide, and
E[D] = v₀ + Σ (vⱼ − vⱼ₋₁)·P(D ≥ vⱼ).  Each P has Clopper & Pearson's bounds (1934), with the level split evenly among
them.  Of two cells these are the two discordant counts, E[D] = p₁₀ − p₀₁, of independent sides the two shares.  Where
there would be more than MOST values for each cell, E[D] = Σ w·p has the bounds of each cell's share p.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from ablate.config.claim_relations import plain_metric
from ablate.results.records import SOLVED

MOST = 4  # bounds a cell; each cell by itself takes one, and loses what seeds have in common


def is_solved(metric: str) -> bool:
    """Whether a metric is the share solved, on any split and at any length."""
    return plain_metric(metric).split("/")[-1] == SOLVED


def interval_kind(metrics: Iterable[str]) -> str:
    """What simultaneous intervals of effects by these metrics are."""
    exact = {is_solved(metric) for metric in metrics}
    if len(exact) > 1:
        return "Bonferroni-t, exact of shares of runs solved"
    return "Bonferroni, exact" if True in exact else "Bonferroni-t"


class Counted(NamedTuple):
    """A sum of independent groups, as counts: of each, its seeds, and (step, seeds at or above it) of each value.

    least   what the sum is at least
    looks   how often it is looked at, among which a level is shared
    """

    least: float
    groups: tuple[tuple[int, tuple[tuple[float, int], ...]], ...]
    looks: int


def counted(parts: Iterable[np.ndarray], weights: Iterable[Iterable[float]], looks: int) -> Counted:
    """What exact intervals are made of, from each group's values (seeds, cells) and the weights of its cells."""
    least, groups = 0.0, []
    for values, weight, levels in _bounded(parts, weights):
        least += levels[0]
        sums = values @ np.array(weight)
        # Halfway below each value, so that rounding decides nothing.
        steps = itertools.pairwise(levels)
        groups.append((len(sums), tuple((b - a, int((sums > (a + b) / 2).sum())) for a, b in steps)))
    return Counted(least, tuple(groups), looks)


def _bounded(
    parts: Iterable[np.ndarray], weights: Iterable[Iterable[float]]
) -> Iterator[tuple[np.ndarray, tuple[float, ...], tuple[float, ...]]]:
    """The complete seeds of each group with weights and values; cell by cell where uneven weights make too many."""
    for values, own in zip(parts, map(tuple, weights), strict=True):
        complete = values[~np.isnan(values).any(axis=1)]
        levels = _levels(own)
        alone = ((complete[:, [i]], (weight,), _levels((weight,))) for i, weight in enumerate(own))
        yield from [(complete, own, levels)] if levels else alone


@functools.cache
def _levels(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The values that a weighted sum of zeros and ones can have, rising; none where they are too many.

    Weights of a trend over uneven settings make 2^cells of them, which leave nothing of a level for each.
    """
    found = np.zeros(1)
    for weight in weights:
        found = np.unique(np.round(np.concatenate([found, found + weight]), 9))
        if len(found) > MOST * len(weights) + 1:
            return ()
    return tuple(found.tolist())


def exact_interval(found: Counted, alpha: float) -> tuple[float, float]:
    """The 1 − alpha interval of the sum; NaN where a group has no seed."""
    if not all(n for n, _ in found.groups):
        return math.nan, math.nan
    level = alpha / found.looks / 2 / sum(len(steps) for _, steps in found.groups)
    steps = [(step, count, n) for n, own in found.groups for step, count in own]
    low = sum(step * (1 - bound(n - count, n, level)) for step, count, n in steps)
    high = sum(step * bound(count, n, level) for step, count, n in steps)
    return found.least + low, found.least + high


def exact_p(found: Counted) -> float:
    """The least level at which the exact interval leaves out zero; 1 where none does."""
    return least_level(lambda alpha: np.prod(exact_interval(found, alpha)) > 0)


def least_level(decides: Callable[[float], object]) -> float:
    """The p-value of an interval: the least level at which it decides, by halving on a logarithmic scale; else 1."""
    low, high = math.log(1e-12), math.log(1 - 1e-9)
    if not decides(math.exp(high)):
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if decides(math.exp(middle)) else (middle, high)
    return math.exp(high)


@functools.cache
def bound(count: int, n: int, level: float) -> float:
    """The largest share of which count or fewer of n are seen with probability `level` (Clopper & Pearson 1934)."""
    return float(special.betainccinv(count + 1, n - count, level)) if count < n else 1.0
