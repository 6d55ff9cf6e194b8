"""What the pool starts: a process that has loaded torch and this package, and starts those that train.

It runs nothing itself, so that each of them begins as clean as the first.  Runs of built-in components share one
process, in which a compiled model is made once, until one of them fails; a run with any part from outside has one of
its own, which is ended with all that it started.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import IO

from ablate.execution.fork import ALMOST, Child, adopt, clear, how_it_died, readable, start
from ablate.execution.orders import Answer, answer_of, line, order_of
from ablate.execution.signals import LEAVE, requested
from ablate.results.stored_targets import is_foreign

Serve = Callable[[socket.socket], None]
POLL = 0.1  # seconds between two polls of whether to stop
LATE = 0.5  # seconds beyond LEAVE after which who was told to stop is ended


class WorkerParent:
    """Has the orders that come on standard input carried out by its children, and writes their answers to `replies`."""

    def __init__(self, serve: Serve, replies: IO[str]):
        self.serve, self.replies = serve, replies
        self.shared: Child | None = None
        self.stop = threading.Event()
        self.read, self.ended = b"", False

    def work(self) -> None:
        """Hand on order after order until there are no more, somebody says stop, or a disk is full."""
        while text := self.next_order():
            answer = self.run(text, is_foreign(order_of(text).cell.config))
            if answer is None:
                os._exit(128 + signal.SIGTERM)
            # That a child leaves is no reason to leave: the next order has another.
            answer = dataclasses.replace(answer, leaving=bool(answer.full) or self.stopping())
            try:
                print(line(answer), end="", file=self.replies, flush=True)
            except OSError:  # the parent was killed; what there was to save is saved
                os._exit(1)
            if answer.leaving:
                return

    def run(self, order: str, is_private: bool) -> Answer | None:
        """The answer to an order, of a child of its own or the shared one; None where it did not stop in time."""
        child = self.start() if is_private else self.shared or self.start()
        self.shared = self.shared if is_private else child
        child.tell(order)
        text = self.wait(child)
        answer = answer_of(text) if text else None
        if answer is None or is_private or answer.leaving:
            self.shared = self.shared if is_private else None
            code = child.end(ALMOST if text == "" else 0)
            clear([self.shared.pid] if self.shared else [])
            answer = answer or Answer(status="failed", died=how_it_died(code))
        return None if text is None or (answer.died and self.stopping()) else answer

    def wait(self, child: Child) -> str | None:
        """What a process answers; empty when it ended without; None when it was told to stop and did not."""
        limit = None
        while (text := child.listen(POLL)) is None:
            if limit is None and self.stopping():
                child.no_more()
                limit = time.monotonic() + LEAVE + LATE
            if limit is not None and time.monotonic() > limit:
                return None
        return text

    def start(self) -> Child:
        """A process that serves orders, and holds nothing of this one's."""
        return start(self.serve, [self.replies.fileno(), *([self.shared.channel.fileno()] if self.shared else [])])

    def next_order(self) -> str:
        """The next order; nothing when no more will come."""
        while b"\n" not in self.read and not self.stopping(POLL):
            pass
        text, _, self.read = self.read.partition(b"\n")
        return "" if self.stopping() else text.decode()

    def stopping(self, seconds: float = 0) -> bool:
        """Whether to stop: by a signal, or for whoever gives orders has ended, however it did."""
        if not self.ended and readable(0, seconds):
            piece = os.read(0, 65536)
            self.read, self.ended = self.read + piece, not piece
        return self.ended or self.stop.is_set()


def serve_jobs(serve: Serve) -> None:
    """Be a worker's parent; the end of standard input, or SIGTERM, is the request to checkpoint and leave."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    parent = WorkerParent(serve, replies)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which closes our input
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, requested(parent.stop))
    adopt()
    try:
        parent.work()
    finally:
        clear([])
