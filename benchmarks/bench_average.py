"""Whether train.average=ema lowers the noise floor: SD over seeds of the loss and of a paired difference, with bounds.

python benchmarks/bench_average.py [key=value ...]     seeds=8 unless given; 8 seeds are 32 runs
"""

import math
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import timed
from scipy import stats

from ablate.evidence import endpoint, scores
from ablate.results.manifest import newest_study
from ablate.results.study import load_study

ALPHA = 0.05


def spread(values: np.ndarray) -> str:
    """SD with the 95 % bounds of normal values: sd · √((n − 1) / χ²)."""
    n, sd = len(values), float(np.std(values, ddof=1))
    low, high = (sd * math.sqrt((n - 1) / stats.chi2.isf(tail, n - 1)) for tail in (ALPHA / 2, 1 - ALPHA / 2))
    return f"{sd:.5f} [{low:.5f}, {high:.5f}]"


def ratio(one: np.ndarray, other: np.ndarray) -> str:
    """Ratio of two SDs of the same seeds, and p of "they are equal" (Pitman 1939, Morgan 1939)."""
    p = stats.pearsonr(one + other, one - other).pvalue
    return f"{np.std(one, ddof=1) / np.std(other, ddof=1):.3f} (p = {p:.2f})"


def main() -> None:
    """Train norm=ln,rms with and without the average and print a line per quantity."""
    given = sys.argv[1:] + ["seeds=8"] * (not any(word.startswith("seeds=") for word in sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        swept = ["norm=ln,rms", "train.average=none,ema"]
        timed("-m", *swept, f"results_dir={results}", "track=none", "keep=none", *given)
        study = load_study(results, newest_study(results) or "", curves=False)
    table = scores(study, endpoint(study.manifest)).dropna()
    cell = {tuple(c.levels.values()): table[c.id].to_numpy() for c in study.manifest.cells}
    for name, one in {
        "loss, ln": lambda kind: cell["ln", kind],
        "loss, rms": lambda kind: cell["rms", kind],
        "rms − ln": lambda kind: cell["rms", kind] - cell["ln", kind],
    }.items():
        none, ema = one("none"), one("ema")
        gain = ema - none
        print(f"{name:10} mean {none.mean():+.4f} none, {ema.mean():+.4f} ema, ", end="")
        print(f"gain {gain.mean():+.4f} ± {stats.sem(gain) * stats.t.isf(ALPHA / 2, len(gain) - 1):.4f}; ", end="")
        print(f"SD {spread(none)} none, {spread(ema)} ema, ratio {ratio(ema, none)}")


if __name__ == "__main__":
    main()
