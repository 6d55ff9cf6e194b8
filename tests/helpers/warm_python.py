"""`python -m module ...` by a copy of a process that has loaded the libraries and composed a cell: seconds sooner.

Where a command may import something else by our names, it is a copy of a process that has loaded the libraries alone.
A test whose subject is the process itself (what it imports, how it is killed) starts a new one: `conftest.run_fresh`.
The first workers of a sweep are such copies too, and the first commands that `make studies` starts.
"""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

LIBRARIES = ["torch._dynamo", "hydra.main", "msgspec", "pandas", "pyarrow", "scipy.stats", "seaborn", "jinja2"]
LIBRARIES += ["matplotlib.backends.backend_agg", "matplotlib.backends.backend_pdf", "pybtex.database", "rich.live"]
LIBRARIES += ["hydra.experimental.callback", "hydra.core.override_parser.overrides_parser", "safetensors.torch"]
OURS = ["ablate.api", "ablate.cli.sweep", "ablate.execution.worker", "ablate.training.trainer"]
OURS += ["analysis.cli.main", "ablate.execution.tracking.sender", "wandb.sdk.launch.inputs.internal"]
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300.0  # seconds
SIZE = 1 << 17  # bytes of a command and its environment
SLOTS = 4  # copies that wait to be what a command starts
LENT = (
    "ablate.planning.checks.child",
    "ablate.execution.worker",
    "ablate.cli.main",
    "ablate.execution.tracking.sender",
)


class Copy:
    """`python -m *command` with nothing to read from, in a session of its own, as `subprocess.Popen` shows it."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]):
        told: dict[str, Any] = {"command": command, "cwd": str(cwd), "environment": {**environment}}
        (out, write_out), (err, write_err), (self.keeper, theirs) = os.pipe(), os.pipe(), socket.socketpair()
        given = [write_out, write_err, theirs.detach()]
        ours = command[0].startswith(("ablate", "analysis")) and not any(cwd.glob("a[bn]*"))
        told["ours"] = ours and environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
        socket.send_fds(server(), [json.dumps(told).encode()], given)
        for number in given:
            os.close(number)
        self.command, self.said, self.returncode = command, {out: b"", err: b""}, None
        self.pid = int.from_bytes(self.keeper.recv(4))

    def poll(self, seconds: float = 0) -> int | None:
        """How it ended, if it did within some seconds: its exit code, negative for a signal."""
        if self.returncode is None and select.select([self.keeper], [], [], seconds)[0]:
            self.returncode = int.from_bytes(self.keeper.recv(4), signed=True)
            self.keeper.close()
        return self.returncode

    def communicate(self, timeout: float = LIMIT) -> tuple[str, str]:
        """All that it and what it started say on standard output and error, once nobody can say more."""
        limit, left = time.monotonic() + timeout, [*self.said]
        while left:
            ready = select.select(left, [], [], max(0.0, limit - time.monotonic()))[0]
            if not ready:
                raise subprocess.TimeoutExpired(self.command, timeout)
            for number in ready:
                if piece := os.read(number, 65536):
                    self.said[number] += piece
                else:
                    left.remove(number)
                    os.close(number)
        if self.poll(max(0.0, limit - time.monotonic())) is None:
            raise subprocess.TimeoutExpired(self.command, timeout)
        out, err = self.said.values()
        return out.decode(), err.decode()


def run_warm(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run([python, "-m", *command])` gives, with nothing to read from."""
    process = Copy(command, cwd, environment)
    try:
        out, err = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(command, process.poll(), out, err)


@functools.cache
def server() -> socket.socket:
    """The channel to the process that is copied, one for all workers of a session; it ends with its last channel."""
    path = Path(tempfile.gettempdir(), f"ablate-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}")
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(str(path))
                listener.listen()
                words = [sys.executable, "-P", __file__, str(listener.fileno())]
                process = subprocess.Popen(words, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
                atexit.register(process.wait)
        channel.connect(str(path))
    atexit.register(channel.close)  # before it is waited for: the last that is registered comes first
    return channel


def serve(listener: socket.socket) -> None:
    """Copy this process, or its copy with our modules, for one command after another while anybody is connected."""
    clients, ours = [listener.accept()[0]], None
    keepers: list[int] = []
    while clients or not closed(listener):
        for ready in select.select([listener, *clients], [], [])[0]:
            if ready is listener:
                clients.append(listener.accept()[0])
            elif not (received := socket.recv_fds(ready, SIZE, 3))[0]:
                clients.remove(ready)
            elif json.loads(received[0])["ours"]:
                ours = ours or start_ours([listener, *clients], received[1])
                socket.send_fds(ours, [received[0]], received[1])
                for number in received[1]:
                    os.close(number)
            else:
                keepers = copy(*received[:2], keepers)
    for keeper in keepers:
        os.waitpid(keeper, 0)


def closed(listener: socket.socket) -> bool:
    """Whether nobody connects any more: whoever comes later starts another server."""
    path = listener.getsockname()
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if select.select([listener], [], [], 0)[0]:
            return False
        for each in (path, f"{path}.lock"):
            os.unlink(each)
        return True


def copy(told: bytes, given: list[int], keepers: list[int]) -> list[int]:
    """Have a copy of this process be a command, with a keeper between; the keepers of those that run."""
    if not (pid := os.fork()):
        keep(socket.socket(fileno=given.pop()), given, **json.loads(told))
    for number in given:
        os.close(number)
    return [keeper for keeper in keepers if not os.waitpid(keeper, os.WNOHANG)[0]] + [pid]


def start_ours(channels: list[socket.socket], given: list[int]) -> socket.socket:
    """The channel to a copy that has loaded our modules, too, and done what every command does first with files of ours
    that no test changes; it closes what it inherits and is the server's."""
    near, far = socket.socketpair(type=socket.SOCK_SEQPACKET)
    if os.fork():
        far.close()
        return near
    for each in (near, *channels):
        each.close()
    for number in given:
        os.close(number)
    sys.path.insert(0, str(ROOT))
    for name in OURS:
        importlib.import_module(name)
    compose_a_cell()
    sys.path.remove(str(ROOT))
    gc.freeze()
    keepers: list[int] = []
    while (received := socket.recv_fds(far, SIZE, 3))[0]:
        keepers = copy(*received[:2], keepers)
    os._exit(0)


def keep(reply: socket.socket, streams: list[int], ours: bool, **told: Any) -> NoReturn:
    """Be the parent of a command, which tells its number itself; tell how it ended."""
    if not (pid := os.fork()):
        os.setsid()
        with reply:
            reply.sendall(os.getpid().to_bytes(4))
        become(streams, **told)
    for number in streams:
        os.close(number)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        reply.sendall(code.to_bytes(4, signed=True))
    os._exit(0)


def become(streams: list[int], command: list[str], cwd: str, environment: dict[str, str]) -> NoReturn:
    """Be the process of a command, from its first moment to its last."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate([os.open(os.devnull, os.O_RDONLY), *streams]):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    sys.path[:] = [cwd, *filter(None, environment["PYTHONPATH"].split(os.pathsep)), *sys.path]
    sys.argv[:] = ["-m", *command[1:]]  # as it is while Python finds the module
    if command[0].startswith("ablate"):
        lend_copies()
    end(lambda: runpy.run_module(command[0], run_name="__main__", alter_sys=True))


def end(begin: Callable[[], object]) -> NoReturn:
    """Carry out a program, and end as its interpreter would."""
    code: Any = 0
    try:
        begin()
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


def lend_copies() -> None:
    """Have a copy of this process be each of the first workers and studies that `subprocess.Popen` shall start."""
    waiting, start = [wait_to_begin() for _ in range(SLOTS)], subprocess._fork_exec

    def lent(args: list[str], *told: Any) -> int:
        if not waiting or not any(f"from {module} import main" in "".join(args[3:4]) for module in LENT):
            return start(args, *told)
        pid, channel = waiting.pop(0)
        environment = {**os.environ} if told[4] is None else dict(os.fsdecode(pair).split("=", 1) for pair in told[4])
        streams = {0: told[5], 1: told[8], 2: told[10]}
        given = {number: stream for number, stream in streams.items() if stream >= 0}
        if told[15] >= 0:
            with contextlib.suppress(OSError):
                os.setpgid(pid, told[15] or pid)
        words = json.dumps([args[3:], environment, [*given]]).encode()
        socket.send_fds(channel, [words], [*given.values()])
        channel.close()
        return pid

    subprocess._fork_exec = lent


def wait_to_begin() -> tuple[int, socket.socket]:
    """A copy of this process that becomes another once it is told its program, and ends where it is told nothing."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    if pid := os.fork():
        theirs.close()
        return pid, ours
    ours.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal's group, to which it belongs until it begins
    told, streams = socket.recv_fds(theirs, SIZE, 3)[:2]
    if not told:
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    theirs.close()
    (code, *words), environment, numbers = json.loads(told)
    for number, stream in zip(numbers, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["-c", *words]
    if words:  # of a command, which starts workers
        lend_copies()
    end(lambda: exec(code, {"__name__": "__main__"}))


def compose_a_cell() -> None:
    """Compose and hash the code."""

    from ablate.config.command import read_command
    from ablate.config.factors import compose_design
    from ablate.runs.key import code_of

    command, _ = read_command(["norm=ln,rms", "data=text"], None)
    _, cells, _ = compose_design(command)
    for cell in cells:
        code_of(cell.config)


if __name__ == "__main__":
    for name in LIBRARIES:
        importlib.import_module(name)
    for left in weakref.finalize._registry.values():
        left.atexit = False  # those of the libraries free what ends with the process, in a tenth of a second
    gc.freeze()  # or every copy would copy what its collector looks at
    os.set_inheritable(int(sys.argv[1]), False)
    serve(socket.socket(fileno=int(sys.argv[1])))
