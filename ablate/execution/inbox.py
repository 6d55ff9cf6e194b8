"""The input of a process that trains: orders, and the request to stop."""

import os
import queue
import signal
import sys
import threading
from typing import IO, NoReturn

from ablate.execution.pool import GRACE_SECONDS


def take_streams() -> tuple[IO[str], IO[str]]:
    """Standard input and output, in whose place components read nothing and print to standard error."""
    orders = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return orders, answers


class Inbox:
    """The lines of a stream, read by a thread; their end, SIGTERM or SIGHUP asks to stop."""

    def __init__(self, stream: IO[str]):
        self.stream = stream
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stopped = False
        self.pid = os.getpid()
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGHUP, self.stop)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Read lines to their end."""
        for text in self.stream:
            self.lines.put(text)
        self.stop()

    def stop(self, *_: object) -> None:
        """Ask to stop; the system kills this process if it takes longer than the grace period."""
        self.stopped = True
        self.lines.put("")
        signal.alarm(int(GRACE_SECONDS))

    def next(self) -> str:
        """The next line; empty if there are no more."""
        text = self.lines.get()
        return "" if self.stopped else text

    def should_stop(self) -> bool:
        """Whether to stop.  A copy of this process that a component forked ends here."""
        if os.getpid() != self.pid:
            os._exit(1)
        return self.stopped


def exit_at_once() -> NoReturn:
    """Exit without unloading torch, which takes a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
