"""A process started from this one, watched, and ended with all that it started.  Nothing here needs torch.

Where it is safe the process is forked: it has loaded what this one has.  On macOS, whose own libraries do not survive a
fork, and where a system has none, a new interpreter loads it all again: seconds later, with the same numbers.  Without
Linux's prctl and /proc a process polls whether its parent lives, and children are listed by `ps`; what a component left
behind in a separate session stays.
"""

import contextlib
import ctypes
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ablate.config.import_path import start_importing
from ablate.formatting.streams import prepare

FORKS = hasattr(os, "fork") and sys.platform != "darwin"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
PIECE = 65536  # bytes
POLL = 1.0  # seconds between two polls of whether the parent lives
ENDING = (signal.SIGTERM, signal.SIGHUP)
ALMOST = 1.0  # seconds from the last message of a process to its end

Body = Callable[[socket.socket], None]


class Child:
    """Another process: lines go to it and come back over a socket, not over its standard streams."""

    def __init__(self, pid: int, channel: socket.socket):
        self.pid, self.channel, self.received = pid, channel, b""
        self.code: int | None = None  # of its end, negative for a signal

    def send(self, line: str) -> None:
        """Send a line; ignored where the process has ended."""
        with contextlib.suppress(OSError):
            self.channel.sendall(line.encode() + b"\n")

    def receive(self, seconds: float) -> str | None:
        """The next line; None where none came within some seconds; empty where none can come any more."""
        ended = self.ended()  # first: what it sent before its end is read below
        while b"\n" not in self.received:
            if not readable(self.channel, 0 if ended else seconds):
                return "" if ended else None
            try:
                piece = self.channel.recv(PIECE)
            except OSError:
                piece = b""
            if not piece:
                return ""
            self.received += piece
        line, _, self.received = self.received.partition(b"\n")
        return line.decode(errors="replace")

    def ended(self) -> bool:
        """Whether the process has ended: its channel can be open all the same, in a process that it left behind."""
        if self.code is None and (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(found[1])
        return self.code is not None

    def end(self, seconds: float = 0) -> int:
        """End the process, if it does not by itself in some seconds, and what stayed in its group; its exit code."""
        limit = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < limit:
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.channel.close()
        return self.code


def start(body: Body, held: Iterable[int] = ()) -> Child:
    """Start a process that does `body` with its end of the channel and ends; it dies with this one.

    It is the leader of a group of its own, reads nothing, ignores Ctrl-C and prints to standard error; files that are
    `held` here are closed there.  A body that can be pickled works on every system.
    """
    here, there = socket.socketpair()
    with there:
        return forked(body, held, here, there) if FORKS else spawned(body, here, there)


def forked(body: Body, held: Iterable[int], here: socket.socket, there: socket.socket) -> Child:
    """`start` by a copy of this process."""
    flush()  # or both would write what stands in the buffers
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the copy lacks: it needs none of them
        pid = os.fork()
    if pid == 0:
        here.close()
        for number in held:
            os.close(number)
        live(body, there, parent)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # here and there: before anything is sent to the group
    return Child(pid, here)


def spawned(body: Body, here: socket.socket, there: socket.socket) -> Child:
    """`start` by a new interpreter, which receives over the channel what to do."""
    os.set_inheritable(there.fileno(), True)
    arguments = json.dumps([there.fileno(), os.getpid(), sys.argv])
    streams = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    command = [sys.executable, "-P", "-c", start_importing() + BEGIN, arguments]
    order = pickle.dumps(body)
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=streams, setpgroup=0)
    with contextlib.suppress(OSError):  # it has ended already, which `receive` shows
        here.sendall(len(order).to_bytes(8) + order)
    return Child(pid, here)


# What such an interpreter runs: like a copy of this process it finds the same modules and knows the same command line.
BEGIN = """
import json, sys
number, parent, sys.argv = json.loads(sys.argv[1])
from ablate.execution.fork import begin
begin(number, parent)
"""


def begin(number: int, parent: int) -> None:
    """What a spawned process does first, with the file number of its channel."""
    prepare()
    order = lambda channel: pickle.loads(exactly(channel, int.from_bytes(exactly(channel, 8))))(channel)  # noqa: E731
    live(order, socket.socket(fileno=number), parent)


def exactly(channel: socket.socket, size: int) -> bytes:
    """So many bytes of a channel and none beyond them; fewer where it ends.  A signal may cut MSG_WAITALL short."""
    received = b""
    while len(received) < size and (piece := channel.recv(size - len(received))):
        received += piece
    return received


def live(body: Body, channel: socket.socket, parent: int) -> None:
    """What a started process does from its first moment to its last."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        if not prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
            threading.Thread(target=follow, args=(parent,), daemon=True).start()
        if os.getppid() == parent:
            signal.set_wakeup_fd(-1)
            for number, handler in ((signal.SIGINT, signal.SIG_IGN), *dict.fromkeys(ENDING, signal.SIG_DFL).items()):
                signal.signal(number, handler)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)
            body(channel)
            code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        flush()
        os._exit(code)


def follow(parent: int) -> None:
    """End this process once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


def adopt() -> None:
    """Make this process the parent of whatever its children leave behind, where the system can do that."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def clear(kept: Iterable[int]) -> None:
    """End every child of this process but those that are kept, and in turn what these leave behind."""
    kept = set(kept)
    while strays := [pid for pid in children() if pid not in kept]:
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    """The processes whose parent is this one."""
    own = os.getpid()
    return [pid for pid, parent in (parents() if Path("/proc/self/stat").exists() else listed()) if parent == own]


def parents() -> Iterator[tuple[int, int]]:
    """Every process and its parent, as Linux shows them."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            yield int(file.parent.name), int(file.read_text(errors="replace").rpartition(")")[2].split()[1])


def listed() -> Iterator[tuple[int, int]]:
    """Every process but `ps` and its parent, by `ps`; nothing where there is none."""
    with contextlib.suppress(OSError):
        ps = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
        for line in ps.communicate()[0].splitlines():
            pid, parent = map(int, line.split())
            if pid != ps.pid:
                yield pid, parent


def how_it_died(code: int, which: str = "the worker process") -> str:
    """A process's end in words."""
    if code >= 0:
        return f"{which} ended with exit code {code}"
    hint = "; was the machine out of memory?" if code == -9 else ""
    return f"{which} was killed by signal {-code}{hint}"


def program(module: str) -> list[str]:
    """The command that calls `main` of a module in a process with this one's import path.

    `python -m` would put the working folder first, where a user's random.py would be taken for Python's.
    """
    return [sys.executable, "-P", "-c", f"{start_importing()}; from {module} import main; main()"]


def readable(channel: socket.socket | int, seconds: float) -> bool:
    """Whether something can be read, or the end, within some seconds."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def prctl(option: int, value: int) -> bool:
    """Set an option of this process on Linux: whether it was set; other systems have none."""
    try:
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def flush() -> None:
    """Write what stands in the buffers of the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
