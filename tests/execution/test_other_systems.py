"""What only Linux has, taken away: no fork, no prctl, no /proc, no CPU sets; and the numbers stay the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS, run_fresh
from crashing_norm import hazard, wait_for
from one_run import numbers

# Python imports a module of this name before anything else.
BARE = """
import builtins, ctypes, io, os

del os.fork, os.sched_getaffinity
opened, stat = io.open, os.stat


def bare(call):
    def without(file, *args, **more):
        if str(file).startswith("/proc"):
            raise FileNotFoundError(2, "not on this system", str(file))
        return call(file, *args, **more)
    return without


io.open = builtins.open = bare(opened)
os.stat = bare(stat)


class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)


ctypes.CDLL = Library
"""


@pytest.fixture
def bare(tmp_path) -> Path:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE)
    return tmp_path / "bare"


@pytest.mark.slow
def test_a_sweep_without_what_only_linux_has_gives_the_same_numbers(text, bare, tmp_path):
    """With a component from outside, whose checks and runs have processes of their own."""
    sweep = [*SHAPE, *STEPS, "data=text", f"data.path={text}", *hazard(tmp_path, "pass"), "-m", "norm=ln,hazard"]
    sweep += ["seeds=1", "train.parallel=1"]
    for name, path in (("linux", [tmp_path]), ("bare", [tmp_path, bare])):
        more = os.pathsep.join(map(str, path))
        done = run_fresh("ablate", *sweep, f"results_dir={tmp_path / name}", cwd=tmp_path, PYTHONPATH=more)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert len(numbers(tmp_path / "linux")) == 2 and numbers(tmp_path / "bare") == numbers(tmp_path / "linux")


def test_the_child_of_a_process_that_is_killed_ends(tmp_path):
    """However busy user code is."""
    code = (
        "import os, signal, time\n"
        "from functools import partial\n"
        "from ablate.planning.checks import child\n"
        "started = child.Child()\n"
        "print(started.process.pid, flush=True)\n"
        "started.ask(os.getpid, 60)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))\n"
        "started.ask(partial(time.sleep, 1000), 2000)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    wait_for(lambda: not is_running(int(found.stdout)))


def is_running(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
