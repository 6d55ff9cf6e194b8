"""The training part of `make sweep`: seconds, and how far every cell is below the bigram yardstick.

python benchmarks/bench_sweep.py
"""

import tempfile
from pathlib import Path

from common import timed

from ablate.results.manifest import newest_study
from ablate.results.study import load_study


def main() -> None:
    """Print the time of the sweep and each cell's test loss against the bigram's."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        seconds, _ = timed("-m", "norm=ln,rms", "ffn=mlp,swiglu", f"results_dir={results}")
        study = load_study(results, newest_study(results) or "")
    bigram = next(iter(study.manifest.tasks.values())).yardsticks["bigram"]
    print(f"sweep of {len(study.runs)} runs: {seconds:.0f} s, start and summary included (to be at most 200)")
    for label, losses in study.runs.groupby("label")["test/loss"]:
        print(f"  {label:<14} worst seed {losses.max():.3f}, {bigram - losses.max():.3f} below the bigram {bigram:.3f}")


if __name__ == "__main__":
    main()
