"""A norm of a user's own that does something bad in workers, and how sweeps that may die are started and watched."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from conftest import latest, start_module

STARTED: list[int] = []  # sessions that no test may leave behind

NORM = """
import os, signal, sys, time
from pathlib import Path
import torch

HERE = Path(__file__).parent
WORKS = any("from ablate.execution." in word for word in sys.orig_argv)  # not in the process that plans


class Hazard(torch.nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        if WORKS:
            self.strike(x)
        return x * self.weight

    def strike(self, x):
        {strike}
"""


def hazard(folder: Path, strike: str) -> list[str]:
    """Write the norm `hazard`, whose `strike(self, x)` is one statement; the arguments that make it known."""
    for part in ("mine", "conf/norm"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "__init__.py").write_text("")
    (folder / "mine" / "norms.py").write_text(NORM.replace("{strike}", strike))
    (folder / "conf" / "norm" / "hazard.yaml").write_text("# Hazard.\n_target_: mine.norms.Hazard\n_partial_: true\n")
    return ["user=[mine]", "--config-dir=conf"]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The command line as a session of its own, as a terminal starts it; packages in `cwd` can be imported."""
    process = start_module("ablate", *latest(*arguments), cwd=cwd, PYTHONPATH=str(cwd))
    STARTED.append(process.pid)
    return process


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is so; fails after a while."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def training(results: Path, least: int) -> bool:
    """Whether some run has logged this many rows."""
    return any(file.read_bytes().count(b"\n") >= least for file in results.glob("runs/*/*/metrics.jsonl"))


def processes(session: int) -> list[int]:
    """The processes of the session that `start` began, workers included."""
    listed = subprocess.run(["ps", "-eo", "sid,pid,stat"], capture_output=True, text=True).stdout.splitlines()[1:]
    fields = (line.split() for line in listed)
    return [int(pid) for sid, pid, state in fields if sid == str(session) and not state.startswith("Z")]


def workers(sweep: int) -> list[int]:
    """The workers of a sweep: those of its children that lead a group of their own."""
    return [pid for pid in children(sweep) if os.getpgid(pid) == pid]


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout
    return [int(pid) for pid in listed.split()]


def session_is_gone(session: int) -> bool:
    """Whether no process of a session is left."""
    return not processes(session)


def kill_session(session: int) -> None:
    """Kill every process of a session at once, as a machine that goes down does."""
    for pid in processes(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
