"""How the time of a sweep grows with its cells, its seeds and its context, and what starting it and each cell costs.

python benchmarks/growth.py [--most 200] [OVERRIDE ...]
"""

import argparse
import json
import tempfile
from pathlib import Path

from common import cpu_seconds, timed

from ablate.training.clock import STEP
from ablate.training.devices import environments

SHORT = {"train.steps": "20", "train.eval_every": "20", "eval.tokens": "1024", "seeds": "1", "track": "none"}
GROWING = {
    "cells": [{"optim.warmup": f"range({count})"} for count in (1, 2, 4, 8, 16)],
    "seeds": [{"seeds": str(count)} for count in (1, 2, 4, 8, 16)],
    "context": [{"data.context": str(length)} for length in (64, 128, 256, 512)],
}
ONE_STEP = {"train.steps": "1", "train.eval_every": "1", "eval.tokens": "64"}
CELLS = (25, 50, 100, 200, 400, 1000)
PLANNED = ["norm=ln,rms,none", "ffn=mlp,gelu,silu,swiglu", "optim.warmup=range(83)"]  # 996 cells
TWELVE = {"norm": "ln,rms", "ffn": "mlp,gelu", "seeds": "3"}


def main() -> None:
    """Print a line per size, with its ratio to the one before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=200, help="cells of one step")
    parser.add_argument("more", nargs="*")
    asked = parser.parse_args()
    more = dict(word.split("=", 1) for word in asked.more)
    sweep(SHORT | more)  # the corpus is tokenised once, and files are warm
    starts(SHORT | more)
    for name, sizes in GROWING.items():
        before = None
        for size in sizes:
            whole, work, _ = sweep(SHORT | more | size)
            [value] = size.values()
            print(f"{name} {value:10} {whole:7.1f} s, {work:7.1f} s of training and evaluation{ratio(whole, before)}")
            before = whole
    workers, before = len(environments("cpu", "auto")), None
    for count in (count for count in CELLS if count <= asked.most):
        whole, work, runs = sweep(SHORT | more | ONE_STEP | {"optim.warmup": f"range({count})"})
        beyond = (whole - work / workers) / runs
        print(f"{count:4} cells of one step {whole:7.1f} s, {beyond:.3f} s each beyond training{ratio(whole, before)}")
        before = whole


def starts(words: dict[str, str]) -> None:
    """Print CPU-seconds of planning a large grid, twice, and of starting a finished sweep of 12 runs again."""
    with tempfile.TemporaryDirectory() as folder:
        given = [*PLANNED, *texts(words), f"results_dir={folder}"]
        first, again = (cpu_seconds(f"import ablate; ablate.plan(*{given})") for _ in range(2))
        print(f"planning 996 cells {first:.1f} CPU-s, with what checks have kept {again:.1f} (to be at most 30)")
        given = [*texts(words | TWELVE), f"results_dir={folder}"]
        timed("-m", *given)
        torch = min(cpu_seconds("import torch") for _ in range(3))
        start = f"import sys; sys.argv[1:] = {['-m', *given]}; from ablate.cli.main import main; main()"
        second = min(cpu_seconds(start) for _ in range(3))
        print(f"second start of 12 runs {second:.2f} CPU-s, {second / torch:.2f} × import torch (to be at most 1)")


def texts(words: dict[str, str]) -> list[str]:
    """Overrides as they are typed."""
    return [f"{key}={value}" for key, value in words.items()]


def sweep(words: dict[str, str]) -> tuple[float, float, int]:
    """Seconds of a sweep from start to summary, those of its training and evaluation, and how many runs it has."""
    with tempfile.TemporaryDirectory() as folder:
        whole, _ = timed("-m", *texts(words), f"results_dir={folder}")
        results = [json.loads(file.read_text()) for file in Path(folder).glob("runs/*/*/result.json")]
    work = sum(result["seconds"][phase] for result in results for phase in (*STEP, "evaluate"))
    return whole, work, len(results)


def ratio(seconds: float, before: float | None) -> str:
    """How many times as long as the size before, in words."""
    return f", × {seconds / before:.2f}" if before else ""


if __name__ == "__main__":
    main()
