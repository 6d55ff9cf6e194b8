"""What the benches share: a command line in a folder of its own, timed; the order of study files."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Study files in the order in which they are worth training.
ORDER = ["xiong_warmup", "xiong_gradients", "glu_variants", "batch_norm", "batch_norm_tuned", "rms_norm", "catalogue"]
ORDER += ["alibi_extrapolation", "mqar_width", "mqar_tuned", "qk_norm", "nope_lengths", "catalogue_2"]


def timed(*arguments: str, module: str = "ablate") -> tuple[float, str]:
    """Seconds that a command takes, and what it prints; it must end well."""
    start = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return time.perf_counter() - start, done.stdout


def cpu_seconds(code: str) -> float:
    """CPU-seconds of Python code in a process of its own, and of all that it starts; it must end well."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before, environment = used(), os.environ | {"PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    subprocess.run(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return used() - before


def by_value(names: Iterable[str]) -> list[str]:
    """Sort names of study files: those of `ORDER` first, the others alphabetically."""
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
