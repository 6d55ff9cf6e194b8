"""Overhead of a sweep of 50 one-step cells beyond training and evaluation, tracking included, and of starting it again.

python benchmarks/bench_overhead.py
"""

import json
import tempfile
from pathlib import Path

from common import timed

from ablate.training.clock import STEP
from ablate.training.devices import environments

CELLS = [
    "-m",
    "norm=ln,rms",
    "optim.warmup=range(25)",
    "seeds=1",
    "train.steps=1",
    "train.eval_every=1",
    "eval.tokens=64",
]


def main() -> None:
    """Print seconds per run, the plan's apart."""
    with tempfile.TemporaryDirectory() as folder:
        here = f"results_dir={folder}/results"
        timed("dry_run=true", here)  # the corpus is tokenised once, and files are warm
        planning, _ = timed(*CELLS, here, "dry_run=true")
        whole, _ = timed(*CELLS, here)
        results = [json.loads(path.read_text()) for path in Path(folder).glob("results/runs/*/*/result.json")]
        work = sum(result["seconds"][phase] for result in results for phase in (*STEP, "evaluate"))
        workers = len(environments("cpu", "auto"))
        mirrored = len(list(Path(folder).glob("results/wandb/offline-run-*")))
        again, _ = timed(*CELLS, here)
    overhead = (whole - planning - work / workers) / len(results)
    print(f"{len(results)} runs, {mirrored} mirrored to W&B; whole command {whole:.1f} s on {workers} workers")
    print(
        f"planning (the same command with dry_run=true) {planning:.1f} s, training and evaluation {work:.1f} s of work"
    )
    print(f"overhead per run {overhead:.3f} s (to be at most 0.3)")
    print(f"second start, all done {again:.1f} s (to be at most 10)")


if __name__ == "__main__":
    main()
