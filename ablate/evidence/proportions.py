"""Exact intervals and tests for counts of runs: of those that solve a task which is solved or not, and that diverge.

Differences of shares of solved runs are not normal, and with two clumps a t interval from few seeds is not valid.
Within a seed the difference D of a contrast takes few values v₀ < … < v_K, which depend on its weights only, and
E[D] = v₀ + Σ (vⱼ − vⱼ₋₁)·P(D ≥ vⱼ).  Each P has Clopper & Pearson's bounds (1934), with the level split evenly among
them.  For two cells these are the two discordant counts, E[D] = p₁₀ − p₀₁; for independent sides the two shares.  With
more than `MAX_BOUNDS` values per cell, E[D] = Σ w·p is bounded through each cell's share p instead.

"No difference" is tested conditionally: by McNemar's exact test where seeds pair, by Fisher's where they do not.
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from ablate.config.claims import plain_metric
from ablate.runs.records import SOLVED

MAX_BOUNDS = 4  # per cell; bounding cells separately takes one each, but ignores the pairing by seed


def is_solved(metric: str) -> bool:
    """Whether a metric is the share solved, on any split and at any length."""
    return plain_metric(metric).split("/")[-1] == SOLVED


def interval_kind(metrics: Iterable[str]) -> str:
    """The kind of simultaneous intervals that effects by these metrics have."""
    solved = {is_solved(metric) for metric in metrics}
    if len(solved) > 1:
        return "Bonferroni-t, exact of shares of runs solved"
    return "Bonferroni, exact" if True in solved else "Bonferroni-t"


# Intervals of a difference of shares


@dataclass(frozen=True)
class Step:
    """One term of E[D]: a step between two values of D, and the number of seeds with the upper value or more."""

    size: float
    count: int
    n: int


@dataclass(frozen=True)
class SolvedCounts:
    """What is known of a difference of shares of solved runs, E[D] = smallest + Σ size·P(D at or above the step)."""

    smallest: float  # the smallest possible D
    steps: tuple[Step, ...]
    p_no_difference: float | None  # exact p of "no difference"; None where only the interval tests it


def solved_counts(
    groups: Sequence[np.ndarray], weights: Sequence[Sequence[float]], p_no_difference: float | None
) -> SolvedCounts:
    """The counts behind an exact interval, from the zeros and ones (seeds, cells) of independent groups of cells.

    Only seeds with every cell of their group count.  A group whose weighted sum has too many values is counted cell by
    cell.  `p_no_difference` is passed on.
    """
    smallest = 0.0
    steps: list[Step] = []
    for solved, weights_of_group in zip(groups, weights, strict=True):
        complete = solved[~np.isnan(solved).any(axis=1)]
        sums = [(complete, tuple(weights_of_group))]
        if not possible_sums(tuple(weights_of_group)):
            sums = [(complete[:, [i]], (weight,)) for i, weight in enumerate(weights_of_group)]
        for columns, column_weights in sums:
            values = possible_sums(column_weights)
            differences = columns @ np.array(column_weights)
            smallest += values[0]
            for lower, upper in itertools.pairwise(values):
                halfway = (lower + upper) / 2  # so that rounding has no influence
                steps.append(Step(upper - lower, int((differences > halfway).sum()), len(differences)))
    return SolvedCounts(smallest, tuple(steps), p_no_difference)


@functools.cache
def possible_sums(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The possible values of a weighted sum of zeros and ones, rising; empty if there are too many.

    The weights of a trend over uneven settings give up to 2^cells values, too many to split a level among.
    """
    sums = np.zeros(1)
    for weight in weights:
        sums = np.sort(np.concatenate([sums, sums + weight]))
        is_new = np.diff(sums, prepend=-math.inf) > 1e-6  # equal sums differ by rounding errors
        sums = sums[is_new]
        if len(sums) > MAX_BOUNDS * len(weights) + 1:
            return ()
    return tuple(sums.tolist())


def solved_interval(counts: SolvedCounts, alpha: float) -> tuple[float, float]:
    """The 1 − alpha interval of a difference of shares; NaN where a group has no seed."""
    if any(step.n == 0 for step in counts.steps):
        return math.nan, math.nan
    level = alpha / 2 / len(counts.steps)
    low = counts.smallest
    high = counts.smallest
    for step in counts.steps:
        low += step.size * (1 - upper_bound(step.n - step.count, step.n, level))
        high += step.size * upper_bound(step.count, step.n, level)
    return low, high


def upper_bound(count: int, n: int, level: float) -> float:
    """The largest share p with P(at most `count` of n) = `level`: the upper bound of Clopper & Pearson (1934)."""
    if count == n:
        return 1.0
    return float(scipy.stats.beta.isf(level, count + 1, n - count))


def wilson(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion count/n, as fractions; [0, 1] when n is 0 (Wilson 1927)."""
    if n == 0:
        return 0.0, 1.0
    z = scipy.special.ndtri(0.975)
    share = count / n
    center = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half_width = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    low = float(center - half_width)
    high = float(center + half_width)
    if count == 0:
        low = 0.0  # without the rounding error, which may be below 0
    if count == n:
        high = 1.0
    return low, high


def smallest_level(decides: Callable[[float], object]) -> float:
    """The p-value of an interval: the smallest level at which it decides, by bisection in the logarithm; else 1."""
    low = math.log(1e-12)
    high = math.log(1 - 1e-9)
    if not decides(math.exp(high)):
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if decides(math.exp(middle)):
            high = middle
        else:
            low = middle
    return math.exp(high)


# Tests of "no difference" between the counts of two sides


def counts_p(level: np.ndarray, reference: np.ndarray, m: int, n: int, paired: bool) -> float:
    """The exact two-sided p of "no difference" between two sides of m and n cells, from their counts in each seed.

    Paired seeds: with equally many cells McNemar's test (1947), generalised to counts by exchanging the two sides of a
    seed; else the cells of a seed are exchanged.  Unpaired seeds: whole seeds are exchanged, with one cell a side
    Fisher's test.  NaN where a side has no seed.
    """
    if not paired:
        # Shares as integers: counts times the other side's number of cells.
        return exchanged_seeds_p((level * n).astype(int).tolist(), (reference * m).astype(int).tolist())
    if m == n:
        return exchanged_sides_p((level - reference).astype(int).tolist())
    return exchanged_cells_p(level.astype(int), reference.astype(int), m, n)


def exchanged_sides_p(differences: Sequence[int]) -> float:
    """P(|Σ ±dₛ| >= |Σ dₛ|) over all signs: the exact test of within-seed differences; for single cells McNemar's."""
    if not differences:
        return math.nan
    chances = chances_of_sums(
        [{difference: 0.5, -difference: 0.5} if difference else {0: 1.0} for difference in differences]
    )
    observed = abs(sum(differences))
    return min(1.0, math.fsum(chance for total, chance in chances.items() if abs(total) >= observed))


def exchanged_cells_p(level: np.ndarray, reference: np.ndarray, m: int, n: int) -> float:
    """Twice the smaller tail of Σ (shareₛ of m cells − shareₛ of n cells), at most 1.

    Sides of unequal size are not exchangeable, but the cells of a seed are: the number of its counted runs on either
    side is hypergeometric (Mantel & Haenszel 1959).
    """
    if not len(level):
        return math.nan
    chances_of_seeds = []
    for total in (level + reference).tolist():
        chances_of_seed = {}
        for count in range(max(0, total - n), min(m, total) + 1):
            difference = count * n - (total - count) * m  # of shares, times m·n
            chances_of_seed[difference] = float(scipy.stats.hypergeom.pmf(count, m + n, m, total))
        chances_of_seeds.append(chances_of_seed)
    chances = chances_of_sums(chances_of_seeds)
    observed = int(level.sum()) * n - int(reference.sum()) * m
    upper = math.fsum(chance for total, chance in chances.items() if total >= observed)
    lower = math.fsum(chance for total, chance in chances.items() if total <= observed)
    return min(1.0, 2 * min(lower, upper))


def chances_of_sums(chances_of_terms: Iterable[dict[int, float]]) -> dict[int, float]:
    """The probability of each sum of independent terms, given the probabilities of each term's values."""
    chances = {0: 1.0}
    for chances_of_term in chances_of_terms:
        extended: dict[int, float] = defaultdict(float)
        for total, chance in chances.items():
            for value, chance_of_value in chances_of_term.items():
                extended[total + value] += chance * chance_of_value
        chances = extended
    return chances


def exchanged_seeds_p(level: Sequence[int], reference: Sequence[int]) -> float:
    """P(the sum of len(level) of all values is as far from its mean as that of `level`), over all choices.

    Runs of one seed need not be independent, as whole seeds are exchanged.  NaN where a side has no seed.
    """
    if not level or not reference:
        return math.nan
    values = [*level, *reference]
    ways = ways_of_sums(sorted(values), len(level))
    # Integers, so that ties are exact.
    expected = len(level) * sum(values)
    observed = abs(sum(level) * len(values) - expected)
    extreme = sum(count for total, count in ways.items() if abs(total * len(values) - expected) >= observed)
    return extreme / sum(ways.values())


def ways_of_sums(values: Sequence[int], take: int) -> dict[int, int]:
    """The number of ways in which `take` of the values, none below 0, add up to each sum."""
    ways: list[dict[int, int]] = [defaultdict(int) for _ in range(take + 1)]  # by the number of values taken
    ways[0][0] = 1
    for value in values:
        for taken in range(take, 0, -1):
            for total, count in ways[taken - 1].items():
                ways[taken][total + value] += count
    return ways[take]
