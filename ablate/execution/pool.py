"""Runs side by side on this machine: one worker process per CPU core, or one per GPU, each on its own device.

A worker that dies takes nothing with it but its run; workers whose parent dies see their input end, and stop.  What the
processes send each other is a line of JSON: an order to train one run, and its answer.
"""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence

from ablate.config.typed_json import Record, parse, record
from ablate.execution.fork import how_it_died, program
from ablate.execution.signals import LEAVE, DiskFull
from ablate.results.records import Cell


@record
class Order(Record):
    """All that a worker needs to train a run.

    `user` are the packages that the command allows: files allow none.  `wait` where another process trains it.
    """

    results: str
    path: str  # <cell's name>/<key>
    seed: int
    cell: Cell
    user: list[str]
    wait: bool = False


@record
class Answer(Record):
    """How a run ended, the file that had no space, or how the process died.

    `leaving` says that who answers takes no further order.
    """

    status: str
    leaving: bool = False
    full: str = ""
    died: str = ""


def line(message: Record) -> str:
    """A message as it is sent."""
    return json.dumps(message.as_json()) + "\n"


def order_of(text: str) -> Order:
    """The order in a line."""
    return parse(Order, json.loads(text))


def answer_of(text: str) -> Answer | None:
    """The answer in a line; None where a component wrote something else to where answers go."""
    try:
        return parse(Answer, json.loads(text))
    except ValueError:
        return None


GRACE = LEAVE + 1.5  # seconds for workers to write their checkpoints before they are killed
INTERRUPTED = Answer(status="interrupted")


class Pool:
    """Worker processes with one thread each to feed them."""

    def __init__(self, environments: Sequence[dict[str, str]]):
        self.environments = environments
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self.closing = False
        self.full: DiskFull | None = None

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        """Carry out orders: how each run ended, or how its worker died.

        On KeyboardInterrupt, or any other exception, the workers checkpoint and end before it goes on.  Raises DiskFull
        when one of them met a full disk: then no further order is handed out.
        """
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for i in range(len(orders)):
            waiting.put(i)
        answers: list[Answer] = [INTERRUPTED] * len(orders)
        places = range(min(len(self.environments), len(orders)))
        given = (waiting, orders, answers)
        feeders = [threading.Thread(target=self.feed, args=(place, *given), daemon=True) for place in places]
        try:
            for feeder in feeders:
                feeder.start()
            for feeder in feeders:
                while feeder.is_alive() and not self.full:
                    feeder.join(0.2)  # a join without end would not let Ctrl-C through
        finally:
            self.close()
        if self.full:
            raise self.full
        return answers

    def feed(self, index: int, waiting: queue.SimpleQueue[int], orders: Sequence[Order], answers: list[Answer]) -> None:
        """Give one worker order after order, with a new worker after one that died."""
        while not self.closing:
            try:
                i = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answers[i] = self.hand_over(index, orders[i])
            except DiskFull as full:
                self.full = self.full or full
                return
            except Exception as error:  # no process to be had, say: this run fails, the next one may not
                answers[i] = Answer(status="failed", died=f"no worker could take it ({error})")
            if answers[i].status == "interrupted" and not self.closing:
                waiting.put(i)  # a signal stopped the worker, not the sweep

    def hand_over(self, index: int, order: Order) -> Answer:
        """Have one run done by this feeder's worker, a new one where there is none."""
        worker, reply = self.workers.get(index) or self.start(index), ""
        assert worker.stdin and worker.stdout
        with contextlib.suppress(OSError, ValueError):  # the worker died
            worker.stdin.write(line(order))
            worker.stdin.flush()
            reply = worker.stdout.readline()
        answer = answer_of(reply) if reply else None
        if answer is None:
            del self.workers[index]
            return INTERRUPTED if self.closing else Answer(status="failed", died=how_it_died(worker.wait()))
        if answer.leaving:
            del self.workers[index]
        if answer.full:
            raise DiskFull(answer.full)
        return answer

    def start(self, index: int) -> subprocess.Popen[str]:
        """Start a worker with its environment."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | self.environments[index]
        pipe = subprocess.PIPE
        # In a group of its own: Ctrl-C is for the parent, which closes the worker's input.
        command = program("ablate.execution.worker")
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, process_group=0)
        self.workers[index] = worker
        return worker

    def close(self) -> None:
        """End every worker: their input ends, they checkpoint and leave; those that do not in time are killed."""
        self.closing = True
        workers = list(self.workers.values())
        for worker in workers:
            with contextlib.suppress(OSError):  # the worker died first
                worker.stdin.close() if worker.stdin else None
        limit = time.monotonic() + GRACE
        for worker in workers:
            try:
                worker.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
