"""A process forked from this one, watched, and put away with all that it started.  Nothing here needs torch."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of Linux's prctl
PIECE = 65536  # bytes
ENDING = (signal.SIGTERM, signal.SIGHUP)
ALMOST = 1.0  # seconds from the last that is heard of a process to its end


class Child:
    """A forked process: lines go to it and come back over a channel of its own, which is none of 0, 1 and 2."""

    def __init__(self, pid: int, channel: socket.socket):
        self.pid, self.channel, self.received = pid, channel, b""
        self.code: int | None = None  # of its end, negative for a signal

    def tell(self, line: str) -> None:
        """Send a line; nothing where nobody reads any more."""
        with contextlib.suppress(OSError):
            self.channel.sendall(line.encode() + b"\n")

    def no_more(self) -> None:
        """Say that no further line will come."""
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_WR)

    def listen(self, seconds: float) -> str | None:
        """The next line; None where none came within some seconds; empty where none can come any more."""
        ended = self.ended()  # asked first: what it said before its end is read below
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


def fork(body: Callable[[socket.socket], None]) -> Child:
    """Start a process that does `body` with its end of the channel and ends; it dies with this one.

    It is the leader of a group of its own, reads nothing, ignores Ctrl-C and prints to standard error.
    """
    ours, theirs = socket.socketpair()
    flush()  # or both would write what stands in the buffers
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the copy lacks: it needs none of them
        pid = os.fork()
    if pid == 0:
        ours.close()
        live(body, theirs, parent)
    theirs.close()
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # here and there: nobody may come before it is so
    return Child(pid, ours)


def live(body: Callable[[socket.socket], None], channel: socket.socket, parent: int) -> None:
    """What a forked process does from its first moment to its last."""
    code = 1
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
    """The processes whose parent is this one; none where the system does not tell."""
    own, found = str(os.getpid()), []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if file.read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                found.append(int(file.parent.name))
    return found


def how_it_died(code: int, which: str = "the worker process") -> str:
    """A process's end in words."""
    if code >= 0:
        return f"{which} ended with exit code {code}"
    hint = "; was the machine out of memory?" if code == -9 else ""
    return f"{which} was killed by signal {-code}{hint}"


def readable(channel: socket.socket | int, seconds: float) -> bool:
    """Whether something can be read, or the end, within some seconds."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def prctl(option: int, value: int) -> None:
    """Tell Linux about this process; nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def flush() -> None:
    """Write what stands in the buffers of the standard streams, where somebody takes it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
