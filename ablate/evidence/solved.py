"""Tasks that a run either solves or does not: exact intervals for differences of the share of runs that solve them.

Differences of shares are not normal, and with two clumps a t interval from few seeds is not valid.  Within a seed the
difference D of a contrast takes few values v₀ < … < v_K, which depend on its weights only, and
E[D] = v₀ + Σ (vⱼ − vⱼ₋₁)·P(D ≥ vⱼ).  Each P has Clopper & Pearson's bounds (1934), with the level split evenly among
them.  For two cells these are the two discordant counts, E[D] = p₁₀ − p₀₁; for independent sides the two shares.  With
more than MOST values per cell, E[D] = Σ w·p is bounded through each cell's share p instead.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from ablate.config.claims import plain_metric
from ablate.results.records import SOLVED

MOST = 4  # bounds per cell; bounding cells separately takes one each, but ignores the pairing by seed


def is_solved(metric: str) -> bool:
    """Whether a metric is the share solved, on any split and at any length."""
    return plain_metric(metric).split("/")[-1] == SOLVED


def interval_kind(metrics: Iterable[str]) -> str:
    """The kind of simultaneous intervals that effects by these metrics have."""
    exact = {is_solved(metric) for metric in metrics}
    if len(exact) > 1:
        return "Bonferroni-t, exact of shares of runs solved"
    return "Bonferroni, exact" if True in exact else "Bonferroni-t"


class Counted(NamedTuple):
    """A sum over independent groups, each as its number of seeds and (step, seeds at or above it) for each value."""

    least: float  # the smallest possible sum
    groups: tuple[tuple[int, tuple[tuple[float, int], ...]], ...]
    looks: int  # the number of looks among which a level is split


def counted(parts: Iterable[np.ndarray], weights: Iterable[Iterable[float]], looks: int) -> Counted:
    """The counts behind exact intervals, from each group's values (seeds, cells) and the weights of its cells."""
    least, groups = 0.0, []
    for values, weight, levels in _bounded(parts, weights):
        least += levels[0]
        sums = values @ np.array(weight)
        # Thresholds lie halfway between values, so that rounding has no influence.
        steps = itertools.pairwise(levels)
        groups.append((len(sums), tuple((b - a, int((sums > (a + b) / 2).sum())) for a, b in steps)))
    return Counted(least, tuple(groups), looks)


def _bounded(
    parts: Iterable[np.ndarray], weights: Iterable[Iterable[float]]
) -> Iterator[tuple[np.ndarray, tuple[float, ...], tuple[float, ...]]]:
    """The complete seeds of each group, its weights and possible values; cell by cell if there are too many values."""
    for values, own in zip(parts, map(tuple, weights), strict=True):
        complete = values[~np.isnan(values).any(axis=1)]
        levels = _levels(own)
        alone = ((complete[:, [i]], (weight,), _levels((weight,))) for i, weight in enumerate(own))
        yield from [(complete, own, levels)] if levels else alone


@functools.cache
def _levels(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The possible values of a weighted sum of zeros and ones, rising; empty if there are too many.  The weights of a
    trend over uneven settings give up to 2^cells values, too many to split a level among."""
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
    """The smallest level at which the exact interval excludes zero; 1 if none does."""
    return least_level(lambda alpha: np.prod(exact_interval(found, alpha)) > 0)


def least_level(decides: Callable[[float], object]) -> float:
    """The p-value of an interval: the smallest level at which it decides, by bisection in the logarithm; else 1."""
    low, high = math.log(1e-12), math.log(1 - 1e-9)
    if not decides(math.exp(high)):
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if decides(math.exp(middle)) else (middle, high)
    return math.exp(high)


@functools.cache
def bound(count: int, n: int, level: float) -> float:
    """The largest share p with P(at most `count` of n) = `level`: the upper bound of Clopper & Pearson (1934)."""
    return float(special.betainccinv(count + 1, n - count, level)) if count < n else 1.0
