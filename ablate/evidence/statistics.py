"""Estimates, corrections and power for a handful of seeds: arrays in, numbers out.

Student's t and χ² equal those of `scipy.stats` to the last bit, without the half second that importing it takes.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from ablate.evidence.exact import Counted, exact_interval, exact_p

POWER = 0.8


def t_above(x: Any, df: Any) -> Any:
    """P(t_df > x)."""
    return special.stdtr(df, -x)


def t_limit(p: Any, df: Any) -> Any:
    """The x with P(t_df > x) = p, for p > 0."""
    return -special.stdtrit(df, p)


def chi2_quantile(p: Any, df: Any) -> Any:
    """The x with P(χ²_df < x) = p."""
    return 2 * special.gammaincinv(df / 2, p)


class Estimate(NamedTuple):
    """A mean over seeds with the parts of its t statistic: SD, number of seeds, standard error, degrees of freedom."""

    mean: float
    sd: float
    n: int
    error: float
    df: float
    exact: Counted | None = None  # for the share solved: counts that give an exact interval and p instead


def paired(values: np.ndarray) -> Estimate:
    """Mean of the values of n seeds: error = sd / √n, df = n − 1 (Student 1908), in the unit of the values."""
    n = len(values)
    mean = float(np.mean(values)) if n else math.nan
    if n < 2:
        return Estimate(mean, math.nan, n, math.nan, math.nan)
    # The computed SD of equal numbers can be a rounding error, which would give a significant difference.
    sd = float(np.std(values, ddof=1)) if np.ptp(values) else 0.0
    return Estimate(mean, sd, n, sd / math.sqrt(n), n - 1)


def welch(groups: Sequence[np.ndarray]) -> Estimate:
    """Sum of independent groups' means: error² = Σ sᵢ²/nᵢ, df = error⁴ / Σ (sᵢ²/nᵢ)²/(nᵢ − 1) (Welch 1947).  `sd` is √Σ
    sᵢ², the spread of the sum of one value from each group; `n` is the size of the smallest group."""
    parts = [paired(group) for group in groups]
    n, mean = min(part.n for part in parts), sum(part.mean for part in parts)
    if n < 2:
        return Estimate(mean, math.nan, n, math.nan, math.nan)
    squared = np.array([part.error**2 for part in parts])
    below = np.sum(squared**2 / [part.df for part in parts])
    df = float(np.sum(squared) ** 2 / below) if below else n - 1.0
    return Estimate(mean, math.sqrt(sum(part.sd**2 for part in parts)), n, math.sqrt(np.sum(squared)), df)


def p_value(estimate: Estimate) -> float:
    """Two-sided p of "the mean is zero": 2·P(t_df > |mean| / error); NaN below two seeds and without any spread."""
    if estimate.exact and estimate.n > 1:
        return exact_p(estimate.exact)
    if estimate.n < 2 or estimate.error == 0:
        return math.nan
    return float(2 * t_above(abs(estimate.mean) / estimate.error, estimate.df))


def interval(estimate: Estimate, alpha: float) -> tuple[float, float]:
    """The 1 − alpha interval mean ± t_{1 − alpha/2, df} · error; NaN below two seeds and without any spread."""
    if estimate.exact and estimate.n > 1:
        return exact_interval(estimate.exact, alpha)
    if estimate.n < 2 or estimate.error == 0:
        return math.nan, math.nan
    half = float(t_limit(alpha / 2, estimate.df)) * estimate.error
    return estimate.mean - half, estimate.mean + half


def bonferroni(p: Any, m: int) -> Any:
    """min(1, m·p) for a family of m tests: at most α exactly where the simultaneous interval excludes zero."""
    return np.minimum(m * p, 1.0)


def holm(p: np.ndarray, m: int) -> np.ndarray:
    """Holm's step-down p for a family of m tests, max over ranks j ≤ i of (m − j + 1)·p₍ⱼ₎, at most 1 (Holm 1979).

    Of the m tests, those that are not in `p` and those with NaN count as if they had p = 1; NaN stays NaN.
    """
    order = np.argsort(p)  # NaN last
    factors = m - np.arange(len(p))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def wilson(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a proportion p = count/n, as fractions; [0, 1] when n is 0 (Wilson 1927):

    (2np + z² ± z √(z² + 4np(1 − p))) / 2(n + z²)
    """
    if n == 0:
        return 0.0, 1.0
    p, z = count / n, float(special.ndtri(0.975))
    middle, scale = 2 * n * p + z**2, 2 * (n + z**2)
    delta = z / scale * math.sqrt(4 * n * p * (1 - p) + z**2)
    return middle / scale - delta if count else 0.0, middle / scale + delta if count < n else 1.0


FEW = 3  # pairs that a correlation needs


def correlated(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation of paired values; NaN below three pairs and where a side has no spread."""
    if len(one) < FEW or not np.ptp(one) or not np.ptp(other):
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])


def noncentral_power(shift: Any, df: float, alpha: float, count: int = 2000) -> float:
    """P(|t| > t_{1 − alpha/2, df}) for a difference of `shift` standard errors: the noncentral t; averaged over shifts.
    Computed as the mean over s² ~ χ²_df/df of Φ(shift − t·s) + Φ(−shift − t·s), as SciPy's is NaN for some shifts."""
    spread = _spread(df, count) * t_limit(alpha / 2, df)
    return float(np.mean(special.ndtr(shift - spread) + special.ndtr(-shift - spread)))


@functools.lru_cache(maxsize=64)
def _spread(df: float, count: int) -> np.ndarray:
    """Evenly spaced quantiles of s, s² ~ χ²_df/df."""
    return np.asarray(np.sqrt(chi2_quantile((np.arange(count) + 0.5) / count, df) / df))


def findable(sd: float, n: int, alpha: float) -> float:
    """The mean of n paired differences with a known SD that is detected with 80 % power at a two-sided level."""
    top = 8 * (float(t_limit(alpha / 2, n - 1)) + 1)
    shift = optimize.brentq(lambda shift: noncentral_power(shift, n - 1, alpha) - POWER, 0, top, xtol=1e-4)
    return sd / math.sqrt(n) * float(shift)


def bounded(margin: float, sd: float, n: int, alpha: float, both: bool) -> float:
    """P(the 1 − alpha interval of n paired differences of mean zero lies inside ±margin; without `both`, below it).  E
    over s² ~ σ²χ²_ν/ν, ν = n − 1, of max(0, 2Φ(z) − 1), or Φ(z), z = margin·√n/σ − t_{1 − alpha/2, ν}·s/σ."""
    z = margin * math.sqrt(n) / sd - t_limit(alpha / 2, n - 1) * _spread(n - 1, 200)
    return float(np.mean(np.maximum(0, 2 * special.ndtr(z) - 1) if both else special.ndtr(z)))


@functools.lru_cache(maxsize=4096)
def detectable_factor(df: float, alpha: float) -> float:
    """How many estimated standard errors a new study of the same size detects with 80 % power at a two-sided level.

    Its power at the shift factor·r is averaged over the error of the estimate, r² ~ χ²_df/df.  For one paired contrast
    at 5 % and 3, 5, 8 and 20 seeds this is 1.55, 1.24, 1.13 and 1.05 times as many as with a known standard error.
    """
    spread, top = _spread(df, 200)[:, None], 8 * (float(t_limit(alpha / 2, df)) + 1)

    def lead(factor: float) -> float:
        return noncentral_power(factor * spread, df, alpha, 200) - POWER

    while lead(top) < 0:
        top *= 2
    return float(optimize.brentq(lead, 0, top, xtol=1e-4))


def detectable(estimate: Estimate, alpha: float) -> float:
    """The error times its `detectable_factor`; NaN without any spread, and for the share solved."""
    if estimate.n < 2 or not estimate.error or estimate.exact:
        return math.nan
    return estimate.error * detectable_factor(estimate.df, alpha)
