"""Divergence as a separate endpoint: whether the runs of one side diverge more often than those of the other."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas

from ablate.evidence.contrasts import NAMES, contrasts
from ablate.evidence.estimates import groups
from ablate.evidence.family import ALPHA, worded
from ablate.evidence.statistics import benjamini_hochberg, holm, wilson
from ablate.formatting import CROSSED
from ablate.results.study import Study

COUNTS = [f"{name}{side}" for side in ("", "_reference") for name in ("diverged", "ended", "low", "high")]
TESTED = ["n", "paired", "p", "p_holm", "p_bh", "family", "verdict"]


def divergence(study: Study) -> pandas.DataFrame:
    """A row per contrast with a diverged run on either side: counts, Wilson intervals, an exact p, and a verdict.

    `verdict` says whether the level's side diverges more or less often, or is undecided.  Main effects and steps are
    the family, tested by Holm's p; cells against the reference are exploratory ("looks more"), by Benjamini &
    Hochberg's.  Interactions and trends have no row: they do not compare one kind of runs with another.
    """
    found, lost = [each for each in contrasts(study.manifest) if each.kind not in CROSSED], _diverged_runs(study)
    rows = [
        contrast.names
        | divergence_of(study, [*contrast.side(1)], [*contrast.side(-1)], lost)
        | {"family": contrast.kind != "cell"}
        for contrast in found
    ]
    table = pandas.DataFrame(rows, columns=[*NAMES, *COUNTS, *TESTED])
    family = table["family"].to_numpy(bool)
    p = table["p"].to_numpy(float)
    table["p_holm"], table["p_bh"] = np.full((2, len(table)), math.nan)
    table.loc[family, "p_holm"] = holm(p[family], ALPHA)  # including contrasts without a diverged run
    table.loc[~family, "p_bh"] = benjamini_hochberg(p[~family])
    more = table["diverged"] * table["ended_reference"] > table["diverged_reference"] * table["ended"]
    clear = table["p_holm"].where(family, table["p_bh"]) <= ALPHA
    words = np.where(clear, np.where(more, "more", "less"), "undecided")
    table["verdict"] = [worded(str(word), bool(each)) for word, each in zip(words, family, strict=True)]
    seen = table["diverged"].astype(int) + table["diverged_reference"].astype(int) > 0
    return table[seen].reset_index(drop=True)


def _diverged_runs(study: Study) -> pandas.DataFrame:
    """Whether a run diverged: a row per seed, a column per cell; NaN unless its status is done or diverged."""
    ended = study.runs[study.runs["status"].isin(["done", "diverged"])]
    table = (
        ended[["seed", "cell"]]
        .assign(lost=ended["status"] == "diverged")
        .pivot(index="seed", columns="cell", values="lost")
    )
    return table.reindex(columns=[cell.id for cell in study.manifest.cells]).astype(float)


def divergence_of(
    study: Study, level: Sequence[str], reference: Sequence[str], lost: pandas.DataFrame | None = None
) -> dict[str, Any]:
    """Two sides, given as ids of cells: counts, Wilson intervals, n, whether seeds pair, the exact two-sided p.  n is
    the number of seeds whose runs are all done or diverged; unpaired, that of the side with fewer."""
    lost = _diverged_runs(study) if lost is None else lost
    level, reference = list(level), list(reference)
    sides = [lost[level], lost[reference]]
    counts = [(int(side.sum().sum()), int(side.notna().sum().sum())) for side in sides]
    weights = {cell: 1 / len(level) for cell in level} | {cell: -1 / len(reference) for cell in reference}
    paired = groups(study.manifest, weights)[1]
    sums = [side.sum(axis=1, skipna=False) for side in sides]
    both = sums[0].notna() & sums[1].notna()
    one, other = (side[both if paired else side.notna()].to_numpy(int) for side in sums)
    n, p = min(len(one), len(other)), exact_p(one, other, (len(level), len(reference)), paired)
    row: dict[str, Any] = {}
    for suffix, (count, of) in zip(("", "_reference"), counts, strict=True):
        low, high = wilson(count, of)
        row |= {f"{name}{suffix}": value for name, value in zip(COUNTS, (count, of, low, high), strict=False)}
    return row | {"n": n, "paired": paired, "p": p}


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
