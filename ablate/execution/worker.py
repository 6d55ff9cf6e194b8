"""A worker process: trains the runs that are ordered on its standard input, one at a time."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from ablate.config.errors import first_line
from ablate.execution.inbox import Inbox, exit_at_once, take_streams
from ablate.execution.pool import Answer, Order, line, order_of
from ablate.execution.run_program import run_program
from ablate.execution.signals import DiskFull
from ablate.formatting.streams import prepare, say
from ablate.program.order import LAST_LINE
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
    status = "failed"
    error = ""
    full = ""
    died = ""
    try:
        if order.program:
            status = run_program(order, should_stop)
        else:
            status, died = train(order, should_stop)
    except DiskFull as problem:
        full = str(problem.file)
    except OSError as problem:  # such as a lock that is a folder; errors of training are in the result
        error = f"{problem.filename2 or problem.filename or order.path} cannot be used: {problem.strerror or problem}"
        say(error)
    if status == "failed" and not (full or died or error):
        error = error_of(order)
    value = value_of(order) if order.program and status == "done" else None
    last = should_stop() or (order.program is None and leaves_its_mark(order, status))
    return Answer(status=status, last=last, error=error, value=value, full=full, died=died)


def train(order: Order, should_stop: Callable[[], bool]) -> tuple[str, str]:
    """Train one run; returns its status, and how another process of the run died, if one did."""
    from ablate.execution.distributed import train_on_devices  # these load torch, which programs do not need
    from ablate.execution.train_run import train_run
    from ablate.training.devices import configure_torch
    from ablate.training.ranks import RankLost

    configure_torch()
    compile_from_source()
    train_order = train_on_devices if order.cell.planned_config.train.devices > 1 else train_run
    try:
        return train_order(order, should_stop), ""
    except RankLost as problem:
        return "failed", str(problem)


def leaves_its_mark(order: Order, status: str) -> bool:
    """Whether no other run may follow in this process: a failed run, or user code, may have left it in any state, and
    torch joins a group of processes once."""
    config = order.cell.planned_config
    return status == "failed" or is_foreign(numbers(config)) or config.train.devices > 1


def value_of(order: Order) -> float | None:
    """The metric of a program's run that has ended."""
    result = Run(Path(order.results), order.path).result()
    assert order.program
    return result.final.get(order.program.metric) if result else None


def error_of(order: Order) -> str:
    """The error in a failed run's result, in one line, without what a program printed last, which may name what differs
    between runs."""
    result = Run(Path(order.results), order.path).result()
    if result is None or result.error is None:
        return ""
    message = first_line(result.error.message).partition(LAST_LINE)[0]
    return f"{result.error.type}: {message}"
