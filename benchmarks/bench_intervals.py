"""What shorter simultaneous intervals would cost: variances pooled or moderated over contrasts, and a joint max-t.

Noise is that of the recorded seeds, its contrasts scaled to spreads that differ as those of real studies do.  Nothing
differs from zero, so that an interval without zero is an error.

python benchmarks/bench_intervals.py
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pandas
from bench_seeds import FILE, ROWS
from scipy import special, stats

STUDIES, JOINT = 20_000, 4_000  # the max-t is found for this many of the studies, from as many draws
LEVEL = 0.05
SEEDS, BLOCKS, RATIOS = (3, 5), (1, 5), (1, 3, 9)
Drawn = np.ndarray  # (studies, seeds, contrasts)
# Of each study and contrast the standard deviation, and their degrees of freedom.
Spread = tuple[np.ndarray, np.ndarray | float]


def own(values: Drawn) -> Spread:
    """Each contrast's own."""
    return values.std(1, ddof=1), values.shape[1] - 1


def pooled(values: Drawn) -> Spread:
    """The mean variance of all contrasts, for each of them."""
    variance = values.var(1, ddof=1)
    return np.sqrt(variance.mean(1, keepdims=True) + 0 * variance), variance.shape[1] * (values.shape[1] - 1)


def moderated(values: Drawn) -> Spread:
    """Each variance drawn towards a common one, as far as all of them are alike (limma; Smyth 2004)."""
    variance, df, common, scatter = prior_of(values)
    weight = degrees(scatter - special.polygamma(1, df / 2))
    return np.sqrt((weight * common + df * variance) / (weight + df)), weight + df


def capped(values: Drawn) -> Spread:
    """The same with the prior's weight at its lower 97.5 % bound, at most df / 8, and no SD below its own."""
    variance, df, common, scatter = prior_of(values)
    largest = scatter * (variance.shape[1] - 1) / stats.chi2.ppf(0.025, variance.shape[1] - 1)
    weight = np.minimum(degrees(largest - special.polygamma(1, df / 2)), df / 8)
    return np.sqrt(np.maximum(variance, (weight * common + df * variance) / (weight + df))), weight + df


def prior_of(values: Drawn) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    """The variances, their degrees of freedom, the common variance, and how much the logarithms vary."""
    variance, df = values.var(1, ddof=1), values.shape[1] - 1
    logs = np.log(variance) - special.digamma(df / 2) + math.log(df / 2)
    scatter = logs.var(1, ddof=1, keepdims=True)
    half = degrees(scatter - special.polygamma(1, df / 2)) / 2
    return variance, df, np.exp(logs.mean(1, keepdims=True) + special.digamma(half) - np.log(half)), scatter


def degrees(beyond: np.ndarray) -> np.ndarray:
    """The d whose trigamma(d/2) is this, a million where nothing is left, found by halving."""
    low, high = np.full_like(beyond, math.log(1e-3)), np.full_like(beyond, math.log(1e6))
    for _ in range(50):
        middle = (low + high) / 2
        above = special.polygamma(1, np.exp(middle) / 2) > beyond
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.exp(low)


def max_t(values: Drawn, rng: np.random.Generator) -> np.ndarray:
    """The critical value of each study: of the largest |t| of contrasts that correlate as its seeds do."""
    n, df = values.shape[1], values.shape[1] - 1
    within = values - values.mean(1, keepdims=True)
    within /= np.sqrt((within**2).sum(1, keepdims=True))
    t = rng.normal(size=(JOINT, n)) / np.sqrt(stats.chi2.ppf((np.arange(JOINT) + 0.5) / JOINT, df) / df)[:, None]
    return np.array([np.quantile(np.abs(t @ part).max(1), 1 - LEVEL) for part in within])[:, None]


def drawn(noise: np.ndarray, n: int, blocks: int, ratio: float, rng: np.random.Generator) -> Drawn:
    """Studies of blocks of three contrasts, each block of other seeds, with SDs from 1 to ratio."""
    order = rng.random((STUDIES, len(noise))).argsort(1)[:, : n * blocks].reshape(STUDIES, n, blocks)
    signs = rng.choice([-1, 1], (STUDIES, n, blocks, 1))
    values = (noise[order] * signs).reshape(STUDIES, n, -1)
    return values * rng.permutation(np.geomspace(1, ratio, values.shape[2]))


def main() -> None:
    """Print a table for each number of seeds, contrasts and spread, and what more seeds would give."""
    runs = pandas.read_csv(FILE)
    losses = runs.pivot(index="seed", columns=["norm", "ffn"], values="test/loss").sort_index(axis=1)
    noise = (losses - losses.mean()).to_numpy() @ np.array(list(ROWS.values())[:3]).T
    noise /= noise.std(0)
    print("Width, against the first line's; in per cent: errors of the family, and of the worst contrast's plain 95 %")
    for n, blocks, ratio in itertools.product(SEEDS, BLOCKS, RATIOS):
        rng = np.random.default_rng([n, blocks, ratio])
        print(f"n = {n}, {3 * blocks} contrasts, SDs 1:{ratio}")
        show(drawn(noise, n, blocks, ratio, rng), rng)
    widths = {n: stats.t.isf(LEVEL / 3 / 2, n - 1) / math.sqrt(n) for n in range(3, 8)}
    for few, many in ((3, 4), (3, 5), (5, 6), (5, 7)):
        print(f"{many} seeds instead of {few}, 3 contrasts of equal SD, Bonferroni-t: {widths[many] / widths[few]:.2f}")


def show(values: Drawn, rng: np.random.Generator) -> None:
    """Print a line per kind of interval."""
    distance, count = np.abs(values.mean(1)) * math.sqrt(values.shape[1]), values.shape[2]
    unit = None
    for name, kind in KINDS.items():
        sd, df = kind(values)
        half, plain = (stats.t.isf(level / 2, df) * sd for level in (LEVEL / count, LEVEL))
        unit = half if unit is None else unit
        line(name, half, unit, distance > half, f"{100 * (distance > plain).mean(0).max():5.1f}")
        if kind is own:
            half = max_t(values[:JOINT], rng) * sd[:JOINT]
            line("max-t, own SD", half, unit[:JOINT], distance[:JOINT] > half)


def line(name: str, half: np.ndarray, unit: np.ndarray, missed: np.ndarray, worst: str = "    –") -> None:
    """Print the mean width over contrasts, and the errors."""
    width = (half.mean(0) / unit.mean(0)).mean()
    print(f"  {name:22} {width:.2f}  family {100 * missed.any(1).mean():5.1f}  contrast {worst}", flush=True)


KINDS: dict[str, Callable[[Drawn], Spread]] = {
    "Bonferroni-t, own SD": own,
    "pooled SD": pooled,
    "moderated SD (limma)": moderated,
    "moderated SD, capped": capped,
}

if __name__ == "__main__":
    main()
