"""Exact intervals and tests for counts of runs: of those that solve a task which is solved or not, and that diverge.

Differences of shares of solved runs are not normal, and with two clumps a t interval from few seeds is not valid.
Within a seed the difference D of a contrast takes few values v₀ < … < v_K, which depend on its weights only, and
E[D] = v₀ + Σ (vⱼ − vⱼ₋₁)·P(D ≥ vⱼ).  Each P has Clopper & Pearson's bounds (1934), with the level split evenly among
them.  For two cells these are the two discordant counts, E[D] = p₁₀ − p₀₁; for independent sides the two shares.  With
more than MOST values per cell, E[D] = Σ w·p is bounded through each cell's share p instead.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
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
    for values, own in zip(parts, map(tuple, weights), strict=True):
        complete = values[~np.isnan(values).any(axis=1)]
        alone = ((complete[:, [i]], (weight,)) for i, weight in enumerate(own))  # if there are too many values
        for some, weight in [(complete, own)] if _levels(own) else alone:
            levels, sums = _levels(weight), some @ np.array(weight)
            least += levels[0]
            # Thresholds lie halfway between values, so that rounding has no influence.
            steps = itertools.pairwise(levels)
            groups.append((len(sums), tuple((b - a, int((sums > (a + b) / 2).sum())) for a, b in steps)))
    return Counted(least, tuple(groups), looks)


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


def bound(count: int, n: int, level: float) -> float:
    """The largest share p with P(at most `count` of n) = `level`: the upper bound of Clopper & Pearson (1934)."""
    return float(special.betainccinv(count + 1, n - count, level)) if count < n else 1.0


def sign_flip_p(differences: Iterable[int]) -> float:
    """P(|Σ ±dₛ| >= |Σ dₛ|) over all signs: the exact test of within-seed differences; for single cells McNemar's.
    Under the null hypothesis the two sides of a seed are exchangeable.  NaN without a seed."""
    given = list(differences)
    if not given:
        return math.nan
    chances = _sums([(difference, 0.5), (-difference, 0.5)] for difference in given)
    return min(1.0, math.fsum(chance for total, chance in chances.items() if abs(total) >= abs(sum(given))))


def _sums(steps: Iterable[list[tuple[int, float]]]) -> dict[int, float]:
    """The probability of each sum of independent steps, given the values of each step with their probabilities."""
    chances = {0: 1.0}
    for values in steps:
        after: dict[int, float] = {}
        for value, chance in values:
            for total, before in chances.items():
                after[total + value] = after.get(total + value, 0.0) + before * chance
        chances = after
    return chances


def hypergeometric_p(one: np.ndarray, other: np.ndarray, m: int, n: int) -> float:
    """Twice the smaller tail of Σ (shareₛ of m cells − shareₛ of n cells), at most 1; arguments are counts per seed.

    Sides of unequal size are not exchangeable, but the cells of a seed are: the number of its diverged runs on either
    side is hypergeometric (Mantel & Haenszel 1959).  NaN without a seed.
    """
    if not len(one):
        return math.nan

    def of_seed(lost: int) -> list[tuple[int, float]]:
        counts, ways = range(max(0, lost - n), min(m, lost) + 1), math.comb(m + n, lost)
        return [(k * n - (lost - k) * m, math.comb(m, k) * math.comb(n, lost - k) / ways) for k in counts]

    chances = _sums(map(of_seed, map(int, one + other)))
    found = int(np.sum(one)) * n - int(np.sum(other)) * m
    tails = (math.fsum(p for total, p in chances.items() if (total - found) * sign >= 0) for sign in (1, -1))
    return min(1.0, 2 * min(tails))


def permutation_p(one: list[int], other: list[int]) -> float:
    """P(the sum of len(one) of all values is as far from its mean as that of `one`); with values 0 and 1 Fisher's
    test.  Whole seeds are exchanged, so runs of one seed need not be independent.  NaN where a side has no seed."""
    if not one or not other:
        return math.nan
    take, values = len(one), [*one, *other]
    final = _ways(tuple(sorted(values)), take)
    far = abs(sum(one) * len(values) - take * sum(values))  # integers, so that ties are exact
    extreme = sum(ways for total, ways in final.items() if abs(total * len(values) - take * sum(values)) >= far)
    return extreme / sum(final.values())


def _ways(values: tuple[int, ...], take: int) -> dict[int, int]:
    """The number of ways in which `take` of the values, none below 0, add up to each sum."""
    whole = np.int64 if math.comb(len(values), min(take, len(values) // 2)) < 2**62 else object  # unbounded
    ways = np.zeros((take + 1, sum(values) + 1), dtype=whole)  # by number taken, and sum
    ways[0, 0] = 1
    for value in values:
        ways[1:, value:] = ways[1:, value:] + ways[:-1, : ways.shape[1] - value]
    return {int(total): int(ways[take, total]) for total in np.flatnonzero(ways[take])}
