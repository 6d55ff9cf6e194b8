"""The program that the pool starts: a parent that has loaded torch and this package, and children that train.

The parent itself runs no user code, so that all children start in the same state.  Runs of built-in components share
one child, and thus its compiled models, until one of them fails.  A run with user code has a separate child, which is
ended with all its descendants.
"""

import contextlib
import dataclasses
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import IO

from ablate.config.targets import package_problem
from ablate.execution.fork import ALMOST, Child, become_subreaper, flush, how_it_died, kill_children, readable, start
from ablate.execution.pool import Answer, Order, answer_of, line, order_of
from ablate.execution.signals import LEAVE, DiskFull
from ablate.execution.train_run import train_run
from ablate.formatting.streams import prepare, say
from ablate.results.code_hash import code_of
from ablate.results.run_key import code_parts
from ablate.results.stored_targets import is_foreign
from ablate.training.devices import configure_torch

POLL = 0.1  # seconds between checks whether to stop
LATE = 0.5  # seconds beyond LEAVE after which a child that does not stop is killed


def main() -> None:
    """Run the worker's parent; the end of standard input, or SIGTERM, requests a checkpoint and exit."""
    prepare()
    code_of({})  # hashed once for all children, which check that the run is the planned one
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    parent = WorkerParent(replies)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which closes this input
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: parent.stop.set())
    become_subreaper()
    try:
        parent.serve_orders()
    finally:
        kill_children([])
    flush()
    os._exit(0)  # what it answered is flushed; unloading torch takes a second


class WorkerParent:
    """Passes the orders from standard input to its children, and writes their answers to `replies`."""

    def __init__(self, replies: IO[str]):
        self.replies = replies
        self.shared: Child | None = None
        self.stop = threading.Event()
        self.read, self.ended = b"", False

    def serve_orders(self) -> None:
        """Pass on orders until there are no more, a stop is requested, or a disk is full."""
        while text := self.next_order():
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
            answer = dataclasses.replace(answer, leaving=bool(answer.full) or self.stopping())
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
        return None if text is None or (answer.died and self.stopping()) else answer

    def wait(self, child: Child) -> str | None:
        """A child's answer; empty if it ended without one, None if it did not stop in time."""
        limit = None
        while (text := child.receive(POLL)) is None:
            if limit is None and self.stopping():
                with contextlib.suppress(OSError):  # tells the child that no more orders come
                    child.channel.shutdown(socket.SHUT_WR)
                limit = time.monotonic() + LEAVE + LATE
            if limit is not None and time.monotonic() > limit:
                return None
        return text

    def start(self) -> Child:
        """Start a child that serves orders, without this process's open channels."""
        return start(serve, [self.replies.fileno(), *([self.shared.channel.fileno()] if self.shared else [])])

    def next_order(self) -> str:
        """The next order; empty if there are no more."""
        while b"\n" not in self.read and not self.stopping(POLL):
            pass
        text, _, self.read = self.read.partition(b"\n")
        return "" if self.stopping() else text.decode()

    def stopping(self, seconds: float = 0) -> bool:
        """Whether to stop: after a signal, or once standard input has ended."""
        if not self.ended and readable(0, seconds):
            piece = os.read(0, 65536)
            self.read, self.ended = self.read + piece, not piece
        return self.ended or self.stop.is_set()


def serve(channel: socket.socket) -> None:
    """Train the runs ordered over a channel; its end, or SIGTERM, requests a checkpoint and exit.  A process that
    exceeds the grace period is killed; its run resumes from the last checkpoint."""
    configure_torch()
    stop, own = threading.Event(), os.getpid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())

    def end_late() -> None:
        stop.wait()
        time.sleep(LEAVE)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=end_late, daemon=True).start()
    orders: queue.Queue[str] = queue.Queue()

    def read_orders() -> None:  # until the channel ends, which requests a stop
        with channel.makefile() as lines:
            for text in lines:
                orders.put(text)
        stop.set()
        orders.put("")

    threading.Thread(target=read_orders, daemon=True).start()

    def stopped() -> bool:
        if os.getpid() != own:  # a fork that a component made of this process
            os._exit(1)
        return stop.is_set()

    while text := orders.get():
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
