"""`scale=small` on tiny Shakespeare against nanoGPT's published recipe: mean of validation and test loss.

python benchmarks/bench_shakespeare.py TINYSHAKESPEARE.txt [key=value ...]
"""

import sys
import tempfile
from pathlib import Path

from common import timed

from ablate.results.manifest import newest_study
from ablate.results.study import load_study


def main() -> None:
    """Print the mean of both held-out losses, per seed."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        text = ["data=text", f"data.path={sys.argv[1]}", "data.tokenizer=char", f"results_dir={results}", "track=none"]
        seconds, _ = timed("scale=small", "position=learned", "ffn=gelu", "seeds=2", *text, *sys.argv[2:])
        runs = load_study(results, newest_study(results) or "").runs
    for seed, loss in zip(runs["seed"], (runs["val/loss"] + runs["test/loss"]) / 2, strict=True):
        print(f"seed {seed}: {loss:.4f}")
    mean = (runs["val/loss"] + runs["test/loss"]).mean() / 2
    print(f"mean of validation and test loss {mean:.4f} nats per character (to be at most 1.90); {seconds:.0f} s")


if __name__ == "__main__":
    main()
