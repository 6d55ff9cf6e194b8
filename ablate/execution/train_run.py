"""Execution of one run: lock it, train or resume it, and write its result."""

import contextlib
import dataclasses
import functools
import os
import platform
import random
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import rich.style  # noqa: F401 (uses Python's random numbers on import, which scikit-learn would trigger during a run)
import torch
import yaml
from safetensors.torch import save
from torch import nn

from ablate.config.errors import Corrupt, Unreadable, first_line
from ablate.config.schema import Config
from ablate.data.task import Task
from ablate.execution.pool import Order
from ablate.execution.signals import DiskFull, refusing_full_disks
from ablate.formatting.streams import say
from ablate.model.cost import utilisation
from ablate.model.products import use
from ablate.results.atomic import Sum, set_aside, sum_of, write_atomic, write_json
from ablate.results.lease import LeaseLost, boot
from ablate.results.records import Cell, Commit, Result, RunError, Status
from ablate.results.run import Run, lacking, now
from ablate.results.run_key import is_foreign, numbers, provenance, run_key
from ablate.training.devices import device_name, peak_memory
from ablate.training.divergence import Diverged, overfits
from ablate.training.evaluation import add_length, setting_of
from ablate.training.load import load_run
from ablate.training.ranks import ALONE, RankLost, Ranks
from ablate.training.trainer import Interrupted, Trainer, new_trainer

TRAINING = "training"  # what rank 0 tells the others when they begin


def train_run(order: Order, stop: Callable[[], bool], ranks: Ranks = ALONE) -> str:
    """Train one run under its lock, unless it has ended; failed runs are retried, diverged ones are final.

    Returns its status: done, diverged or failed with a result, interrupted with a checkpoint, busy if another process
    trains it and the order does not wait.  Raises DiskFull.
    """
    run = Run(Path(order.results), order.path)
    cell = dataclasses.replace(order.cell, config=dataclasses.replace(order.cell.planned_config, user=order.user))
    device, seen = cell.planned_config.train.device, os.environ.get("CUDA_VISIBLE_DEVICES")
    device = f"{device}:{seen}" if seen and device == "cuda" else device  # as its lease names it
    while not stop():
        with refusing_full_disks(run.folder), run.lock(lambda: order.wait and not stop(), device) as mine:
            if not mine:
                break
            try:
                return complete_run(run, cell, order.seed, stop, ranks)
            except LeaseLost as error:
                say(str(error))
                if ranks.count > 1:  # the others are in the midst of the run
                    raise RankLost(first_line(error)) from None
        if not order.wait:
            break
    return "interrupted" if stop() else "busy"


def follow(order: Order, stop: Callable[[], bool], ranks: Ranks, folder: Path) -> str:
    """Train a run with rank 0, which alone writes its files; returns how it ended there.  Raises RankLost."""
    config = dataclasses.replace(order.cell.planned_config, user=order.user)
    while (status := ranks.from_first("")) == TRAINING:
        try:
            new_trainer(Run(folder, order.path), config, order.seed, ranks).train(stop)
        except (Interrupted, Diverged):
            pass  # as all ranks are
        except BaseException as error:
            ranks.tell(error)
            raise RankLost(first_line(error)) from None
    return status


def complete_run(run: Run, cell: Cell, seed: int, stop: Callable[[], bool], ranks: Ranks) -> str:
    """Complete a locked run: train it, or evaluate it at missing lengths."""
    for file in run.folder.iterdir():
        if not file.is_file() and not file.is_dir():  # such as a pipe, which would block its reader
            put_aside(run, Corrupt(f"{file} is no file", file))

    @functools.cache
    def saved() -> tuple[nn.Module, Task]:  # on the device that the run was trained on
        loaded = load_run(run.folder, cell.planned_config.user)
        model = loaded.model().to(loaded.config.train.device)
        use(loaded.config.train.matmul, model, loaded.config.train.device)
        return model, loaded.task()

    try:
        result = run.result()
        if result and result.status != "failed":
            return test_lengths(run, cell.planned_config, saved) if result.status == "done" else result.status
    except Unreadable as error:
        say(str(error))
        return "failed"
    except Corrupt as error:
        put_aside(run, error)
    return attempt(run, cell, seed, stop, ranks)


def put_aside(run: Run, error: Corrupt) -> None:
    """Report and set aside the damaged file of a run that will be trained again."""
    say(f"{error}; set aside as {set_aside(error.file or run.result_file).name}, trained again")


@dataclasses.dataclass
class Attempt:
    """The state of a run in progress, from which its result is written however it ends."""

    result: Result
    trainer: Trainer | None = None
    files: dict[str, Sum] = dataclasses.field(default_factory=dict)  # whose checksums go into the result


def attempt(run: Run, cell: Cell, seed: int, stop: Callable[[], bool], ranks: Ranks) -> str:
    """Train a run and write its result, unless it is interrupted, and delete files that are not to be kept."""
    made, began = Attempt(Result(status="done", final={}, started=now())), time.process_time()
    try:
        with refusing_full_disks(run.folder):
            train(made, run, cell, seed, stop, ranks)
    except Interrupted:
        return "interrupted"
    except (LeaseLost, DiskFull, RankLost):
        raise
    except BaseException as error:  # a component can raise SystemExit, too
        name, trace = type(error).__name__, "".join(traceback.format_exception(error))
        known = RunError(type=name, message=str(error).strip() or name, traceback=trace)
        status: Status = "diverged" if isinstance(error, Diverged) else "failed"
        made.result = dataclasses.replace(made.result, status=status, error=known)
        for file in (run.checkpoint_file, run.weights_file) if isinstance(error, Changed) else ():
            file.unlink(missing_ok=True)
    trainer, files = made.trainer, made.files
    if trainer and files:
        files[run.metrics_file.name] = trainer.metrics.written()
    processes = cell.planned_config.train.devices
    took = round(processes * (time.process_time() - began) + (trainer.clock.cpu_before if trainer else 0.0), 2)
    result = dataclasses.replace(made.result, files=files or None, cpu_seconds=took, ended=now())
    try:
        with refusing_full_disks(run.folder):
            write_json(run.result_file, with_facts(result, trainer, cell).as_json(), run.check)
    except OSError as error:
        say(f"{run.result_file} cannot be written ({error.strerror})")
        return "failed"
    if result.status != "failed" and cell.planned_config.keep != "all":
        run.checkpoint_file.unlink(missing_ok=True)
    return result.status


def train(made: Attempt, run: Run, cell: Cell, seed: int, stop: Callable[[], bool], ranks: Ranks) -> None:
    """Train a run to its last step, save its weights, and evaluate it at other lengths.  Raises any error."""
    config = cell.planned_config
    run.result_file.unlink(missing_ok=True)
    run.evaluation_file.unlink(missing_ok=True)
    written = yaml.safe_dump(config.with_value("seeds", [seed]).as_json(), sort_keys=False).encode()
    write_atomic(run.config_file, written, run.check)
    # Before importing user code: the hash must be that of the code that will run.
    if not run.path.endswith(run_key(config, seed, cell.task)):
        raise RuntimeError("code or libraries changed after the plan was made; give the command again")
    write_json(run.provenance_file, provenance(config, seed, cell.task).as_json(), run.check)
    with contextlib.nullcontext() if is_foreign(numbers(config)) else unchanged():
        ranks.from_first(TRAINING)
        made.trainer = trainer = new_trainer(run, config, seed, ranks)
        if trainer.task.fingerprint != cell.task:
            raise RuntimeError("the data changed after the plan was made; give the command again")
        made.files[run.config_file.name] = sum_of(written)
        made.result = dataclasses.replace(made.result, final={**trainer.train(stop)})
        made.result = dataclasses.replace(made.result, overfits=overfits(run.metrics()[0]))
        with trainer.clock.timed("checkpoint"):
            made.files |= keep_weights(run, trainer.average.model, config.keep)
        with trainer.clock.timed("evaluate"):
            test_lengths(run, config, lambda: (trainer.average.model, trainer.task))


def test_lengths(run: Run, config: Config, trained: Callable[[], tuple[nn.Module, Task]]) -> str:
    """Evaluate a trained model at each missing length: done, or failed with a message on each length that fails; the
    run's result does not change."""
    status = "done"
    for length in lacking(run, config.eval.lengths):
        try:
            with refusing_full_disks(run.folder):
                model, task = trained()
                add_length(run, model, task, setting_of(config), length)
        except (LeaseLost, Corrupt):
            raise
        except Exception as error:  # such as out of memory at a large length
            say(f"{run.path} cannot be tested at eval.lengths=[{length}] ({first_line(error)})")
            status = "failed"
    return status


def keep_weights(run: Run, model: nn.Module, keep: str) -> dict[str, Sum]:
    """Save the evaluated weights unless `keep` is none; returns the files written."""
    if keep == "none":
        return {}
    tensors: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict().items():
        tensors.setdefault(tensor.data_ptr(), (name, tensor))  # tied parameters are stored once, under the first name
    weights = save({name: tensor.cpu().contiguous() for name, tensor in tensors.values()})
    write_atomic(run.weights_file, weights, run.check)
    return {run.weights_file.name: sum_of(weights)}


def with_facts(result: Result, trainer: Trainer | None, cell: Cell) -> Result:
    """Add counts, times, device and versions to a result."""
    found = dataclasses.replace(
        result,
        params=cell.params,
        flops_per_token=cell.flops_per_token,
        data_fingerprint=cell.task,
        versions={"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__},
        git=git(),
        host=socket.gethostname(),
    )
    if trainer is None:
        return found
    seconds = {phase: round(value, 4) for phase, value in trainer.clock.seconds.items()}
    step = trainer.clock.mean_step_seconds()
    rate = trainer.progress.tokens / trainer.progress.step / step if step else None
    flops = cell.flops_per_token
    name, count = device_name(trainer.device), trainer.ranks.count
    # The same for runs that one process trained one after another on one machine.
    sitting = f"{socket.gethostname()} {boot()} {os.getppid()}" if cell.planned_config.timing == "isolated" else None
    return dataclasses.replace(
        found,
        steps=trainer.progress.step,
        tokens=trainer.progress.tokens,
        resumed=trainer.progress.resumed,
        accumulation=trainer.gradients.parts,
        vectors_seconds=trainer.vectors_seconds,
        seconds=seconds | {"total": round(sum(seconds.values()), 4)},
        timing=cell.planned_config.timing,
        sitting=sitting,
        step_seconds=step,
        tokens_per_second=rate,
        mfu=utilisation(flops, rate / count, name, trainer.loop.precision) if rate and flops else None,
        peak_memory=peak_memory(trainer.device),
        device=f"{count} × " * (count > 1) + name,
        documents={"test": trainer.documents},
    )


@functools.cache
def git() -> Commit | None:
    """Commit of the checkout that contains this code, and whether the code has changes; None outside a checkout.  Code
    that is installed inside another repository, as in its .venv, does not belong to that repository's commit."""
    file = Path(__file__).resolve()
    commands = [["ls-files", "--error-unmatch", file.name], ["rev-parse", "HEAD"], ["rev-parse", "--show-toplevel"]]
    commands.append(["status", "--porcelain", "-z", "--untracked-files=all"])
    run = functools.partial(subprocess.run, cwd=file.parent, capture_output=True, text=True, check=True)
    try:
        _, commit, top, status = (run(["git", *what]).stdout.strip() for what in commands)
    except (OSError, subprocess.CalledProcessError):
        return None
    # The code has changes if files differ from the commit, or new ones are in code folders or were imported.
    entries = [entry for entry in status.split("\0") if entry]
    new = [Path(top) / entry.removeprefix("?? ") for entry in entries if entry.startswith("?? ")]
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    code = [file.parents[2] / name for name in ("ablate", "analysis", "conf")]
    is_code = any(str(each) in imported or any(map(each.is_relative_to, code)) for each in new)
    return Commit(commit=commit, dirty=is_code or len(new) < len(entries))


# Prefixes of environment variables that libraries set for themselves.
LIBRARIES = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "CUDA_MODULE_LOADING", "KINETO_", "KMP_", "TORCH_", "FLA_")
SUBNORMAL = 5e-324  # processors can be set to flush it to 0

# Process-wide settings on which the numbers of later runs depend: a run must not change them.
READERS: dict[str, Callable[[], Any]] = {
    "torch's default dtype": torch.get_default_dtype,
    "torch's default device": torch.get_default_device,
    "whether gradients are computed": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "torch's number of threads": torch.get_num_threads,
    "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch's precision of matrix products": torch.get_float32_matmul_precision,
    "anomaly detection": torch.is_anomaly_enabled,
    "torch's flags of cuDNN and TF32": lambda: [
        (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32),
        (torch.backends.mkldnn.enabled, torch.backends.cuda.flash_sdp_enabled()),
    ],
    "whether subnormal numbers are taken for 0": lambda: SUBNORMAL * 1.0 == 0.0,
    "torch's random numbers": lambda: torch.default_generator.get_state().numpy().tobytes(),
    "numpy's random numbers": lambda: repr(numpy.random.get_state(legacy=False)["state"]),
    "Python's random numbers": random.getstate,
    "how numpy treats errors": numpy.geterr,
    "the working folder": os.getcwd,
    "the environment": lambda: {key: value for key, value in os.environ.items() if not key.startswith(LIBRARIES)},
}


class Changed(Exception):
    """A run changed process-wide settings; the message lists them with their values."""


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Raise Changed if the `with` block changes settings that later runs of the process depend on."""
    before = {name: answer(read) for name, read in READERS.items()}
    try:
        yield
    finally:
        after = {name: answer(read) for name, read in READERS.items()}
        if found := [name + difference(before[name], after[name]) for name in READERS if before[name] != after[name]]:
            raise Changed(f"the run changed what other runs of its process depend on: {'; '.join(found)}")


def answer(read: Callable[[], Any]) -> Any:
    """The value of a setting, or the error of reading it: torch raises for contradictory settings."""
    try:
        return read()
    except (RuntimeError, OSError) as error:
        return first_line(error)


def difference(before: Any, after: Any) -> str:
    """The old and new value if they are short; of the environment, the names of changed variables."""
    if isinstance(before, dict):
        return f" ({', '.join(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))})"
    words = f" (from {before} to {after})"
    return words if len(words) < 200 else ""
