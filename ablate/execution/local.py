"""Orders carried out by worker processes of this machine."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.execution.machine import machine
from ablate.execution.orders import Answer, Order
from ablate.execution.pool import Pool
from ablate.execution.signals import DiskFull, is_full
from ablate.results.atomic import write_json
from ablate.results.result import Result, RunError
from ablate.results.run import Run, now
from ablate.training.devices import environments, share


def run_orders(orders: Sequence[Order]) -> list[Answer]:
    """Train runs side by side; those that another process trains are waited for at the end.  Raises DiskFull."""
    workers = environments(*device_of(orders))
    with machine(alone=orders[0].cell.config.timing == "isolated"):
        answers = run_in(workers, orders)
        busy = [i for i, answer in enumerate(answers) if answer.status == "busy"]
        again = run_in(workers, [dataclasses.replace(orders[i], wait=True) for i in busy])
    for i, answer in zip(busy, again, strict=True):
        answers[i] = answer
    return answers


def run_alone(order: Order, number: int) -> str:
    """Train one run for another launcher, in a process of its own: its death must not be that of the launcher.

    By its number it takes its turn among the GPUs that there are: launchers that give none would all have the first.
    """
    with machine(alone=False):
        [answer] = run_in([share(device_of([order])[0], number)], [dataclasses.replace(order, wait=True)])
    return answer.status


def run_in(workers: list[dict[str, str]], orders: Sequence[Order]) -> list[Answer]:
    """Train runs in workers with these environments; a run whose worker died has failed.  Raises DiskFull."""
    answers = Pool(workers).run(orders)
    for order, answer in zip(orders, answers, strict=True):
        if answer.died:
            mark_failed(order, answer.died)
    return answers


def device_of(orders: Sequence[Order]) -> tuple[str, str | int]:
    """Which kind of device runs are to be trained on, and in how many processes."""
    keys = [order.cell.config.train for order in orders]
    return "cuda" if any(key.device == "cuda" for key in keys) else "cpu", keys[0].parallel


def mark_failed(order: Order, how: str) -> None:
    """Give a run whose worker died the result that it could not write, unless another process has taken over."""
    run = Run(Path(order.results), order.path)
    result = Result(status="failed", final={}, error=RunError(type="WorkerDied", message=how), ended=now())
    try:
        with run.lock(lambda: False) as mine:
            if mine and not run.result_file.exists():
                write_json(run.result_file, result.as_json(), run.check)
    except OSError as error:
        if is_full(error):
            raise DiskFull(run.result_file) from None
        print(f"ablate: {run.result_file} cannot be written ({error.strerror})", file=sys.stderr)
