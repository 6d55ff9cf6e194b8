"""A worker process: trains the runs that are ordered on its standard input, one at a time."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from ablate.config.errors import first_line
from ablate.execution.inbox import Inbox, exit_at_once, take_streams
from ablate.execution.pool import Answer, Order, line, order_of
from ablate.execution.run_program import LAST_LINE, run_program
from ablate.execution.signals import DiskFull
from ablate.formatting.streams import prepare, say
from ablate.runs.folder import Run
from ablate.runs.key import is_foreign, numbers
from ablate.runs.user_files import compile_from_source


def main() -> None:
    """Train until standard input ends, a run fails, or user code has run in this process."""
    prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the sweep, which closes this input
    orders, answers = take_streams()
    inbox = Inbox(orders)
    while text := inbox.next():
        answer = carry_out(order_of(text), inbox.should_stop)
        with contextlib.suppress(OSError):  # the sweep was killed; everything is already saved
            print(line(answer), end="", file=answers, flush=True)
        if answer.last:
            break
    if inbox.should_stop() and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # also what components have started, of which a killed sweep does not know
    exit_at_once()


def carry_out(order: Order, should_stop: Callable[[], bool]) -> Answer:
    """Train one run, or run an order's program."""
    if order.program:
        return run_other_program(order, should_stop)
    return train(order, should_stop)


def run_other_program(order: Order, should_stop: Callable[[], bool]) -> Answer:
    """Run an order's program; loads no torch."""
    status = "failed"
    error = ""
    full = ""
    try:
        status = run_program(order, should_stop)
    except DiskFull as problem:
        full = str(problem.file)
    except OSError as problem:
        error = f"{problem.filename or order.path} cannot be used: {problem.strerror or problem}"
        say(error)
    if status == "failed" and not (full or error):
        error = error_of(order).partition(LAST_LINE)[0]  # which may name what differs between runs
    value = value_of(order) if status == "done" else None
    return Answer(status=status, last=should_stop(), error=error, value=value, full=full)


def train(order: Order, should_stop: Callable[[], bool]) -> Answer:
    """Train one run."""
    from ablate.execution.distributed import train_on_devices  # these load torch
    from ablate.execution.train_run import train_run
    from ablate.training.devices import configure_torch
    from ablate.training.ranks import RankLost

    configure_torch()
    compile_from_source()
    status = "failed"
    error = ""
    full = ""
    died = ""
    config = order.cell.planned_config
    train_order = train_on_devices if config.train.devices > 1 else train_run
    try:
        status = train_order(order, should_stop)
    except DiskFull as problem:
        full = str(problem.file)
    except RankLost as problem:
        died = str(problem)
    except OSError as problem:  # such as a lock that is a folder; errors of training are in the result
        error = f"{problem.filename2 or problem.filename or order.path} cannot be used: {problem.strerror or problem}"
        say(error)
    if status == "failed" and not (full or died or error):
        error = error_of(order)
    # A failed run, or user code, may have left this process in any state, and torch joins a group of processes once.
    last = status == "failed" or is_foreign(numbers(config)) or config.train.devices > 1 or should_stop()
    return Answer(status=status, last=last, error=error, full=full, died=died)


def value_of(order: Order) -> float | None:
    """The metric of a program's run that has ended."""
    result = Run(Path(order.results), order.path).result()
    assert order.program
    return result.final.get(order.program.metric) if result else None


def error_of(order: Order) -> str:
    """The error in a failed run's result, in one line."""
    result = Run(Path(order.results), order.path).result()
    return f"{result.error.type}: {first_line(result.error.message)}" if result and result.error else ""
