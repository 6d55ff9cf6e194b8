"""How often variants that are equal are called different after tuning, whose seeds no interval covers.

    python benchmarks/bench_tuning.py

Equal variants have the same scores at every rate: the best, and others that cost so many SDs of a run.  A few tuning
seeds choose each variant's rate; other seeds are scored there, paired.  First two variants at 95 %, with two tuning
seeds and the best mean; then a reference and 48 changes, with simultaneous intervals, over five rates, of which the
neighbours of the best cost as much as is said and the outer ones twice that.
"""

import numpy as np
from scipy import stats

STUDIES = 20_000
SEEDS, TUNING = (5, 8, 20), 2
COSTS = {"one rate, 0.5 SD": (0.5,), "one, 1 SD": (1,), "one, 2 SD": (2,)}
COSTS |= {"two, 1 SD": (1, 1), "three, 1 SD": (1, 1, 1)}
FAMILIES, CHANGES, SCORED, TRIED = 2_000, 48, 16, 3
NEIGHBOURS = (0.5, 1, 1.5, 2, 3, 4)


def errors(costs: tuple[float, ...], n: int, rng: np.random.Generator) -> float:
    """The share of studies of n scored seeds that call the two variants different."""
    rates = np.array([0.0, *costs])
    tuning = rates + rng.normal(size=(STUDIES, 2, TUNING, len(rates)))
    chosen = rates[tuning.mean(axis=2).argmin(axis=2)]
    scores = chosen[:, :, None] + rng.normal(size=(STUDIES, 2, n))
    return float((stats.ttest_1samp(scores[:, 0] - scores[:, 1], 0, axis=1).pvalue < 0.05).mean())


def false_ones(cost: float, rule: str, rng: np.random.Generator) -> np.ndarray:
    """The number of changes that each of many families calls better or worse."""
    rates = cost * np.array([2.0, 1.0, 0.0, 1.0, 2.0])
    tuning = rates + rng.normal(size=(FAMILIES, 1 + CHANGES, TRIED, len(rates)))
    best = tuning.mean(axis=2).argmin(axis=2)
    if rule == "one_se":
        less = tuning - np.take_along_axis(tuning, best[:, :, None, None], axis=3)
        within = less.mean(axis=2) <= less.std(axis=2, ddof=1) / np.sqrt(TRIED)
        best = within.argmax(axis=2)  # the smallest rate; the best differs by 0 from itself
    scores = rates[best][:, :, None] + rng.normal(size=(FAMILIES, 1 + CHANGES, SCORED))
    p = stats.ttest_1samp(scores[:, 1:] - scores[:, :1], 0, axis=2).pvalue
    return (p < 0.05 / CHANGES).sum(axis=1)


def main() -> None:
    """Print both tables."""
    print("| what the other rates cost | " + " | ".join(f"{n} seeds" for n in SEEDS) + " |")
    print("| --- |" + " ---: |" * len(SEEDS))
    for name, costs in COSTS.items():
        shares = [errors(costs, n, np.random.default_rng([n, len(costs)])) for n in SEEDS]
        print(f"| {name} | " + " | ".join(f"{100 * share:.0f} %" for share in shares) + " |")
    print(f"\n| {CHANGES} changes; a neighbouring rate costs | rule | some false | false on average |")
    print("| --- | --- | ---: | ---: |")
    for cost in NEIGHBOURS:
        for rule in ("best", "one_se"):
            found = false_ones(cost, rule, np.random.default_rng(1))
            print(f"| {cost:g} SD | {rule} | {100 * (found > 0).mean():.0f} % | {found.mean():.1f} |")


if __name__ == "__main__":
    main()
