"""How the time and the memory of `python -m analysis` grow with a study: 100, 300 and 1,000 runs of 200 logged steps.

python benchmarks/bench_analysis.py [--large] [--runs N] [--profile]
--large adds 10,000 runs; --runs is one size alone; --profile prints where the time of the last one goes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from fake_studies import fabricate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from ablate.results.atomic import write_json
from ablate.results.run import Run
from ablate.results.study import load_study

SIZES, LARGE = (100, 300, 1000), 10_000
SEEDS, LOGGED, DOCUMENTS = 10, 200, 34
LEVELS = {"norm": 10, "ffn": 10, "attention": 10}  # at most; a study of n runs has n / 10 cells


def factors(runs: int) -> dict[str, list[str]]:
    """A grid of about n / 10 cells."""
    cells, found = max(2, runs // SEEDS), {}
    for name, most in LEVELS.items():
        count = min(most, cells)
        found[name] = [f"{name}{i}" for i in range(count)]
        cells //= count
        if cells < 2:
            break
    return found


def written(results: Path, runs: int) -> int:
    """Write a study of about this many runs as a sweep would leave it; how many there are."""
    rng = np.random.default_rng(0)
    name = fabricate(results, factors(runs), range(SEEDS), lambda *_: float(rng.normal(2, 0.01)))
    study = load_study(results, name, curves=False)
    for run in study.runs.itertuples():
        files = Run(results, run.path)
        falling = 2 + 3 * np.exp(-np.arange(LOGGED) / 40) + rng.normal(0, 0.01, LOGGED)
        with open(files.metrics_file, "w") as file:
            for i, loss in enumerate(falling):
                row = {"step": 4 * i, "tokens": 4096 * i, "seconds": i / 10, "train/loss": loss, "lr": 1e-3}
                row |= {"grad_norm": 1.0} | ({"val/loss": loss, "val/accuracy": 0.5} if i % 10 == 9 else {})
                file.write(json.dumps(row) + "\n")
        result = json.loads(files.result_file.read_text())
        losses = rng.normal(2, 0.2, DOCUMENTS).tolist()
        names = [f"package/module_{i}.py" for i in range(DOCUMENTS)]
        result["documents"] = {"test": {"name": names, "tokens": [512] * DOCUMENTS, "loss": losses}}
        write_json(files.result_file, result)
    return len(study.runs)


def measured(results: Path, *options: str) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak megabytes of one analysis in a process of its own."""
    started = time.monotonic()
    command = [sys.executable, *options, "-m", "analysis", "--results-dir", str(results)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the analysis ended with {child.returncode}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """A line per size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for runs in [given.runs] if given.runs else [*SIZES, *([LARGE] if given.large else [])]:
        with tempfile.TemporaryDirectory() as folder:
            count = written(Path(folder), runs)
            seconds, cpu, megabytes = measured(Path(folder))
            print(f"{count:6,} runs: {seconds:6.1f} s, {cpu:6.1f} s of CPU, {megabytes:6,.0f} MB", flush=True)
            if given.profile:
                file = Path(folder) / "profile"
                measured(Path(folder), "-m", "cProfile", "-o", str(file))
                shown = "import pstats, sys; pstats.Stats(sys.argv[1]).sort_stats('cumulative').print_stats(45)"
                subprocess.run([sys.executable, "-c", shown, str(file)], check=True)


if __name__ == "__main__":
    main()
