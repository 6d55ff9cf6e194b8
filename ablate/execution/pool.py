"""Worker processes on this machine, one per CPU core or GPU, each of which trains one run at a time.

A worker reads orders from its standard input, one JSON object per line, and writes an answer for each.  The end of its
input asks it to write a checkpoint and exit.
"""

import contextlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO

from ablate.config.import_path import program
from ablate.config.typed_json import Record, parse
from ablate.execution.signals import CHECKPOINT_SECONDS, DiskFull
from ablate.formatting import counted
from ablate.formatting.streams import say
from ablate.program.checks import seed_ignored, values_ignored
from ablate.program.order import Program
from ablate.runs.records import Cell

GRACE_SECONDS = CHECKPOINT_SECONDS + 1.5  # seconds for workers to write their checkpoints before they are killed
ENOUGH_FAILURES = 3  # runs of a configuration that failed alike, after which no more of it are started
POLL_SECONDS = 0.2  # seconds between checks whether a worker has died, and for Ctrl-C
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Order(Record):
    """Everything that a worker needs to train a run.  `user` are the packages that the command allows; files cannot
    allow any.  `wait` waits if another process trains it.  With a `program` it runs that."""

    results: str
    path: str  # <cell's name>/<key>
    seed: int
    cell: Cell
    user: list[str]
    wait: bool = False
    program: Program | None = None


class Answer(Record):
    """How a run ended.  `last`: the worker exits after this answer."""

    status: str
    last: bool = False
    error: str = ""  # of a failed run, in one line
    value: float | None = None  # the metric of a program that ended
    full: str = ""  # the file that could not be written because the disk is full
    died: str = ""  # how the worker process died


class StoppedEarly(Exception):
    """No more runs were started, since they would be worth nothing: the first of every configuration failed with the
    same error, or a program ignores its seed or its values."""


def line(message: Record) -> str:
    """A message as a line of JSON."""
    return json.dumps(message.as_json()) + "\n"


def order_of(text: str) -> Order:
    """Parse an order."""
    return parse(Order, json.loads(text))


def answer_of(text: str) -> Answer | None:
    """Parse an answer; None if the worker died before it wrote one."""
    try:
        return parse(Answer, json.loads(text))
    except ValueError:
        return None


class Worker:
    """One worker process, which leads a process group: Ctrl-C in a terminal reaches only this process."""

    def __init__(self, environment: dict[str, str]):
        self.process = subprocess.Popen(
            program("ablate.execution.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
            process_group=0,
        )

    def train(self, order: Order) -> Answer:
        """Have the worker train a run, and wait for its answer."""
        assert self.process.stdin
        reply = ""
        with contextlib.suppress(OSError, ValueError):  # it has died
            self.process.stdin.write(line(order))
            self.process.stdin.flush()
            reply = self.read_line()
        answer = answer_of(reply)
        if answer is None:
            self.kill_group()
            answer = Answer(status="failed", last=True, died=how_it_died(self.process.wait()))
        elif answer.last:
            self.stop(time.monotonic() + GRACE_SECONDS)
        return answer

    def read_line(self) -> str:
        """The worker's next line; empty if it has died, even if a process that it started keeps its output open."""
        output = self.process.stdout
        assert output
        while not readable(output, POLL_SECONDS):
            if self.process.poll() is not None and not readable(output, 0):
                return ""
        return output.readline()

    def ask_to_stop(self) -> None:
        """Close the worker's input, whose end asks it to write a checkpoint and exit."""
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def stop(self, deadline: float) -> None:
        """Ask the worker to stop, wait until the deadline for it to exit, and kill what is left of its group."""
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill_group()

    def kill_group(self) -> None:
        """Kill the worker and the processes that components have started, if any is left."""
        kill_group(self.process.pid)


class Pool:
    """A worker for each environment, started when there is an order for it."""

    def __init__(self, environments: Sequence[dict[str, str]], report_death: Callable[[Order, str], None]):
        self.environments = environments
        self.report_death = report_death  # called with how the worker of an order died
        self.free: queue.SimpleQueue[int] = queue.SimpleQueue()  # indices of environments without a run
        for index in range(len(environments)):
            self.free.put(index)
        self.workers: dict[int, Worker] = {}  # by index of the environment
        self.given_up: set[str] = set()  # labels of configurations of which no more runs are started
        self.closing = False
        self.lock = threading.Lock()  # of `workers` and `closing`

    def run(self, orders: Sequence[Order]) -> list[Answer]:
        """Train all runs; returns how each ended, or how its worker died.

        On any exception, KeyboardInterrupt included, workers checkpoint and end before it propagates.  Raises DiskFull
        and StoppedEarly, after which no more orders are sent.
        """
        threads = ThreadPoolExecutor(max(1, len(self.environments)))
        futures = [threads.submit(self.train, order) for order in orders]
        try:
            waiting = set(futures)
            while waiting:
                # A wait without timeout would block Ctrl-C.
                ended, waiting = wait(waiting, POLL_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    future.result()
                if ended:
                    self.give_up_failing_configurations(orders, futures)
                    refuse_more_failures(orders, futures)
                    refuse_results_that_show_nothing(orders, futures)
        finally:
            self.close()
            threads.shutdown(wait=False, cancel_futures=True)
        return [future.result() for future in futures]

    def give_up_failing_configurations(self, orders: Sequence[Order], futures: Sequence[Future[Answer]]) -> None:
        """Start no more runs of a program's configuration whose first runs all failed with the same error."""
        errors: dict[str, list[str]] = {}  # by configuration, empty for runs that did not fail
        labels_left = set()  # of configurations with runs that have not ended
        for order, future in zip(orders, futures, strict=True):
            if order.program is None or order.program.tree:  # an audit says how many runs of a revision failed
                return
            if not future.done():
                labels_left.add(order.cell.label)
                continue
            answer = future.result()
            errors.setdefault(order.cell.label, []).append(answer.error if answer.status == "failed" else "")
        for label in labels_left - self.given_up:
            of_cell = errors.get(label, [])
            if len(of_cell) >= ENOUGH_FAILURES and len(set(of_cell)) == 1 and of_cell[0]:
                self.given_up.add(label)
                say(f"{label}: {counted(len(of_cell), 'run')} failed alike ({of_cell[0]}); its others are not started")

    def train(self, order: Order) -> Answer:
        """Train one run in the next free worker, unless its configuration was given up.  Raises DiskFull."""
        index = self.free.get()
        try:
            if order.cell.label in self.given_up:
                return Answer(status="interrupted")
            while worker := self.worker_at(index):
                answer = worker.train(order)
                if answer.last:
                    self.workers.pop(index, None)
                if answer.full:
                    with self.lock:
                        self.closing = True  # before the next run can start
                    raise DiskFull(answer.full)
                if answer.status == "interrupted" or (answer.died and self.closing):
                    continue  # a signal stopped the worker: another one goes on, unless the sweep ends
                if answer.died:
                    self.report_death(order, answer.died)
                return answer
            return Answer(status="interrupted")
        except OSError as error:  # such as no process available; the next run may succeed
            message = f"no worker could be started ({error})"
            self.report_death(order, message)
            return Answer(status="failed", died=message)
        finally:
            self.free.put(index)

    def worker_at(self, index: int) -> Worker | None:
        """The worker in an environment, started if needed; None if the pool is closing."""
        with self.lock:
            if self.closing:
                return None
            if index not in self.workers:
                self.workers[index] = Worker(self.environments[index])
            return self.workers[index]

    def close(self) -> None:
        """End all workers: they checkpoint and exit, and those that take too long are killed."""
        with self.lock:
            self.closing = True
            workers = list(self.workers.values())
        for worker in workers:
            worker.ask_to_stop()  # all of them, before waiting for one
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.stop(deadline)


def refuse_more_failures(orders: Sequence[Order], futures: Sequence[Future[Answer]]) -> None:
    """Raise StoppedEarly if every configuration of these orders has a run that failed, all with the same error, and
    none that did not.

    A machine without a compiler fails every run, each after half a minute.
    """
    errors = set()
    failed_cells = set()
    for order, future in zip(orders, futures, strict=True):
        if future.done():
            answer = future.result()
            errors.add(answer.error if answer.status == "failed" else "")
            failed_cells.add(order.cell.id)
    waiting = any(not future.done() and not future.running() for future in futures)
    left = sum(not future.done() for future in futures)  # those that are running are stopped
    every_cell = failed_cells == {order.cell.id for order in orders}
    if every_cell and len(errors) == 1 and "" not in errors and waiting:
        advice = "the same command continues with what is missing"
        if orders[0].program:
            advice = "correct the command or the program"
        failed = f"every run so far failed with the same error ({errors.pop()})"
        raise StoppedEarly(f"{failed}; {counted(left, 'run')} not trained; {advice}")


def refuse_results_that_show_nothing(orders: Sequence[Order], futures: Sequence[Future[Answer]]) -> None:
    """Raise StoppedEarly if runs of a program are left, and it gave the same result with all seeds of each
    configuration, or the results of the reference with all values.

    Two seeds of one configuration may have the same accuracy by chance, so the first asks for two configurations or for
    three seeds, and the second for two seeds of each configuration.  Revisions may well be equal.
    """
    program = orders[0].program
    if program is None or all(future.done() for future in futures):
        return
    results: dict[str, dict[int, float]] = {order.cell.label: {} for order in orders}
    reference = ""
    for order, future in zip(orders, futures, strict=True):
        if order.cell.reference:
            reference = order.cell.label
        value = future.result().value if future.done() else None
        if value is not None:
            results[order.cell.label][order.seed] = value
    sentence = seed_ignored(program.command, results)
    sentences = [] if program.tree else values_ignored(reference, results)
    if sentences and len(sentences) == len(results) - 1:
        sentence = sentence or sentences[0]
    if sentence:
        raise StoppedEarly(f"{sentence}; the other runs were not started")


def kill_group(group: int) -> None:
    """Kill the processes of a group, if any is left."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


def readable(stream: socket.socket | IO[str], seconds: float) -> bool:
    """Whether data or the end of a stream can be read within some seconds."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def how_it_died(code: int, which: str = "the worker process") -> str:
    """A message about how a process ended."""
    if code >= 0:
        return f"{which} ended with exit code {code}"
    hint = "; was the machine out of memory?" if code == -signal.SIGKILL else ""
    return f"{which} was killed by signal {-code}{hint}"
