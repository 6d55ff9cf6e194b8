"""Means over seeds with their intervals and p-values, and the comparison of a contrast's two sides."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import scipy

from ablate.evidence.contrasts import Contrast, Weights, corners_of
from ablate.evidence.proportions import (
    SolvedCounts,
    counts_p,
    is_solved,
    smallest_level,
    solved_counts,
    solved_interval,
)
from ablate.evidence.scores import StudyScores, is_share, pairing
from ablate.formatting import CROSSED, SPEED
from ablate.runs.records import Manifest
from ablate.runs.study import Study

# From this number of paired seeds on, where the skewness of their differences is beyond the limit, the sign test and
# the median's interval decide instead of Student's t.  Chosen before results; docs/statistics.md has its error rates.
MIN_SEEDS_OF_SIGN_TEST = 12
SKEWNESS_LIMIT = 1.5


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the parts of its t statistic: SD, number of seeds, standard error, degrees of freedom."""

    mean: float
    sd: float
    n: int
    error: float
    df: float
    skewed: np.ndarray | None = None  # plainly skewed differences, whose median is tested instead
    solved: SolvedCounts | None = None  # of shares of solved runs, which have exact intervals instead
    limit: float = math.inf  # the largest possible absolute value, at which intervals end


def paired(differences: np.ndarray) -> Estimate:
    """Mean of n differences within seeds: error = sd / √n, df = n − 1 (Student 1908), in the unit of the values."""
    n = len(differences)
    mean = float(np.mean(differences)) if n else math.nan
    if n < 2:
        return Estimate(mean, math.nan, n, math.nan, math.nan)
    # The computed SD of equal numbers can be a rounding error, which would give a significant difference.
    sd = float(np.std(differences, ddof=1)) if np.ptp(differences) else 0.0
    return Estimate(mean, sd, n, sd / math.sqrt(n), n - 1)


def welch(groups: Sequence[np.ndarray]) -> Estimate:
    """Sum of independent groups' means: error² = Σ sᵢ²/nᵢ, df = error⁴ / Σ (sᵢ²/nᵢ)²/(nᵢ − 1) (Welch 1947).

    `sd` is √Σ sᵢ², the spread of the sum of one value from each group; `n` is the size of the smallest group.
    """
    estimates = [paired(group) for group in groups]
    n = min(estimate.n for estimate in estimates)
    mean = sum(estimate.mean for estimate in estimates)
    if n < 2:
        return Estimate(mean, math.nan, n, math.nan, math.nan)
    variances = np.array([estimate.error**2 for estimate in estimates])
    below = np.sum(variances**2 / [estimate.df for estimate in estimates])
    df = float(np.sum(variances) ** 2 / below) if below else n - 1.0
    sd = math.sqrt(sum(estimate.sd**2 for estimate in estimates))
    return Estimate(mean, sd, n, math.sqrt(np.sum(variances)), df)


def is_skewed(differences: np.ndarray) -> bool:
    """Whether the sign test decides: at least 12 differences, whose adjusted Fisher–Pearson skewness is beyond ±1.5."""
    n = len(differences)
    if n < MIN_SEEDS_OF_SIGN_TEST or not np.ptp(differences):
        return False
    standardised = (differences - differences.mean()) / differences.std(ddof=1)
    return bool(abs(n / ((n - 1) * (n - 2)) * np.sum(standardised**3)) > SKEWNESS_LIMIT)


def estimate_of_differences(differences: np.ndarray) -> Estimate:
    """The mean of differences within seeds, with these where they are plainly skewed."""
    estimate = paired(differences)
    return replace(estimate, skewed=differences) if is_skewed(differences) else estimate


def t_limit(alpha: float, df: Any) -> Any:
    """The limit that |t| exceeds with probability alpha, for df degrees of freedom."""
    return -scipy.special.stdtrit(df, alpha / 2)


def interval(estimate: Estimate, alpha: float) -> tuple[float, float]:
    """The 1 − alpha interval; NaN below two seeds and without any spread.

    mean ± t_{1 − alpha/2, df} · error; of plainly skewed differences the median's, between two order statistics; of
    shares of solved runs the exact one.
    """
    if estimate.n < 2:
        return math.nan, math.nan
    if estimate.solved is not None:
        return solved_interval(estimate.solved, alpha)
    if estimate.error == 0:
        return math.nan, math.nan
    if estimate.skewed is not None:
        median = scipy.stats.quantile_test(estimate.skewed, p=0.5).confidence_interval(1 - alpha)
        low = -math.inf if math.isnan(median.low) else float(median.low)
        high = math.inf if math.isnan(median.high) else float(median.high)
        return low, high
    half_width = t_limit(alpha, estimate.df) * estimate.error
    low = max(estimate.mean - half_width, -estimate.limit)
    high = min(estimate.mean + half_width, estimate.limit)
    return low, high


def p_value(estimate: Estimate) -> float:
    """Two-sided p of "the mean is zero"; NaN below two seeds and without any spread.

    2·P(t_df > abs(mean) / error); of plainly skewed differences the sign test's; of shares of solved runs an exact
    test's, else the smallest level at which the exact interval excludes zero.
    """
    if estimate.n < 2:
        return math.nan
    if estimate.solved is not None:
        return solved_p(estimate.solved)
    if estimate.error == 0:
        return math.nan
    if estimate.skewed is not None:
        return float(scipy.stats.quantile_test(estimate.skewed, p=0.5).pvalue)
    return float(2 * scipy.special.stdtr(estimate.df, -abs(estimate.mean) / estimate.error))


def solved_p(counts: SolvedCounts) -> float:
    """p of "there is no difference of shares"."""
    if counts.p_no_difference is not None:
        return counts.p_no_difference

    def excludes_zero(level: float) -> bool:
        low, high = solved_interval(counts, level)
        return low > 0 or high < 0

    return smallest_level(excludes_zero)


# Contrasts


@dataclass(frozen=True)
class Comparison:
    """What the runs say about one contrast, before any verdict."""

    kind: str
    metric: str
    lower_is_better: bool
    estimate: Estimate
    paired: bool
    different_tasks: bool
    clumped: bool  # whether scores lie near their best or far below it, so that no mean describes them
    diverged: int
    diverged_reference: int
    diverged_unequally: bool
    failed: int
    missing: int
    lower: int  # pairs of runs in which the level is lower, diverged runs as the worst
    higher: int
    tied: int
    correlation: float  # of the two sides over seeds
    pairing_ratio: float  # variance of the paired difference over that of unpaired seeds
    match_difference: float  # in a matched study: the largest in absolute value among the cells

    @property
    def n(self) -> int:
        """Seeds that have every run of the contrast, of the smallest independent group."""
        return self.estimate.n


def compare(scores: StudyScores, contrast: Contrast) -> Comparison:
    """Compare the two sides of a contrast over seeds."""
    manifest = scores.study.manifest
    names = list(contrast.weights)
    cells = [scores.cells[name] for name in names]
    metrics = list(dict.fromkeys(scores.metrics[name] for name in names))
    groups, pairs = groups_of(scores, contrast.weights)
    estimate = replace(estimate_of(scores.values, groups, pairs), limit=largest_difference(scores, contrast, metrics))
    solved = all(is_solved(metric) for metric in metrics)
    if solved:  # a diverged run did not solve the task
        cells_of_groups = [scores.values[[*group]].to_numpy(float) for group in groups]
        weights_of_groups = [[*group.values()] for group in groups]
        p_no_difference = p_of_no_difference(scores.values, contrast, pairs)
        estimate = replace(estimate, solved=solved_counts(cells_of_groups, weights_of_groups, p_no_difference))
    level = in_each_seed(scores.ranked, contrast.side(1))
    reference = in_each_seed(scores.ranked, contrast.side(-1))
    signs = signs_of_pairs(level, reference, pairs, scores.values[names])
    correlation, ratio = pairing(level, reference) if pairs else (math.nan, math.nan)
    match_differences = [cell.matched.difference for cell in cells if cell.matched]
    return Comparison(
        kind=contrast.kind,
        metric=", ".join(metrics),
        lower_is_better=scores.lower_is_better[names[0]],
        estimate=estimate,
        paired=pairs,
        different_tasks=len({cell.task for cell in cells}) > 1,
        clumped=any(manifest.tasks[cell.task].clumps(scores.metrics[cell.id]) for cell in cells),
        diverged=scores.count("diverged", contrast.side(1)),
        diverged_reference=scores.count("diverged", contrast.side(-1)),
        diverged_unequally=not solved and diverged_unequally(scores, contrast),
        failed=scores.count("failed", names),
        missing=scores.count("missing", names),
        lower=int((signs < 0).sum()),
        higher=int((signs > 0).sum()),
        tied=int((signs == 0).sum()),
        correlation=correlation,
        pairing_ratio=ratio,
        match_difference=max(match_differences, key=abs, default=0),
    )


def groups_of(scores: StudyScores, weights: Weights) -> tuple[list[Weights], bool]:
    """See `independent_groups`; speed is always paired, because runs of one seed are timed side by side."""
    if all(scores.metrics[cell] in SPEED for cell in weights):
        return [weights], True
    return independent_groups(scores.study.manifest, weights)


def independent_groups(manifest: Manifest, weights: Weights) -> tuple[list[Weights], bool]:
    """The weights of each independent group of cells, and whether all is paired by seed.

    Cells with the same batches form a group; if the weights sum to zero in each, seeds pair, and all is one group.
    """
    batches = {cell.id: cell.batches for cell in manifest.cells}
    groups: dict[str, Weights] = {}
    for cell, weight in weights.items():
        groups.setdefault(batches[cell], {})[cell] = weight
    if all(abs(sum(group.values())) < 1e-9 for group in groups.values()):
        return [weights], True
    return list(groups.values()), False


def estimate_of(values: pandas.DataFrame, groups: list[Weights], pairs: bool) -> Estimate:
    """The weighted sum of cells' values (a row per seed, a column per cell), within seeds or of independent groups."""
    sums = [weighted_sums(values, weights) for weights in groups]
    return estimate_of_differences(sums[0]) if pairs else welch(sums)


def in_each_seed(values: pandas.DataFrame, weights: Weights) -> np.ndarray:
    """The weighted sum of these cells' values in each seed; NaN where one is missing."""
    return np.asarray(values[[*weights]].to_numpy(float) @ np.array([*weights.values()]))


def weighted_sums(values: pandas.DataFrame, weights: Weights) -> np.ndarray:
    """The weighted sum of these cells' values within each seed that has them all."""
    complete = values[[*weights]].dropna()
    return without_rounding_errors(in_each_seed(complete, weights), complete.to_numpy(float))


def without_rounding_errors(differences: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Differences of values, without the rounding error that remains between equal cells: 1e-16 in every seed would
    count as a significant difference, and its sign as that of a lower or higher score."""
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
    return np.asarray(np.round(differences / size, 12) * size)


def p_of_no_difference(values: pandas.DataFrame, contrast: Contrast, pairs: bool) -> float | None:
    """The exact p that two sides solve equally often; None for differences of differences and for unequal weights."""
    level = contrast.side(1)
    reference = contrast.side(-1)
    crossed = contrast.kind in CROSSED or bool(contrast.corners)
    equal_weights = np.ptp([*level.values()]) < 1e-9 and np.ptp([*reference.values()]) < 1e-9
    if crossed or not equal_weights:
        return None
    counts = values[[*level]].sum(axis=1, skipna=False)
    reference_counts = values[[*reference]].sum(axis=1, skipna=False)
    return p_of_counts(counts, reference_counts, len(level), len(reference), pairs)


def p_of_counts(level: pandas.Series, reference: pandas.Series, m: int, n: int, pairs: bool) -> float:
    """`counts_p` of two sides' counts by seed, NaN where a seed lacks a run."""
    if pairs:
        complete = level.notna() & reference.notna()
        level = level[complete]
        reference = reference[complete]
    return counts_p(level.dropna().to_numpy(), reference.dropna().to_numpy(), m, n, pairs)


def largest_difference(scores: StudyScores, contrast: Contrast, metrics: list[str]) -> float:
    """The largest possible absolute value of a contrast of shares; inf for other metrics and for shares in per cent."""
    tasks = scores.study.manifest.tasks.values()
    for metric in metrics:
        if not any(is_share(task, metric) for task in tasks):
            return math.inf
    values = scores.values[[*contrast.weights]].to_numpy(float)
    within_0_and_1 = np.isnan(values) | ((values >= 0) & (values <= 1))
    return sum(contrast.side(1).values()) if within_0_and_1.all() else math.inf


def diverged_unequally(scores: StudyScores, contrast: Contrast) -> bool:
    """Whether the share of diverged runs differs between the sides of a contrast.

    For an interaction, a difference of differences, it has to be equal at all corners: if all runs with one norm
    diverged, both sides have lost equally many runs, but the rest compares nothing.
    """
    sides: Iterable[Iterable[str]] = [contrast.side(1), contrast.side(-1)]
    if contrast.corners:
        sides = contrast.corners
    elif contrast.kind in CROSSED:
        levels = {name: scores.cells[name].levels for name in contrast.weights}
        sides = corners_of(levels, tuple(contrast.factor.split(" x "))).values()
    shares = set()
    for side in sides:
        cells = list(side)
        shares.add(Fraction(scores.count("diverged", cells), len(cells)))
    return len(shares) > 1


def signs_of_pairs(level: np.ndarray, reference: np.ndarray, pairs: bool, values: pandas.DataFrame) -> np.ndarray:
    """In each pair whether the level is lower (−1), higher (1) or equal (0), with diverged runs infinitely bad.

    A pair is a seed; if unpaired, a seed of each side.
    """
    if not pairs:
        level = level[:, None]
    is_pair = ~np.isnan(level) & ~np.isnan(reference)
    with np.errstate(invalid="ignore"):  # two diverged runs tie
        differences = (level - reference)[is_pair]
        return np.nan_to_num(np.sign(without_rounding_errors(differences, values.to_numpy(float))))


# Divergence


@dataclass(frozen=True)
class Divergence:
    """How often the runs of two sides diverged."""

    counts: list[tuple[int, int]]  # for each side the diverged runs and those that ended (done or diverged)
    n: int  # seeds whose runs all ended, of the side with fewer if unpaired
    paired: bool
    p: float  # exact and two-sided


def divergence_of(study: Study, level: Sequence[str], reference: Sequence[str]) -> Divergence:
    """The divergence of two sides, given as ids of cells."""
    diverged = study.runs["status"].map({"done": 0.0, "diverged": 1.0})  # NaN for runs that have not ended
    by_seed = study.runs.assign(diverged=diverged).pivot(index="seed", columns="cell", values="diverged")
    sides = [by_seed.reindex(columns=side) for side in (level, reference)]
    counts = [(int(side.sum().sum()), int(side.count().sum())) for side in sides]
    level_counts, reference_counts = (side.sum(axis=1, skipna=False) for side in sides)
    weights = dict.fromkeys(level, 1 / len(level)) | dict.fromkeys(reference, -1 / len(reference))
    _, pairs = independent_groups(study.manifest, weights)
    n = min(level_counts.count(), reference_counts.count())
    if pairs:
        n = (level_counts + reference_counts).count()
    p = p_of_counts(level_counts, reference_counts, len(level), len(reference), pairs)
    return Divergence(counts, int(n), pairs, p)
