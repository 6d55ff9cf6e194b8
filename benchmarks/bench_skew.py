"""How often the rule for skewed differences is wrong: Student's t, or from 12 seeds on the sign test and the median.

Paired differences of 12, 16 and 20 seeds, from normal noise and from skewed noise whose mean, or median, is zero.
Printed are the shares of studies whose 95 % interval misses that zero, for t alone and for the rule, and how often the
sign test decides; then the errors of `seeds=auto` at a margin.

python benchmarks/bench_skew.py [--studies 20000]
"""

import argparse

import numpy as np
from scipy import stats

from ablate.evidence.estimates import estimate_of_differences, interval, paired
from ablate.evidence.families import LOOKS

ALPHA = 0.05
NOISES = {
    "normal": stats.norm(),
    "t with 4 degrees of freedom": stats.t(4),
    "exponential": stats.expon(),
    "lognormal, σ = 1": stats.lognorm(1),
}


def misses(differences: np.ndarray, zero: float) -> tuple[bool, bool, bool]:
    """Whether the t interval misses zero, whether the rule's does, and whether the sign test decided."""
    t_low, t_high = interval(paired(differences), ALPHA)
    estimate = estimate_of_differences(differences)
    low, high = interval(estimate, ALPHA)
    return not t_low <= zero <= t_high, not low <= zero <= high, estimate.skewed is not None


def is_bounded(differences: np.ndarray) -> bool:
    """Whether `seeds=auto` says at one of its looks that the mean difference is below the margin, here zero."""
    for n in LOOKS:
        estimate = estimate_of_differences(differences[:n])
        _, high = interval(estimate, ALPHA / len(LOOKS))
        if high < 0 and estimate.skewed is None:  # the median shows nothing to be small
            return True
    return False


def main() -> None:
    """Print a row per noise, centre and number of seeds, then one per noise for `seeds=auto`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=20_000)
    studies = parser.parse_args().studies
    print("| noise | zero is its | seeds | t alone misses | the rule misses | sign test decides |")
    print("|---|---|--:|--:|--:|--:|")
    for name, noise in NOISES.items():
        for center in ("mean", "median"):
            zero = float(getattr(noise, center)())
            for n in (12, 16, 20):
                rng = np.random.default_rng([n, len(name)])
                draws = noise.rvs((studies, n), random_state=rng)
                t_alone, rule, decides = np.mean([misses(draw, zero) for draw in draws], axis=0)
                print(f"| {name} | {center} | {n} | {t_alone:.1%} | {rule:.1%} | {decides:.0%} |", flush=True)
    print("\n| noise | seeds=auto: a mean difference as large as the margin is called smaller (2.5 % nominal) |")
    print("|---|--:|")
    for name, noise in NOISES.items():
        draws = noise.rvs((studies, LOOKS[-1]), random_state=np.random.default_rng([3, len(name)])) - noise.mean()
        print(f"| {name} | {np.mean([is_bounded(draw) for draw in draws]):.1%} |", flush=True)


if __name__ == "__main__":
    main()
