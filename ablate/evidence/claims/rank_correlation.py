"""Rank correlation of levels' scores with published numbers."""

import itertools
from typing import NamedTuple

import numpy as np

from ablate.evidence.statistics import paired, t_above

EXACT = 8  # levels up to which all orders are enumerated
DRAWN = 99_999  # random orders otherwise


class Ranked(NamedTuple):
    """Spearman's correlation with published numbers: by seed, its mean, and two p-values of "the mean is zero".

    p_seeds: Student's t over the seeds; p_orders: permutation test over the orders of the published numbers; without:
    the mean when each level is left out.
    """

    by_seed: np.ndarray
    mean: float
    p_seeds: float
    p_orders: float
    without: np.ndarray


def rank_correlation(values: np.ndarray, published: np.ndarray, rng: np.random.Generator) -> Ranked:
    """Spearman's ρ of each seed's scores (seeds, levels) with the published numbers (levels,), ties by mean ranks.

    ρ_s = z_s · w with z_s, w the ranks, centred and of length 1.  Their mean is z̄ · w, which is compared with all
    orders of w for up to 8 levels, and with 99,999 random ones for more (Spearman 1904; Pitman 1937).
    """
    z, w = _standard(values), _standard(published[None])[0]
    by_seed, mean_ranks = z @ w, z.mean(0)
    mean = float(by_seed.mean())
    t = paired(by_seed)
    # Unlike losses, ranks can agree in every seed: without spread the test over orders alone decides.
    p_seeds = float(2 * t_above(abs(t.mean) / t.error, t.df)) if t.error else float(mean == 0)
    everything = range(len(w))
    without = [
        float(np.mean(_standard(values[:, others]) @ _standard(published[None, others])[0]))
        for others in ([i for i in everything if i != left] for left in everything)
    ]
    if len(w) <= EXACT:
        orders = w[np.array(list(itertools.permutations(everything)))]
    else:
        orders = np.vstack([w, rng.permuted(np.tile(w, (DRAWN, 1)), axis=1)])
    as_far = orders @ mean_ranks * (1 if mean >= 0 else -1) >= abs(mean) - 1e-9  # in the direction of the mean
    return Ranked(by_seed, mean, p_seeds, min(1.0, 2 * float(as_far.mean())), np.array(without))


def _standard(values: np.ndarray) -> np.ndarray:
    """Ranks along rows, centred and of length 1; zeros where all are tied."""
    from scipy import stats

    ranks = stats.rankdata(values, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.sqrt((centred**2).sum(-1, keepdims=True))
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > 0))
