"""Runs orders: in worker processes on this machine, or as jobs of another launcher of Hydra's: joblib, submitit, Ray.

Sweeps share this machine unless their runs are timed.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from ablate.config.compose import Composer
from ablate.config.errors import whole_line
from ablate.config.groups import read_groups
from ablate.config.import_path import drop_current_folder_from_path, find_packages_here
from ablate.data.corpus import cache_folder
from ablate.execution.pool import SINGLE_THREAD, Answer, Order, Pool, line, order_of
from ablate.execution.signals import handling_signals, raising_disk_full
from ablate.formatting.streams import say
from ablate.program.devices import places
from ablate.runs.files import no_link
from ablate.runs.folder import Run, now
from ablate.runs.lock import read_lease, take
from ablate.runs.records import Result, RunError
from ablate.training.hardware import TASKS, environments, task_of_job

WAITING_ALONE = "timed runs need this machine for themselves; waiting until other sweeps have ended"
WAITING_FOR_TIMED = "this machine is reserved for timed runs; waiting until they have ended"


def run_orders(orders: Sequence[Order]) -> list[Answer]:
    """Train the runs of a study in parallel, and at the end wait for those that another process trains.  Raises
    DiskFull, and StoppedEarly if every configuration failed with the same error."""
    if orders[0].program:
        return run_all(places(orders[0].program.parallel), orders)
    device, worker_count, device_count = device_of(orders)
    most_flops = max(order.cell.flops_per_step for order in orders)  # several small runs share a GPU
    worker_environments = environments(device, worker_count, device_count, most_flops)
    worker_environments = [SINGLE_THREAD | environment for environment in worker_environments]
    is_isolated = orders[0].cell.planned_config.timing == "isolated"
    _, local_rank, _ = task_of_job()
    is_reserved = device_count > 1 and local_rank > 0  # by the job's first task on this machine, for all of its tasks
    with contextlib.nullcontext() if is_reserved else reserve_machine(exclusive=is_isolated):
        return run_all(worker_environments, orders)


def run_all(workers: Sequence[dict[str, str]], orders: Sequence[Order]) -> list[Answer]:
    """`run_in`, and at the end wait for the runs that another process has, such as a worker of a sweep that was killed
    a moment ago."""
    answers = run_in(workers, orders)
    busy = [i for i, answer in enumerate(answers) if answer.status == "busy"]
    if not busy:
        return answers
    for i in busy:
        say(waiting_for(orders[i]))
    waiting = [dataclasses.replace(orders[i], wait=True) for i in busy]
    for i, answer in zip(busy, run_in(workers, waiting), strict=True):
        answers[i] = answer
    return answers


def waiting_for(order: Order) -> str:
    """A sentence on a run that another process trains."""
    run = Run(Path(order.results), order.path)
    lease = read_lease(run.lease_file)
    process = f"process {lease.pid} on {lease.host}" if lease else "another process"
    return f"waiting for {order.cell.label}, seed {order.seed}, which {process} trains"


def run_alone(order: Order, number: int) -> str:
    """Train one run for another launcher, in a separate process, whose crash must not end the launcher's.  The job's
    number selects its GPU; otherwise jobs of launchers that assign no GPUs would all use the first."""
    if order.program:
        machine = places(None)
        [answer] = run_in([machine[number % len(machine)]], [dataclasses.replace(order, wait=True)])
        return answer.status
    device, _, devices = device_of([order])
    workers = environments(device, "auto", devices)
    if workers:
        workers = [SINGLE_THREAD | workers[number % len(workers)]]
    with reserve_machine(exclusive=False):
        [answer] = run_in(workers, [dataclasses.replace(order, wait=True)])
    return answer.status


def run_in(workers: Sequence[dict[str, str]], orders: Sequence[Order]) -> list[Answer]:
    """Train runs in workers with these environments; a run whose worker died has failed, unless another process has
    taken it over.  Raises DiskFull and StoppedEarly."""
    if workers:
        return Pool(workers, write_death).run(orders)
    reason = "there are fewer devices here than train.devices, or the job's tasks cannot share them equally"
    for order in orders:
        write_death(order, reason)
    return [Answer(status="failed", died=reason)] * len(orders)


def write_death(order: Order, message: str) -> None:
    """Write the result of a run whose worker died, unless another process trains or has ended it.  Raises DiskFull."""
    run = Run(Path(order.results), order.path)
    error = RunError(type="WorkerDied", message=message)
    result = Result(status="failed", final={}, error=error, ended=now())
    try:
        with raising_disk_full(run.result_file), run.lock(lambda: False) as is_locked:
            if is_locked and not run.result_file.exists():
                run.write(run.result_file, result)
    except OSError as problem:
        say(f"{run.result_file} cannot be written ({problem.strerror})")


def device_of(orders: Sequence[Order]) -> tuple[str, str | int, int]:
    """The device of the runs, the number of workers to train them in, and of devices for each; of a program, which asks
    for its devices by itself, one core."""
    if orders[0].program:
        return "cpu", 1, 1
    settings = [order.cell.planned_config.train for order in orders]
    device = "cuda" if any(train.device == "cuda" for train in settings) else "cpu"
    return device, settings[0].parallel, settings[0].devices


@contextlib.contextmanager
def reserve_machine(exclusive: bool) -> Iterator[None]:
    """Reserve this machine, exclusively or shared, among sweeps of this account; prints a message if it has to wait.
    The lock does not affect other programs.  If it cannot be taken, an exclusive sweep prints a message."""
    path = cache_folder() / f"machine-{socket.gethostname()}.lock"
    lock = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    with contextlib.ExitStack() as files:
        is_locked = None
        with contextlib.suppress(OSError):  # another account's file, in a shared cache
            file = files.enter_context(open(path, "a", opener=no_link))
            is_locked = take(file, lambda: False, lock)
            if is_locked is False:
                say(WAITING_ALONE if exclusive else WAITING_FOR_TIMED)
                take(file, lambda: True, lock)
        if is_locked is None and exclusive:
            say(f"{path} cannot be locked, so other sweeps may run at the same time; make sure that nothing else runs")
        yield


def launch(words: Sequence[str], orders: Sequence[Order]) -> str | None:
    """Run orders, each as one override, on the chosen launcher; returns the error of a failed job, or None."""
    jobs = []
    for order in orders:
        text = QuotedString(line(order).strip(), Quote.single).with_quotes()
        jobs.append([f"+order={text}"])
    with Composer(read_groups()):  # without the user's variants: a launcher's file there would be read as Hydra's
        config = compose("config", list(words), return_hydra_config=True)
        settings = config.hydra.launcher
        request_devices(settings, *device_of(orders))
        uses_cluster = OmegaConf.select(settings, "ray.init.address") or os.environ.get("RAY_ADDRESS")
        if "ray" in settings and uses_cluster:
            # The launcher names the memory for Ray's objects, which Ray refuses where a cluster has it already.
            OmegaConf.update(settings, "ray.init.object_store_memory", None, force_add=True)
        context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callback())
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        for returned in launcher.launch(jobs, 0) or ():
            if returned.status == JobStatus.FAILED:
                return f"a job failed ({whole_line(returned._return_value)})"
    return None


def request_devices(settings: DictConfig, device: str, parallel: str | int, devices: int) -> None:
    """Have a launcher give each job as many GPUs or cores as its run trains on, unless the command line says how many:
    submitit to each node or task, Ray to each job; joblib runs fewer jobs at a time."""
    if devices == 1:
        return
    nodes = settings.get("nodes", 1)
    if device == "cuda":
        kind = "gpu"
        wanted = {"gpus_per_node": max(1, devices // nodes)}
    else:
        kind = "cpu"
        tasks = nodes * settings.get("tasks_per_node", 1)
        wanted = {"cpus_per_task": max(1, devices // tasks)}  # the job says if its tasks cannot share them
    wanted[f"ray.remote.num_{kind}s"] = devices
    wanted["n_jobs"] = len(environments(device, parallel, devices))
    for key, value in wanted.items():
        section = key.split(".")[0]
        if section in settings and OmegaConf.select(settings, key) in (None, -1):
            OmegaConf.update(settings, key, value, force_add=True)


def job(config: DictConfig) -> str:
    """Task function of a launcher's job: runs the order and returns its status."""
    plain: Any = OmegaConf.to_container(config)  # unresolved: a path may contain ${…}
    order = order_of(plain["order"])
    drop_current_folder_from_path()
    find_packages_here(order.user)
    if "submitit" not in HydraConfig.get().launcher._target_:  # these describe what started the cluster, not the job
        for name in itertools.chain(*TASKS):
            os.environ.pop(name, None)
    with handling_signals():
        return run_alone(order, int(HydraConfig.get().job.num))
