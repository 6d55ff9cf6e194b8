"""How the recorded seeds behave: spread, pairing, normality, and how often studies of a few of them miss.

python benchmarks/bench_seeds.py
"""

import math
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

FILE = Path(__file__).parents[1] / "tests" / "recorded" / "norm_ffn_tiny.csv"
DRAWS = 40_000
ROWS = {
    "norm: rms − ln": (-0.5, -0.5, 0.5, 0.5),
    "ffn: swiglu − mlp": (-0.5, 0.5, -0.5, 0.5),
    "norm x ffn": (1, -1, -1, 1),
    "rms + mlp − ln + mlp": (-1, 0, 1, 0),
    "ln + swiglu − ln + mlp": (-1, 1, 0, 0),
}


def main() -> None:
    """Print all of it."""
    runs = pandas.read_csv(FILE)
    losses = runs.pivot(index="seed", columns=["norm", "ffn"], values="test/loss").sort_index(axis=1)
    values = losses.to_numpy()
    print(f"{len(values)} seeds of {', '.join(' + '.join(cell) for cell in losses)}")
    print("mean", *values.mean(0).round(4), " SD", *values.std(0, ddof=1).round(4))
    for name, weights in ROWS.items():
        print(f"{name:24}", described(values, np.array(weights)))
    family = values @ np.array(list(ROWS.values())[:3]).T
    for n in (3, 5, 8):
        print(f"n = {n}:", missed(family, n))


def described(values: np.ndarray, weights: np.ndarray) -> str:
    """Paired SD, that of other seeds on each side, their correlation, the seeds that pairing saves, normality."""
    found, sides = values @ weights, [values @ np.maximum(weights, 0), values @ np.maximum(-weights, 0)]
    apart = math.sqrt(sum(side.var(ddof=1) for side in sides))
    saved = apart**2 / found.var(ddof=1)
    shape = f"skewness {stats.skew(found):+.2f}, excess kurtosis {stats.kurtosis(found):+.2f}"
    text = f"{found.mean():+.4f}, paired SD {found.std(ddof=1):.4f}, unpaired {apart:.4f}"
    text += f", correlation {np.corrcoef(*sides)[0, 1]:.2f}: {saved:.1f} times as many seeds unpaired"
    return f"{text}; {shape}, Shapiro-Wilk p {stats.shapiro(found).pvalue:.3f}"


def missed(family: np.ndarray, n: int) -> str:
    """Shares of draws of n seeds whose intervals miss, for what they are drawn from and for random signs."""
    rng = np.random.default_rng(n)
    drawn = rng.random((DRAWS, len(family))).argsort(1)[:, :n]
    finite = math.sqrt(1 - n / len(family))  # the mean of n of N different seeds varies that much less
    away, half = ends(family[drawn] - family.mean(0))
    flipped, wide = ends((family - family.mean(0))[drawn] * rng.choice([-1, 1], (DRAWS, n, 1)))
    plain, corrected, wrong = away > half, away > finite * half, flipped > wide
    return (
        f"any of 3 simultaneous intervals misses the mean of all: {plain.any(1).mean():.3f}, corrected for the finite "
        f"number {corrected.any(1).mean():.3f}; called different under random signs: {wrong.any(1).mean():.3f}"
    )


def ends(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the mean from zero and half the simultaneous interval, of values (draws, seeds, rows)."""
    n = values.shape[1]
    half = stats.t.isf(0.05 / 3 / 2, n - 1) * values.std(1, ddof=1) / math.sqrt(n)
    return np.abs(values.mean(1)), half


if __name__ == "__main__":
    main()
