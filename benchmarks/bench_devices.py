"""How many times as fast a step at 10 M parameters is on two CPU cores as on one: train.devices=2 against 1, in turns.

python benchmarks/bench_devices.py [ROUNDS]
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from common import timed

WORDS = ["scale=base", "train.batch_size=8", "train.parts=2", "train.steps=12", "train.eval_every=12", "seeds=1"]
WORDS += ["train.parallel=1", "train.compile=false", "optim.warmup=2", "eval.tokens=2048", "reuse=none", "track=none"]


def step_seconds(devices: int) -> float:
    """Mean seconds of a training step of a run on so many devices."""
    with tempfile.TemporaryDirectory() as folder:
        timed(*WORDS, f"train.devices={devices}", f"results_dir={folder}")
        [file] = Path(folder).glob("runs/*/*/result.json")
        return float(json.loads(file.read_text())["step_seconds"])


def main() -> None:
    """Print the seconds of each round, and the ratio of their medians and of their least."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        for devices, seconds in found.items():
            seconds.append(step_seconds(devices))
        print(f"one device {found[1][-1]:.3f} s, two {found[2][-1]:.3f} s", flush=True)
    middle, least = (pick(found[1]) / pick(found[2]) for pick in (statistics.median, min))
    print(f"two devices are {middle:.2f} times as fast, by the least of each {least:.2f} times (to be at least 1.6)")


if __name__ == "__main__":
    main()
