"""`python -m module ...` by a copy of a process that has loaded the libraries, but nothing of ours: seconds sooner.

A test whose subject is the process itself (what it imports, how it is killed) starts a new one: `conftest.run_fresh`.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

LIBRARIES = ["torch._dynamo", "hydra.main", "msgspec", "pandas", "pyarrow", "scipy.stats", "seaborn", "jinja2"]
LIBRARIES += ["matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "pybtex.database", "rich.live"]
LIBRARIES += ["hydra.experimental.callback", "hydra.core.override_parser.overrides_parser", "safetensors.torch"]
LIMIT = 300.0  # seconds


@functools.cache
def server() -> socket.socket:
    """The channel to this session's process that is copied; it ends when the channel does."""
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, str(number)], pass_fds=[number], stdin=subprocess.DEVNULL
    )
    theirs.close()
    ours.settimeout(LIMIT)
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def run_warm(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run([python, "-m", *command])` gives, with nothing to read from."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        told = {"command": command, "cwd": str(cwd), "environment": {**environment}, "out": str(out), "err": str(err)}
        channel = server()
        channel.sendall(json.dumps(told).encode() + b"\n")
        pid = int.from_bytes(channel.recv(4))
        try:
            code = int.from_bytes(channel.recv(4), signed=True)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            channel.recv(4)
            raise
        return subprocess.CompletedProcess(command, code, out.read_text(), err.read_text())


def serve(channel: socket.socket) -> None:
    """Copy this process for one command after another, and tell the number of each and how it ended."""
    for line in channel.makefile():
        if not (pid := os.fork()):
            become(**json.loads(line))
        channel.sendall(pid.to_bytes(4))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.sendall(code.to_bytes(4, signed=True))


def become(command: list[str], cwd: str, environment: dict[str, str], out: str, err: str) -> NoReturn:
    """Be the process of a command, from its first moment to its last."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate((os.devnull, out, err)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    sys.path[:] = [cwd, *filter(None, environment["PYTHONPATH"].split(os.pathsep)), *sys.path]
    sys.argv[:] = command
    code: Any = 0
    try:
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # or every copy would copy what its collector looks at
    os.set_inheritable(int(sys.argv[1]), False)
    serve(socket.socket(fileno=int(sys.argv[1])))
