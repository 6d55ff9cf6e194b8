"""Child processes: started, monitored, and ended with all their descendants.  Needs no torch.

A child is forked where that is safe, so that it shares loaded modules.  On macOS, whose libraries do not survive a
fork, and on systems without fork, a new interpreter imports them again: seconds later, with the same numbers.
Without Linux's prctl and /proc, a child polls whether its parent lives, and `ps` lists children; processes that a
component started in a separate session are not ended then.
"""

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from ablate.config.import_path import start_importing
from ablate.execution.pool import readable
from ablate.formatting.streams import prepare

FORKS = hasattr(os, "fork") and sys.platform != "darwin"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
PIECE = 65536  # bytes
POLL = 1.0  # seconds between checks whether the parent lives
ENDING = (signal.SIGTERM, signal.SIGHUP)
ALMOST = 1.0  # seconds to wait for a process to exit after its last message

Body = Callable[[socket.socket], None]


class Child:
    """A child process, with a socket for lines to it and from it; its standard streams are not used."""

    def __init__(self, pid: int, channel: socket.socket):
        self.pid, self.channel, self.received = pid, channel, b""
        self.code: int | None = None  # exit code, negative for a signal

    def receive(self, seconds: float) -> str | None:
        """The next line; None if none arrives within this time; empty if no more can arrive."""
        ended = self.ended()  # checked first: the loop below still reads what it sent before it ended
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
        """Whether the process has ended; processes that it started may still hold its channel open."""
        if self.code is None and (found := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.code = os.waitstatus_to_exitcode(found[1])
        return self.code is not None

    def end(self, seconds: float = 0) -> int:
        """Wait some seconds, then kill the process and the rest of its process group; returns its exit code."""
        limit = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < limit:
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.channel.close()
        return self.code


def start(body: Body) -> Child:
    """Start a process that calls `body` with its end of a channel and exits; it is killed if this process ends.

    It leads a new process group, reads nothing, ignores Ctrl-C and prints to standard error.  Only a body that can be
    pickled works on every system.
    """
    here, there = socket.socketpair()
    with there:
        return forked(body, here, there) if FORKS else spawned(body, here, there)


def forked(body: Body, here: socket.socket, there: socket.socket) -> Child:
    """`start` by forking this process."""
    flush()  # otherwise both processes would write the buffered output
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which the child does not need
        pid = os.fork()
    if pid == 0:
        here.close()
        run_child(body, there, parent)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # in both processes, so that it is done before any signal to the group
    return Child(pid, here)


def spawned(body: Body, here: socket.socket, there: socket.socket) -> Child:
    """`start` in a new interpreter, which reads `body` from its input."""
    os.set_inheritable(there.fileno(), True)
    arguments = json.dumps([there.fileno(), os.getpid(), sys.argv])
    reading, writing = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, reading, 0), (os.POSIX_SPAWN_DUP2, 2, 1)]
    command = [sys.executable, "-P", "-c", start_importing() + BEGIN, arguments]
    order = pickle.dumps(body)
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=streams, setpgroup=0)
    os.close(reading)
    with contextlib.suppress(OSError), open(writing, "wb") as pipe:  # it has already ended; `receive` reports that
        pipe.write(order)
    return Child(pid, here)


# The code of that interpreter: it gets this process's import path and command line.
BEGIN = """
import json, sys
number, parent, sys.argv = json.loads(sys.argv[1])
from ablate.planning.checks.child import begin
begin(number, parent)
"""


def begin(number: int, parent: int) -> None:
    """Entry point of a spawned process, with the file descriptor of its channel."""
    prepare()
    order = sys.stdin.buffer.read()
    run_child(lambda channel: pickle.loads(order)(channel), socket.socket(fileno=number), parent)


def run_child(body: Body, channel: socket.socket, parent: int) -> None:
    """Main function of a child process: set it up, call `body` and exit."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        if not prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
            threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()
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


def exit_with_parent(parent: int) -> None:
    """Exit once the parent has ended."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)


def become_subreaper() -> None:
    """Become the parent of orphaned descendants, if the system supports it."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_children() -> None:
    """Kill all children of this process, and then their orphaned children."""
    while strays := children():
        for pid in strays:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    """The process ids of this process's children."""
    return [pid for pid, parent in parents() if parent == os.getpid()]


def parents() -> Iterator[tuple[int, int]]:
    """All processes with their parents, from Linux's /proc, else from `ps` (without itself); nothing without both."""
    if Path("/proc/self/stat").exists():
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                yield int(file.parent.name), int(file.read_text(errors="replace").rpartition(")")[2].split()[1])
        return
    with contextlib.suppress(OSError):
        ps = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
        for line in ps.communicate()[0].splitlines():
            pid, parent = map(int, line.split())
            if pid != ps.pid:
                yield pid, parent


def prctl(option: int, value: int) -> bool:
    """Set an option of this process on Linux; returns whether it was set."""
    with contextlib.suppress(OSError, AttributeError):
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    return False


def flush() -> None:
    """Flush the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
