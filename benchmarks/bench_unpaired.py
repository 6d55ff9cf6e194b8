"""How often Welch's t calls equal unpaired variants different, by seeds and spread: why there is no verdict below 5.

python benchmarks/bench_unpaired.py
"""

import itertools

import numpy as np
from scipy import stats

STUDIES = 100_000
SEEDS, RATIOS, LEVELS = (2, 3, 4, 5, 8, 12, 20), (1, 2, 4), (0.05, 0.05 / 3, 0.05 / 6)


def main() -> None:
    """Print a row per distribution, number of seeds and ratio of the spreads, a column per level."""
    rng = np.random.default_rng(0)
    shapes = {
        "normal": lambda size: rng.normal(size=size),
        "skewed (exponential)": lambda size: rng.exponential(size=size) - 1,
    }
    print("share of equal variants called different, in per cent, at nominal", *(f"{100 * a:.2f}" for a in LEVELS))
    for (name, draw), n, ratio in itertools.product(shapes.items(), SEEDS, RATIOS):
        one, other = draw((STUDIES, n)), ratio * draw((STUDIES, n))
        p = stats.ttest_ind(one, other, axis=1, equal_var=False).pvalue
        print(f"{name:22} n = {n:2}  SD 1:{ratio}  ", *(f"{100 * np.mean(p <= level):5.2f}" for level in LEVELS))


if __name__ == "__main__":
    main()
