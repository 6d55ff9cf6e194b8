"""What the benches share: a command line in a folder of its own, timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
