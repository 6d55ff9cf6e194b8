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

from ablate.config.compose import COMPOSING, Composer
from ablate.config.errors import Problem, first_line, whole_line
from ablate.config.extra import INSTALL
from ablate.config.groups import read_groups
from ablate.config.import_path import find_here, leave_current_folder
from ablate.data.corpus import cache_folder
from ablate.execution.pool import Answer, Order, Pool, line, order_of
from ablate.execution.signals import handling_signals, refusing_full_disks
from ablate.formatting import instead
from ablate.formatting.streams import say
from ablate.results.atomic import no_link, write_json
from ablate.results.lease import take
from ablate.results.records import Result, RunError
from ablate.results.run import Run, now
from ablate.training.devices import TASKS, environments, task_of_job


def run_orders(orders: Sequence[Order]) -> list[Answer]:
    """Train runs in parallel, and at the end wait for those that another process trains.  Raises DiskFull."""
    device, parallel, devices = device_of(orders)
    workers = environments(device, parallel, devices, max(order.cell.flops_per_step for order in orders))
    is_other = devices > 1 and task_of_job()[1] > 0  # its first task has reserved the machine
    is_alone = orders[0].cell.planned_config.timing == "isolated"
    reserved = contextlib.nullcontext() if is_other else machine(alone=is_alone)
    with reserved:
        answers = run_in(workers, orders)
        busy = [order for order, answer in zip(orders, answers, strict=True) if answer.status == "busy"]
        again = iter(run_in(workers, [dataclasses.replace(order, wait=True) for order in busy]))
    return [next(again) if answer.status == "busy" else answer for answer in answers]


def run_alone(order: Order, number: int) -> str:
    """Train one run for another launcher, in a separate process, whose crash must not end the launcher's.  The job's
    number selects its GPU; otherwise jobs of launchers that assign no GPUs would all use the first."""
    device, _, devices = device_of([order])
    found = environments(device, "auto", devices)
    with machine(alone=False):
        [answer] = run_in(found and [found[number % len(found)]], [dataclasses.replace(order, wait=True)])
    return answer.status


def run_in(workers: Sequence[dict[str, str]], orders: Sequence[Order]) -> list[Answer]:
    """Train runs in workers with these environments; a run whose worker died has failed, unless another process has
    taken it over.  Raises DiskFull."""
    lacking = "there are fewer devices here than train.devices, or the job's tasks cannot share them equally"
    answers = Pool(workers).run(orders) if workers else [Answer(status="failed", died=lacking)] * len(orders)
    for order, how in [(order, answer.died) for order, answer in zip(orders, answers, strict=True) if answer.died]:
        run = Run(Path(order.results), order.path)
        result = Result(status="failed", final={}, error=RunError(type="WorkerDied", message=how), ended=now())
        try:
            with refusing_full_disks(run.result_file), run.lock(lambda: False) as mine:
                if mine and not run.result_file.exists():
                    write_json(run.result_file, result.as_json(), run.check)
        except OSError as error:
            say(f"{run.result_file} cannot be written ({error.strerror})")
    return answers


def device_of(orders: Sequence[Order]) -> tuple[str, str | int, int]:
    """The device of the runs, the number of workers to train them in, and of devices for each."""
    keys = [order.cell.planned_config.train for order in orders]
    return "cuda" if any(key.device == "cuda" for key in keys) else "cpu", keys[0].parallel, keys[0].devices


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


# The extra in pyproject.toml that installs each launcher.
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
RESERVED = ("hydra.mode", "hydra/sweeper", "hydra.sweeper")


def launcher_problems(words: Sequence[str]) -> list[Problem]:
    """Problems of command-line words about Hydra itself."""
    if fixed := [word for word in words if word.lstrip("+~").startswith(RESERVED)]:
        return [Problem(word, "ablate plans every study itself; leave it out") for word in fixed]
    if words:
        with Composer(read_groups()) as composer:
            try:
                composer.compose(list(words))
            except (*COMPOSING, TypeError, AttributeError) as error:  # Hydra does not check the types of its settings
                there = GlobalHydra.instance().config_loader().get_group_options("hydra/launcher")
                for word in words:
                    key, _, name = word.partition("=")
                    if key == "hydra/launcher" and name in EXTRAS.keys() - {*there}:
                        return [Problem(word, f"is not installed; {INSTALL.format(EXTRAS[name])}")]
                    if key == "hydra/launcher" and name not in there:
                        return [Problem(word, f"no such launcher; {instead(name, [*there, *EXTRAS])}")]
                return [Problem(" ".join(words), f"Hydra cannot read this ({first_line(error)})")]
    return []


def launch(words: Sequence[str], orders: Sequence[Order]) -> str | None:
    """Run orders, each as one override, on the chosen launcher; returns the error of a failed job, or None."""
    jobs = [[f"+order={QuotedString(line(order).strip(), Quote.single).with_quotes()}"] for order in orders]
    with Composer(read_groups()):  # without the user's variants: a launcher's file there would be read as Hydra's
        config = compose("config", list(words), return_hydra_config=True)
        settings = config.hydra.launcher
        give_devices(settings, *device_of(orders))
        if OmegaConf.select(settings, "ray.init.address") or ("ray" in settings and "RAY_ADDRESS" in os.environ):
            # The launcher names the memory for Ray's objects, which Ray refuses where a cluster has it already.
            OmegaConf.update(settings, "ray.init.object_store_memory", None, force_add=True)
        context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callback())
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        for returned in launcher.launch(jobs, 0) or ():
            if returned.status == JobStatus.FAILED:
                return f"a job failed ({whole_line(returned._return_value)})"
    return None


def give_devices(settings: DictConfig, device: str, parallel: str | int, devices: int) -> None:
    """Have a launcher give each job as many GPUs or cores as its run trains on, unless the command line says how many:
    submitit to each node or task, Ray to each job; joblib runs fewer jobs at a time."""
    kind, tasks = ("gpu", 1) if device == "cuda" else ("cpu", settings.get("tasks_per_node", 1))
    each = max(1, devices // (settings.get("nodes", 1) * tasks))  # the job says that more tasks cannot share them
    wanted = {f"{kind}s_per_{'node' if kind == 'gpu' else 'task'}": each}
    wanted |= {f"ray.remote.num_{kind}s": devices, "n_jobs": len(environments(device, parallel, devices))}
    for key, value in wanted.items() if devices > 1 else ():
        if key.split(".")[0] in settings and OmegaConf.select(settings, key) in (None, -1):
            OmegaConf.update(settings, key, value, force_add=True)


def job(config: DictConfig) -> str:
    """Task function of a launcher's job: runs the order and returns its status."""
    found: Any = OmegaConf.to_container(config)  # unresolved: a path may contain ${…}
    order = order_of(found["order"])
    leave_current_folder()
    find_here(order.user)
    if "submitit" not in HydraConfig.get().launcher._target_:  # these describe what started the cluster, not the job
        for name in itertools.chain(*TASKS):
            os.environ.pop(name, None)
    with handling_signals():
        return run_alone(order, int(HydraConfig.get().job.num))
