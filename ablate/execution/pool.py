"""Parallel runs on this machine: one worker process per CPU core, or one per GPU, each on its own device.

If a worker dies, only its run fails; if the parent dies, workers see their input end, and stop.  Messages are lines
of JSON: an order to train one run, and its answer.
"""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence

from ablate.config.import_path import program
from ablate.config.typed_json import Record, parse
from ablate.execution.fork import how_it_died
from ablate.execution.signals import LEAVE, DiskFull
from ablate.results.records import Cell


class Order(Record):
    """Everything that a worker needs to train a run.  `user` are the packages that the command allows; files cannot
    allow any.  `wait` waits if another process trains it."""

    results: str
    path: str  # <cell's name>/<key>
    seed: int
    cell: Cell
    user: list[str]
    wait: bool = False


class Answer(Record):
    """How a run ended, the file that could not be written because the disk is full, or how the process died.  With
    `leaving` the worker accepts no more orders."""

    status: str
    leaving: bool = False
    full: str = ""
    died: str = ""


def line(message: Record) -> str:
    """Serialise a message as a line."""
    return json.dumps(message.as_json()) + "\n"


def order_of(text: str) -> Order:
    """Parse an order."""
    return parse(Order, json.loads(text))


def answer_of(text: str) -> Answer | None:
    """Parse an answer; None if a component wrote something else to the stream of answers."""
    with contextlib.suppress(ValueError):
        return parse(Answer, json.loads(text))
    return None


GRACE = LEAVE + 1.5  # seconds for workers to write their checkpoints before they are killed
INTERRUPTED = Answer(status="interrupted")


class Pool:
    """Worker processes, each with a thread that sends it orders."""

    def __init__(self, environments: Sequence[dict[str, str]]):
        self.environments = environments
        self.workers: dict[int, subprocess.Popen[str]] = {}
        self.closing = False
        self.full: DiskFull | None = None

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        """Carry out orders; returns how each run ended, or how its worker died.

        On any exception, KeyboardInterrupt included, workers checkpoint and end before it propagates.  Raises DiskFull
        if a worker met a full disk; no more orders are sent then.
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
                    feeder.join(0.2)  # a join without timeout would block Ctrl-C
        finally:
            self.close()
        if self.full:
            raise self.full
        return answers

    def feed(self, index: int, waiting: queue.SimpleQueue[int], orders: Sequence[Order], answers: list[Answer]) -> None:
        """Send orders to one worker, and start a new one if it dies."""
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
            except Exception as error:  # such as no process available; the next run may succeed
                answers[i] = Answer(status="failed", died=f"no worker could take it ({error})")
            if answers[i].status == "interrupted" and not self.closing:
                waiting.put(i)  # a signal stopped the worker, not the sweep

    def hand_over(self, index: int, order: Order) -> Answer:
        """Have this thread's worker, started if needed, carry out an order."""
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
        # In a separate process group: Ctrl-C only reaches the parent, which closes the worker's input.
        command = program("ablate.execution.worker")
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, process_group=0)
        self.workers[index] = worker
        return worker

    def close(self) -> None:
        """End all workers: close their input, so that they checkpoint and exit, and kill those that take too long."""
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
