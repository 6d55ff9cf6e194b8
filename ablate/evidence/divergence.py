"""Divergence as a separate endpoint: whether the runs of one side diverge more often than those of the other."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ablate.evidence.estimates import groups
from ablate.results.study import Study


class Divergence(NamedTuple):
    """How often the runs of two sides diverged: for each side the diverged runs and those that ended (done or
    diverged); the seeds whose runs all ended, of the side with fewer if unpaired; the exact two-sided p."""

    counts: list[tuple[int, int]]
    n: int
    paired: bool
    p: float


def divergence_of(study: Study, level: Sequence[str], reference: Sequence[str]) -> Divergence:
    """The divergence of two sides, given as ids of cells."""
    ended = study.runs[study.runs["status"].isin(["done", "diverged"])]
    ended = ended[["seed", "cell"]].assign(lost=(ended["status"] == "diverged").astype(float))
    table = ended.pivot(index="seed", columns="cell", values="lost")
    sides = [table.reindex(columns=side) for side in (level, reference)]
    counts = [(int(side.sum().sum()), int(side.notna().sum().sum())) for side in sides]
    weights = {cell: 1 / len(level) for cell in level} | {cell: -1 / len(reference) for cell in reference}
    paired = groups(study.manifest, weights)[1]
    sums = [side.sum(axis=1, skipna=False) for side in sides]
    both = sums[0].notna() & sums[1].notna()
    one, other = (side[both if paired else side.notna()].to_numpy(int) for side in sums)
    p = exact_p(one, other, (len(level), len(reference)), paired)
    return Divergence(counts, min(len(one), len(other)), paired, p)


def exact_p(one: np.ndarray, other: np.ndarray, cells: tuple[int, int], paired: bool) -> float:
    """Two-sided p of "both sides diverge equally often", from each side's number of diverged runs per seed."""
    m, n = cells
    if paired and m != n:
        return hypergeometric_p(one, other, m, n)
    if paired:
        return sign_flip_p(map(int, one - other))
    # Shares of diverged runs as integers: counts times the other side's number of cells.
    return permutation_p([int(count) * n for count in one], [int(count) * m for count in other])


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
    chances = _sums(
        [
            (k * n - (a + b - k) * m, math.comb(m, k) * math.comb(n, a + b - k) / math.comb(m + n, a + b))
            for k in range(max(0, a + b - n), min(m, a + b) + 1)
        ]
        for a, b in zip(map(int, one), map(int, other), strict=True)
    )
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
