"""Distributions are those of scipy.stats, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from ablate.evidence.statistics import chi2_quantile, t_above, t_limit

DRAWN = np.random.default_rng(0)
P = np.concatenate([DRAWN.uniform(0, 1, 20_000) ** 4, [1e-9, 1.0, 1e-300, 0.5, np.nan]])
DF = np.concatenate([DRAWN.integers(1, 80, 15_000), DRAWN.uniform(0.3, 40, 5000), [1, 2, 3, 4, 5]])


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (t_limit(P, DF), stats.t.isf(P, DF)),
        (t_above(20 * P - 5, DF), stats.t.sf(20 * P - 5, DF)),
        (chi2_quantile(P, DF), stats.chi2.ppf(P, DF)),
        (special.ndtr(20 * P - 10), stats.norm.cdf(20 * P - 10)),
        (special.betainccinv(DF, DF[::-1], P), stats.beta.isf(P, DF, DF[::-1])),
    ],
)
def test_as_scipy_computes_them(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(ours, theirs)
