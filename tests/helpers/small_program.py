"""A small program, its command, and what a study of it leaves in the current folder."""

import json
import sys
from pathlib import Path

from ablate.cli.program import main

NOISE = [[0.011, -0.02, 0.007, 0.0, 0.015], [0.013, -0.017, 0.004, 0.002, 0.011]]  # by bias and seed
TRAIN = f"""\
import argparse, pathlib
parser = argparse.ArgumentParser()
for name in ("bias", "seed", "out"):
    parser.add_argument(f"--{{name}}", default="0")
options = parser.parse_args()
loss = 2 - 0.05 * (options.bias == "1") + {NOISE}[int(options.bias)][int(options.seed) % 5]
for step in (10, 20):
    print(f"step {{step}}: val loss {{loss + (20 - step) / 10:.6f}}", flush=True)
"""
COMMAND = f"{sys.executable} train.py --bias={{bias}} --seed={{seed}} --out={{out}}"
WORDS = ["bias=0,1", "metric=val/loss"]


def run(*words: str, command: str = COMMAND) -> int:
    return main([command, *words])


def results() -> list[dict[str, object]]:
    """The results on disk, in order of their folders."""
    return [json.loads(file.read_text()) for file in sorted(Path("results").rglob("result.json"))]


def errors() -> list[str]:
    """The messages of failed runs."""
    return [str(result["error"]["message"]) for result in results() if result["error"]]  # type: ignore[index]
