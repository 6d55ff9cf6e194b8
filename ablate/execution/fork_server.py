"""What the pool starts: a process that has loaded torch and this package, and starts those that carry runs out.

It runs nothing itself, so that each of them begins as clean as the first.  Runs of our components only share one
process, in which a compiled model is made once, until one of them fails; a run with any part from outside has one of
its own, which is ended with all that it started.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ablate.config.errors import Corrupt
from ablate.config.typed_json import parse
from ablate.execution.fork import ALMOST, Child, adopt, clear, how_it_died, readable, start
from ablate.execution.messages import Answer, Job, Order, answer_of
from ablate.execution.messages import line as to_line
from ablate.execution.signals import LEAVE, requested
from ablate.results.stored_targets import is_foreign
from ablate.results.unit_file import read_unit

Serve = Callable[[socket.socket], None]
POLL = 0.1  # seconds between two polls of whether to stop
LATE = 0.5  # seconds beyond LEAVE after which who was told to stop is ended


class Nursery:
    """Carries out the jobs that come on standard input, and answers each with a line to `replies`."""

    def __init__(self, serve: Serve, replies: IO[str]):
        self.serve, self.replies = serve, replies
        self.shared: Child | None = None
        self.stop = threading.Event()
        self.read, self.ended = b"", False

    def work(self) -> None:
        """Do job after job until there are no more, somebody says stop, or a disk is full."""
        while line := self.next_job():
            answer = self.do(parse(Job, json.loads(line)))
            if answer is None:
                os._exit(128 + signal.SIGTERM)
            try:
                print(to_line(answer), end="", file=self.replies, flush=True)
            except OSError:  # the parent was killed; what there was to save is saved
                os._exit(1)
            if answer.leaving:
                return

    def do(self, job: Job) -> Answer | None:
        """A job's answer: its runs' statuses, or how a process died; None when one did not stop in time."""
        statuses: list[str] = []
        try:
            runs = read_unit(Path(job.results), job.study, job.unit)
        except (Corrupt, OSError) as error:
            return Answer(statuses=[], died=str(error))
        for run in runs:
            answer = self.carry_out(
                Order(results=job.results, run=run, user=job.user, wait=job.wait), is_foreign(run.cell.config)
            )
            if answer is None:
                return None
            if answer.died or answer.full:
                return dataclasses.replace(answer, leaving=bool(answer.full))
            statuses += answer.statuses
        return Answer(statuses=statuses, leaving=self.told())

    def carry_out(self, order: Order, alone: bool) -> Answer | None:
        """One run, in a fork of its own or in the shared one: the answer to an order."""
        child = self.start() if alone else self.shared or self.start()
        self.shared = self.shared if alone else child
        child.tell(to_line(order).rstrip())
        line = self.wait(child)
        answer = answer_of(line) if line else None
        if answer is None or alone or answer.leaving:
            self.shared = self.shared if alone else None
            code = child.end(ALMOST if line == "" else 0)
            clear([self.shared.pid] if self.shared else [])
            answer = answer or Answer(statuses=[], died=how_it_died(code))
        return None if line is None or (answer.died and self.told()) else answer

    def wait(self, child: Child) -> str | None:
        """What a process answers; empty when it ended without; None when it was told to stop and did not."""
        limit = None
        while (line := child.listen(POLL)) is None:
            if limit is None and self.told():
                child.no_more()
                limit = time.monotonic() + LEAVE + LATE
            if limit is not None and time.monotonic() > limit:
                return None
        return line

    def start(self) -> Child:
        """A process that serves orders, and holds nothing of this one's."""
        return start(self.serve, [self.replies.fileno(), *([self.shared.channel.fileno()] if self.shared else [])])

    def next_job(self) -> bytes:
        """The next job; nothing when no more will come."""
        while b"\n" not in self.read and not self.told(POLL):
            pass
        line, _, self.read = self.read.partition(b"\n")
        return b"" if self.told() else line

    def told(self, seconds: float = 0) -> bool:
        """Whether to stop: by a signal, or for whoever gives jobs has ended, however it did."""
        if not self.ended and readable(0, seconds):
            piece = os.read(0, 65536)
            self.read, self.ended = self.read + piece, not piece
        return self.ended or self.stop.is_set()


def tend(serve: Serve) -> None:
    """Be a nursery; the end of standard input, or SIGTERM, is the request to checkpoint and leave."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    nursery = Nursery(serve, replies)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which closes our input
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, requested(nursery.stop))
    adopt()
    try:
        nursery.work()
    finally:
        clear([])
