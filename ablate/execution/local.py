"""Runs orders in worker processes on this machine, which sweeps share unless their runs are timed."""

import contextlib
import dataclasses
import fcntl
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablate.data.corpus import cache_folder
from ablate.execution.pool import Answer, Order, Pool
from ablate.execution.signals import DiskFull, is_full
from ablate.formatting.streams import say
from ablate.results.atomic import no_link, write_json
from ablate.results.lease import take
from ablate.results.records import Result, RunError
from ablate.results.run import Run, now
from ablate.training.devices import environments, share


def run_orders(orders: Sequence[Order]) -> list[Answer]:
    """Train runs in parallel, and at the end wait for those that another process trains.  Raises DiskFull."""
    workers = environments(*device_of(orders))
    with machine(alone=orders[0].cell.config.timing == "isolated"):
        answers = run_in(workers, orders)
        busy = [i for i, answer in enumerate(answers) if answer.status == "busy"]
        again = run_in(workers, [dataclasses.replace(orders[i], wait=True) for i in busy])
    for i, answer in zip(busy, again, strict=True):
        answers[i] = answer
    return answers


def run_alone(order: Order, number: int) -> str:
    """Train one run for another launcher, in a separate process, whose crash must not end the launcher's.  The job's
    number selects its GPU; otherwise jobs of launchers that assign no GPUs would all use the first."""
    with machine(alone=False):
        [answer] = run_in([share(device_of([order])[0], number)], [dataclasses.replace(order, wait=True)])
    return answer.status


def run_in(workers: list[dict[str, str]], orders: Sequence[Order]) -> list[Answer]:
    """Train runs in workers with these environments; a run whose worker died has failed, unless another process has
    taken it over.  Raises DiskFull."""
    answers = Pool(workers).run(orders)
    for order, how in [(order, answer.died) for order, answer in zip(orders, answers, strict=True) if answer.died]:
        run = Run(Path(order.results), order.path)
        result = Result(status="failed", final={}, error=RunError(type="WorkerDied", message=how), ended=now())
        try:
            with run.lock(lambda: False) as mine:
                if mine and not run.result_file.exists():
                    write_json(run.result_file, result.as_json(), run.check)
        except OSError as error:
            if is_full(error):
                raise DiskFull(run.result_file) from None
            say(f"{run.result_file} cannot be written ({error.strerror})")
    return answers


def device_of(orders: Sequence[Order]) -> tuple[str, str | int]:
    """The device of the runs, and the number of processes to train them in."""
    keys = [order.cell.config.train for order in orders]
    return "cuda" if any(key.device == "cuda" for key in keys) else "cpu", keys[0].parallel


@contextlib.contextmanager
def machine(alone: bool) -> Iterator[None]:
    """Reserve this machine, exclusively or shared, among sweeps of this account; prints a message if it has to wait.
    The lock does not affect other programs.  If it cannot be taken, an exclusive sweep prints a message."""
    how, path = fcntl.LOCK_EX if alone else fcntl.LOCK_SH, cache_folder() / f"machine-{socket.gethostname()}.lock"
    with contextlib.ExitStack() as held:
        taken = None
        with contextlib.suppress(OSError):  # another account's file, in a shared cache
            file = held.enter_context(open(path, "a", opener=no_link))
            taken = take(file, lambda: False, how)
            if taken is False:
                why = "timed runs need this machine for themselves; waiting until other sweeps have ended"
                say(why if alone else "this machine is reserved for timed runs; waiting until they have ended")
                take(file, lambda: True, how)
        if taken is None and alone:
            say(f"{path} cannot be locked, so other sweeps may run at the same time; make sure that nothing else runs")
        yield
