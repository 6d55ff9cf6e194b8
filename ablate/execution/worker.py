"""The program that the pool starts: a parent that has loaded torch and this package, and children that train.

The parent itself runs no user code, so that all children start in the same state.  Runs of built-in components share
one child, and thus its compiled models, until one of them fails.  A run with user code has a separate child, which is
ended with all its descendants.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import IO

from ablate.config.targets import package_problem
from ablate.execution.fork import ALMOST, Child, become_subreaper, flush, how_it_died, kill_children, readable, start
from ablate.execution.pool import GRACE, Answer, Order, answer_of, line, order_of
from ablate.execution.signals import LEAVE, DiskFull
from ablate.execution.train_run import train_run
from ablate.formatting.streams import prepare, say
from ablate.results.code_hash import code_of
from ablate.results.run_key import code_parts, is_foreign
from ablate.training.devices import configure_torch

POLL = 0.1  # seconds between checks whether to stop


def main() -> None:
    """Run the worker's parent; the end of standard input, or SIGTERM, requests a checkpoint and exit."""
    prepare()
    code_of({})  # hashed once for all children, which check that the run is the planned one
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which closes this input
    become_subreaper()
    try:
        WorkerParent(replies).serve_orders()
    finally:
        kill_children([])
    flush()
    os._exit(0)  # what it answered is flushed; unloading torch takes a second


class Inbox:
    """Lines from a file descriptor, polled without a thread, which a fork would lose.  Their end, SIGTERM or SIGHUP
    requests to stop."""

    def __init__(self, source: int):
        self.source, self.read, self.ended = source, b"", False
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.end)

    def end(self, *_: object) -> None:
        """Request to stop; a process that exceeds the grace period is killed."""
        self.ended = True
        signal.alarm(int(GRACE))

    def next(self) -> str:
        """The next line; empty if there are no more."""
        while b"\n" not in self.read and not self.stopping(POLL):
            pass
        text, _, self.read = self.read.partition(b"\n")
        return "" if self.stopping() else text.decode()

    def stopping(self, seconds: float = 0) -> bool:
        """Whether to stop, after up to these seconds without a line."""
        if not self.ended and readable(self.source, seconds):
            piece = os.read(self.source, 65536)
            self.read, self.ended = self.read + piece, self.ended or not piece
        return self.ended


class WorkerParent:
    """Passes the orders from standard input to its children, and writes their answers to `replies`."""

    def __init__(self, replies: IO[str]):
        self.replies = replies
        self.shared: Child | None = None
        self.orders = Inbox(0)

    def serve_orders(self) -> None:
        """Pass on orders until there are no more, a stop is requested, or a disk is full."""
        while text := self.orders.next():
            order = order_of(text)
            # Every child would read anew what is installed, and the code of an order's built-in components.
            for package in order.user:
                package_problem(package)
            parts = code_parts(order.cell.config).items()
            code_of({at: target for at, target in parts if not is_foreign({"_target_": target})})
            answer = self.run(text, is_foreign(order.cell.config))
            if answer is None:
                os._exit(128 + signal.SIGTERM)
            # A child that leaves does not end this process: the next order starts another.
            answer = dataclasses.replace(answer, leaving=bool(answer.full) or self.orders.stopping())
            try:
                print(line(answer), end="", file=self.replies, flush=True)
            except OSError:  # the parent was killed; everything is already saved
                os._exit(1)
            if answer.leaving:
                return

    def run(self, order: str, is_private: bool) -> Answer | None:
        """The answer to an order, from the shared child or a private one; None if the child did not stop in time."""
        child = self.start() if is_private else self.shared or self.start()
        self.shared = self.shared if is_private else child
        child.send(order)
        text = self.wait(child)
        answer = answer_of(text) if text else None
        if answer is None or is_private or answer.leaving:
            self.shared = self.shared if is_private else None
            code = child.end(ALMOST if text == "" else 0)
            kill_children([self.shared.pid] if self.shared else [])
            answer = answer or Answer(status="failed", died=how_it_died(code))
        return None if text is None or (answer.died and self.orders.stopping()) else answer

    def wait(self, child: Child) -> str | None:
        """A child's answer; empty if it ended without one, None if it did not stop in time."""
        limit = None
        while (text := child.receive(POLL)) is None:
            if limit is None and self.orders.stopping():
                with contextlib.suppress(OSError):  # tells the child that no more orders come
                    child.channel.shutdown(socket.SHUT_WR)
                limit = time.monotonic() + LEAVE
            if limit is not None and time.monotonic() > limit:
                return None
        return text

    def start(self) -> Child:
        """Start a child that serves orders, without this process's open channels."""
        return start(serve, [self.replies.fileno(), *([self.shared.channel.fileno()] if self.shared else [])])


def serve(channel: socket.socket) -> None:
    """Train the runs ordered over a channel; its end, or SIGTERM, requests a checkpoint and exit."""
    configure_torch()
    orders, own = Inbox(channel.fileno()), os.getpid()

    def stopped() -> bool:
        if os.getpid() != own:  # a fork that a component made of this process
            os._exit(1)
        return orders.stopping()

    while text := orders.next():
        answer = handle_order(order_of(text), stopped)
        channel.sendall(line(answer).encode())
        if answer.leaving:
            break


def handle_order(order: Order, stopped: Callable[[], bool]) -> Answer:
    """Train one run; the answer has its status, the file that met a full disk, and whether this process must end."""
    status, full = "failed", ""
    try:
        status = train_run(order, stopped)
    except DiskFull as error:
        full = str(error.file)
    except OSError as error:  # such as a lock that is a folder; errors of training are in the result
        say(f"{error.filename2 or error.filename or order.path} cannot be used: {error.strerror or error}")
    # A failed run may have left the process in any state; after a request to stop there is nothing more to do.
    return Answer(status=status, full=full, leaving=status == "failed" or stopped())
