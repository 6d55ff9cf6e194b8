"""How often variants that are equal are called different after tuning, whose seeds no interval covers.

    python benchmarks/bench_tuning.py

Two variants with the same scores at every rate: the best, and one or more that cost so many SDs of a run.  Two tuning
seeds choose each variant's rate by their mean; other seeds are scored there, paired, at 95 %.
"""

import numpy as np
from scipy import stats

STUDIES = 20_000
SEEDS, TUNING = (5, 8, 20), 2
COSTS = {"one rate, 0.5 SD": (0.5,), "one, 1 SD": (1,), "one, 2 SD": (2,)}
COSTS |= {"two, 1 SD": (1, 1), "three, 1 SD": (1, 1, 1)}


def errors(costs: tuple[float, ...], n: int, rng: np.random.Generator) -> float:
    """The share of studies of n scored seeds that call the two variants different."""
    rates = np.array([0.0, *costs])
    tuning = rates + rng.normal(size=(STUDIES, 2, TUNING, len(rates)))
    chosen = rates[tuning.mean(axis=2).argmin(axis=2)]
    scores = chosen[:, :, None] + rng.normal(size=(STUDIES, 2, n))
    return float((stats.ttest_1samp(scores[:, 0] - scores[:, 1], 0, axis=1).pvalue < 0.05).mean())


def main() -> None:
    """Print a table of shares."""
    print("| what the other rates cost | " + " | ".join(f"{n} seeds" for n in SEEDS) + " |")
    print("| --- |" + " ---: |" * len(SEEDS))
    for name, costs in COSTS.items():
        shares = [errors(costs, n, np.random.default_rng([n, len(costs)])) for n in SEEDS]
        print(f"| {name} | " + " | ".join(f"{100 * share:.0f} %" for share in shares) + " |")


if __name__ == "__main__":
    main()
