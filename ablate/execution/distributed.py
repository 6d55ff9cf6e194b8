"""One run on several devices: a process for each, of which the worker is the first on its machine.

The worker starts the others, which read their order from standard input and end when it ends.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ablate.config.import_path import program
from ablate.config.typed_json import Record, parse
from ablate.execution.inbox import Inbox, exit_at_once, take_streams
from ablate.execution.pool import Order, how_it_died
from ablate.execution.signals import CHECKPOINT_SECONDS
from ablate.execution.train_run import follow, train_run
from ablate.formatting.streams import prepare, say
from ablate.runs.folder import Run
from ablate.runs.user_files import compile_from_source
from ablate.training.devices import configure_torch
from ablate.training.hardware import task_of_job
from ablate.training.ranks import RankLost, join

POLL_SECONDS = 0.1  # seconds between checks whether a process has died
EXIT_SECONDS = 1.0  # seconds for a killed process to end after its connections have closed
# What tells jobs apart.
JOBS = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SUBMITIT_LOCAL_JOB_ID")


class RankOrder(Record):
    """What a process of a run needs to join the others and to train with them."""

    order: Order
    rank: int
    address: str  # of the file over which the processes find each other
    is_local: bool  # whether all of them run on this machine
    files: str  # the folder for what rank 0 alone keeps


def train_on_devices(order: Order, should_stop: Callable[[], bool]) -> str:
    """Train one run with a process for each device of this machine; returns its status.  Raises RankLost."""
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        orders = rank_orders(order, Path(folder))
        with started(orders[1:]) as others:
            try:
                return train_rank(orders[0], should_stop)
            except RankLost as error:
                raise RankLost(death_of(others) or str(error)) from None


def rank_orders(order: Order, folder: Path) -> list[RankOrder]:
    """The orders of the processes on this machine; `folder` is theirs."""
    number, _, tasks = task_of_job()
    count = order.cell.planned_config.train.devices // tasks
    address = folder / "address"
    if tasks > 1:
        job = "-".join(os.environ.get(name, "") for name in JOBS)  # another job may want the same run
        address = Run(Path(order.results), order.path).folder / f".ranks.{job}.tmp"
    orders = []
    for i in range(count):
        rank = number * count + i
        files = str(folder / str(i))
        orders.append(RankOrder(order=order, rank=rank, address=str(address), is_local=tasks == 1, files=files))
    return orders


@contextlib.contextmanager
def started(orders: Sequence[RankOrder]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that carry out these orders, on the second device and so on; they are killed at the end."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    processes = []
    run_ended = threading.Event()
    try:
        for i, order in enumerate(orders, 1):
            environment = os.environ | ({"CUDA_VISIBLE_DEVICES": devices[i]} if i < len(devices) else {})
            command = program("ablate.execution.distributed")
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, text=True, env=environment)
            processes.append(process)
            assert process.stdin
            process.stdin.write(json.dumps(order.as_json()) + "\n")
            process.stdin.flush()
        threading.Thread(target=exit_if_one_dies, args=(processes, run_ended), daemon=True).start()
        yield processes
    finally:
        run_ended.set()
        for process in processes:
            process.kill()
            process.wait()


def exit_if_one_dies(processes: Sequence[subprocess.Popen[str]], run_ended: threading.Event) -> None:
    """Thread body: if a process dies and the run has not ended some seconds later, report it and end this process.
    Gloo raises an error within that time; NCCL would wait for ever."""
    while not run_ended.wait(POLL_SECONDS):
        message = death_of(processes, seconds=0)
        if not message:
            continue
        if run_ended.wait(CHECKPOINT_SECONDS):
            return
        say(message)
        os._exit(1)


def death_of(processes: Sequence[subprocess.Popen[str]], seconds: float = EXIT_SECONDS) -> str:
    """Which of the processes after the first has died within some seconds, and how; "" if none has."""
    deadline = time.monotonic() + seconds
    while True:
        for i, process in enumerate(processes):
            code = process.poll()
            if code:
                return how_it_died(code, f"process {i + 2} of {len(processes) + 1}")
        if time.monotonic() >= deadline:
            return ""
        time.sleep(POLL_SECONDS)


def train_rank(order: RankOrder, should_stop: Callable[[], bool]) -> str:
    """Train one run with the other processes that train it; returns its status.  Raises RankLost."""
    train = order.order.cell.planned_config.train
    ranks = join(order.rank, train.devices, Path(order.address), train.device, is_local=order.is_local)
    if ranks.rank > 0:
        return follow(order.order, should_stop, ranks, Path(order.files))
    status = train_run(order.order, should_stop, ranks)
    if status != "failed":  # then the others may be anywhere; they notice that this process ends
        with contextlib.suppress(RankLost):
            ranks.from_first(status)
    return status


def main() -> None:
    """Train one run as one of its processes, but not the first of this machine."""
    prepare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders, _ = take_streams()
    configure_torch()
    compile_from_source()
    inbox = Inbox(orders)
    order = parse(RankOrder, json.loads(inbox.next()))
    with contextlib.suppress(RankLost):  # which the first process reports
        train_rank(order, inbox.should_stop)
    exit_at_once()
