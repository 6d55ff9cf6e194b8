"""The program that the pool starts: a parent that has loaded torch and this package, and children that train.

The parent itself runs no user code, so that all children start in the same state.  Runs of built-in components share
one child, and thus its compiled models, until one of them fails.  A run with user code has a separate child, which is
ended with all its descendants; a run on several devices has one for each.
"""

import contextlib
import dataclasses
import math
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from ablate.config.targets import package_problem
from ablate.execution.fork import ALMOST, Child, become_subreaper, flush, how_it_died, kill_children, readable, start
from ablate.execution.pool import GRACE, Answer, Order, answer_of, line, order_of
from ablate.execution.signals import LEAVE, DiskFull
from ablate.execution.train_run import follow, train_run
from ablate.formatting.streams import prepare, say
from ablate.results.code_hash import code_of
from ablate.results.run import Run
from ablate.results.run_key import code_parts, is_foreign, numbers
from ablate.training.devices import configure_torch, task_of_job
from ablate.training.ranks import RankLost, join

POLL = 0.1  # seconds between checks whether to stop
# What tells jobs apart.
JOBS = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SUBMITIT_LOCAL_JOB_ID")


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
            parts = code_parts(order.cell.planned_config).items()
            code_of({at: target for at, target in parts if not is_foreign({"_target_": target})})
            answer = self.run(text, order)
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

    def run(self, text: str, order: Order) -> Answer | None:
        """The answer to an order, from the shared child or private ones; None if they did not stop in time."""
        devices = order.cell.planned_config.train.devices
        is_private = devices > 1 or is_foreign(numbers(order.cell.planned_config))
        with tempfile.TemporaryDirectory(prefix="ablate-") if devices > 1 else contextlib.nullcontext("") as folder:
            bodies: list[Callable[[socket.socket], None]] = [serve]
            if devices > 1:
                number, _, tasks = task_of_job()
                here = range(devices // tasks)
                bodies = [partial(serve, place=Place(number * len(here) + i, i, folder)) for i in here]
            children = [self.shared] if self.shared and not is_private else self.start(bodies)
            self.shared = self.shared if is_private else children[0]
            for child in children:
                with contextlib.suppress(OSError):  # it has ended
                    child.channel.sendall(text.encode() + b"\n")
            reply = self.wait(children)
            answer = answer_of(reply) if reply else None
            if answer is None or is_private or answer.leaving:
                self.shared = self.shared if is_private else None
                limit = time.monotonic() + ALMOST
                while answer and answer.died and time.monotonic() < limit and not any(c.ended() for c in children[1:]):
                    time.sleep(POLL)  # a killed process closes its connections before it has ended
                dead = next((child for child in children if child.ended() and child.code), children[0])
                code = dead.end(ALMOST if reply == "" else 0)
                for child in children:
                    child.end()
                kill_children([self.shared.pid] if self.shared else [])
                if answer is None or (answer.died and dead != children[0]):  # the first only lost touch with it
                    number = children.index(dead) + 1
                    which = "the worker process" if devices == 1 else f"process {number} of {len(children)}"
                    answer = Answer(status="failed", died=how_it_died(code, which))
        return None if reply is None or (answer.died and self.orders.stopping()) else answer

    def wait(self, children: list[Child]) -> str | None:
        """The first child's answer; empty if one of them died, None if they did not stop in time."""
        limit = math.inf
        while (reply := children[0].receive(POLL)) is None and time.monotonic() < limit:
            left = [child for child in children[1:] if child.ended()]
            if any(child.code for child in left):
                return ""
            if limit == math.inf and (left or self.orders.stopping()):
                for child in children if self.orders.stopping() else ():
                    with contextlib.suppress(OSError):  # tells the child that no more orders come
                        child.channel.shutdown(socket.SHUT_WR)
                limit = time.monotonic() + LEAVE
        return reply if reply is not None or self.orders.stopping() else ""

    def start(self, bodies: list[Callable[[socket.socket], None]]) -> list[Child]:
        """Start children that serve orders, without the open channels of this process."""
        held, children = [self.replies.fileno()], list[Child]()
        held += [self.shared.channel.fileno()] if self.shared else []
        for body in bodies:
            children.append(start(body, held))
            held.append(children[-1].channel.fileno())
        return children


class Place(NamedTuple):
    """The place of a child among the processes of its run, its number here, and a folder of this process's children."""

    rank: int
    local: int
    folder: str


def serve(channel: socket.socket, place: Place | None = None) -> None:
    """Train the runs ordered over a channel; its end, or SIGTERM, requests a checkpoint and exit."""
    configure_torch()
    orders, own = Inbox(channel.fileno()), os.getpid()

    def stopped() -> bool:
        if os.getpid() != own:  # a fork that a component made of this process
            os._exit(1)
        return orders.stopping()

    while text := orders.next():
        answer = handle_order(order_of(text), stopped, place)
        channel.sendall(line(answer).encode())
        if answer.leaving:
            break


def handle_order(order: Order, stopped: Callable[[], bool], place: Place | None = None) -> Answer:
    """Train one run; the answer has its status, the file that met a full disk, and whether this process must end."""
    status, full, lost = "failed", "", ""
    try:
        status = train_at(place, order, stopped) if place else train_run(order, stopped)
    except DiskFull as error:
        full = str(error.file)
    except RankLost as error:
        lost = str(error)
    except OSError as error:  # such as a lock that is a folder; errors of training are in the result
        say(f"{error.filename2 or error.filename or order.path} cannot be used: {error.strerror or error}")
    # A failed run may have left the process in any state; after a request to stop there is nothing more to do.
    return Answer(status=status, full=full, died=lost, leaving=status == "failed" or stopped())


def train_at(place: Place, order: Order, stopped: Callable[[], bool]) -> str:
    """Train one run with the other processes that train it; returns its status.  Raises RankLost if they are lost."""
    train, run, tasks = order.cell.planned_config.train, Run(Path(order.results), order.path), task_of_job()[2]
    if train.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[place.local]
    job = "-".join(os.environ.get(name, "") for name in JOBS)  # another job may want the same run
    address = run.folder / f".ranks.{job}.tmp" if tasks > 1 else Path(place.folder) / "address"
    ranks = join(place.rank, train.devices, address, train.device, is_local=tasks == 1)
    if ranks.rank:
        return follow(order, stopped, ranks, Path(place.folder) / str(place.local))
    status = train_run(order, stopped, ranks)
    if status != "failed":  # then the others may be anywhere; they notice that this process ends
        with contextlib.suppress(RankLost):
            ranks.from_first(status)
    return status
