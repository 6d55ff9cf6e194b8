"""Execution of one run: lock it, start or resume it, train, save its weights, write its result."""

import dataclasses
import os
import platform
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy
import torch
import yaml
from safetensors.torch import save
from torch import nn

from ablate.config.errors import Corrupt, Unreadable, first_line
from ablate.config.schema import Config
from ablate.data.task import Task
from ablate.execution.pool import Order
from ablate.execution.signals import DiskFull, raising_disk_full
from ablate.formatting.streams import say
from ablate.model.cost import utilisation
from ablate.model.products import use
from ablate.runs.files import Sum, set_aside, sum_of, write_atomic
from ablate.runs.folder import Run, lacking, now
from ablate.runs.key import provenance, run_key
from ablate.runs.lock import LeaseLost, boot
from ablate.runs.records import Cell, Commit, Result, RunError
from ablate.runs.user_files import CHANGED, local_modules, refuse_changed, refuse_unplanned
from ablate.training.devices import device_name, peak_memory
from ablate.training.divergence import Diverged, overfits
from ablate.training.evaluation import add_length, setting_of
from ablate.training.load import load_run
from ablate.training.ranks import ALONE, RankLost, Ranks
from ablate.training.trainer import Interrupted, Trainer, new_trainer

ShouldStop = Callable[[], bool]

TRAINING = "training"  # what rank 0 sends to the others when they begin


def train_run(order: Order, should_stop: ShouldStop, ranks: Ranks = ALONE) -> str:
    """Train one run under its lock, unless it has ended; failed runs are retried, diverged ones are final.

    Returns its status: done, diverged or failed with a result, interrupted with a checkpoint, busy if another process
    trains it and the order does not wait.  Raises DiskFull and RankLost.
    """
    run = Run(Path(order.results), order.path)
    config = dataclasses.replace(order.cell.planned_config, user=order.user)
    cell = dataclasses.replace(order.cell, config=config)
    device: str = config.train.device
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if device == "cuda" and visible:
        device = f"cuda:{visible}"
    while not should_stop():
        with raising_disk_full(run.folder), run.lock(lambda: order.wait and not should_stop(), device) as is_locked:
            if not is_locked:
                break
            try:
                return complete_run(run, cell, order.seed, should_stop, ranks)
            except LeaseLost as error:
                say(str(error))
                if ranks.count > 1:  # the others are in the midst of the run
                    raise RankLost(first_line(error)) from None
        if not order.wait:
            break
    return "interrupted" if should_stop() else "busy"


def follow(order: Order, should_stop: ShouldStop, ranks: Ranks, folder: Path) -> str:
    """Train a run with rank 0, which alone writes its files; returns how it ended there.  Raises RankLost."""
    config = dataclasses.replace(order.cell.planned_config, user=order.user)
    while True:
        status = ranks.from_first("")
        if status != TRAINING:
            return status
        try:
            new_trainer(Run(folder, order.path), config, order.seed, ranks).train(should_stop)
        except (Interrupted, Diverged):
            pass  # as all ranks are
        except BaseException as error:
            ranks.leave_error(error)
            raise RankLost(first_line(error)) from None


def complete_run(run: Run, cell: Cell, seed: int, should_stop: ShouldStop, ranks: Ranks) -> str:
    """Train a locked run, or if it is done evaluate it at the lengths that are missing."""
    for file in list(run.folder.iterdir()):
        if not file.is_file() and ".corrupt" not in file.name:  # such as a pipe, which would block its reader
            say(f"{file} is no file; set aside as {set_aside(file).name}")
    config = cell.planned_config
    try:
        result = run.result()
        if result and result.status == "done":
            return evaluate_lengths(run, config, lambda: saved_model(run, config))
        if result and result.status == "diverged":
            return "diverged"
    except Unreadable as error:
        say(str(error))
        return "failed"
    except Corrupt as error:
        put_aside(run, error, error.file or run.result_file, "trained again")
    return attempt(run, cell, seed, should_stop, ranks)


def put_aside(run: Run, error: Corrupt, file: Path, action: str) -> None:
    """Report and set aside the damaged file of a run that will be trained or tested again."""
    run.check()
    say(f"{error}; set aside as {set_aside(file).name}, {action}")


def saved_model(run: Run, config: Config) -> tuple[nn.Module, Task]:
    """The trained model of a run, on the device that it was trained on, and its task."""
    loaded = load_run(run.folder, config.user)
    train = loaded.own_config().train
    model = loaded.model().to(train.device)
    use(train.matmul, model, train.device)
    return model, loaded.task()


@dataclasses.dataclass
class Attempt:
    """What a run has so far, from which its result is written however it ends."""

    result: Result
    trainer: Trainer | None = None
    files: dict[str, Sum] = dataclasses.field(default_factory=dict)  # whose checksums go into the result


def attempt(run: Run, cell: Cell, seed: int, should_stop: ShouldStop, ranks: Ranks) -> str:
    """Train a run and write its result, unless it is interrupted; returns its status.  Raises DiskFull and RankLost."""
    this = Attempt(Result(status="done", final={}, git=git(), started=now()))
    cpu_start = time.process_time()
    try:
        with raising_disk_full(run.folder):
            train(this, run, cell, seed, should_stop, ranks)
    except Interrupted:
        return "interrupted"
    except (LeaseLost, DiskFull, RankLost):
        raise
    except Diverged as error:
        this.result = dataclasses.replace(
            this.result, status="diverged", error=described(error, cell.planned_config.user)
        )
    except BaseException as error:  # a component can raise SystemExit, too
        this.result = dataclasses.replace(
            this.result, status="failed", error=described(error, cell.planned_config.user)
        )
    cpu_seconds = cell.planned_config.train.devices * (time.process_time() - cpu_start)
    if this.trainer:
        cpu_seconds += this.trainer.clock.cpu_before
        this.files[run.metrics_file.name] = this.trainer.metrics.written()
    result = with_facts(this.result, this.trainer, cell)
    result = dataclasses.replace(result, files=this.files or None, cpu_seconds=round(cpu_seconds, 2), ended=now())
    try:
        with raising_disk_full(run.folder):
            run.write(run.result_file, result)
    except OSError as error:
        say(f"{run.result_file} cannot be written ({error.strerror})")
        return "failed"
    if result.status != "failed" and cell.planned_config.keep != "all":
        run.checkpoint_file.unlink(missing_ok=True)
    return result.status


def described(error: BaseException, user: Iterable[str]) -> RunError:
    """An error as a result records it; one that user code raised names the line there."""
    name = type(error).__name__
    message = str(error).strip() or name
    line = line_in(user, error)
    if line:
        message = f"{message} ({line})"
    return RunError(type=name, message=message, traceback="".join(traceback.format_exception(error)))


def line_in(packages: Iterable[str], error: BaseException) -> str:
    """The last line of some packages in an error's traceback: "my_package/norms.py:19"; "" without one."""
    tops = {package.partition(".")[0] for package in packages}
    place = ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in tops:
            file = Path(frame.f_code.co_filename)
            parts = len(module.split(".")) + (file.stem == "__init__")
            place = f"{'/'.join(file.parts[-parts:])}:{number}"
    return place


def train(this: Attempt, run: Run, cell: Cell, seed: int, should_stop: ShouldStop, ranks: Ranks) -> None:
    """Train a run to its last step, save its weights, and evaluate it at other lengths.  Raises any error."""
    config = cell.planned_config
    run.check()
    run.result_file.unlink(missing_ok=True)
    run.evaluation_file.unlink(missing_ok=True)
    config_text = yaml.safe_dump(config.with_value("seeds", [seed]).as_json(), sort_keys=False).encode()
    write_atomic(run.config_file, config_text, run.check)
    user_code = cell.user_code
    if not run.path.endswith(run_key(config, seed, cell.task, user_code)):
        raise RuntimeError(CHANGED)
    provenance_sum = run.write(run.provenance_file, provenance(config, seed, cell.task, user_code))

    modules_before = local_modules()
    ranks.from_first(TRAINING)
    trainer = new_trainer(run, config, seed, ranks)
    if user_code:
        refuse_changed(user_code, config.user)
        refuse_unplanned(user_code, config.user, modules_before)
        modules_before = local_modules()
    if trainer.task.fingerprint != cell.task:
        raise RuntimeError("the data changed after the plan was made; give the command again")
    this.trainer = trainer
    this.files[run.config_file.name] = sum_of(config_text)
    this.files[run.provenance_file.name] = provenance_sum

    final = trainer.train(should_stop)
    this.result = dataclasses.replace(this.result, final=dict(final), overfits=overfits(run.metrics()[0]))
    if config.keep != "none":
        with trainer.clock.timed("checkpoint"):
            this.files[run.weights_file.name] = save_weights(run, trainer.average.model)
    with trainer.clock.timed("evaluate"):
        evaluate_lengths(run, config, lambda: (trainer.average.model, trainer.task))
    if user_code:
        try:
            refuse_unplanned(user_code, config.user, modules_before)
        except RuntimeError:
            run.checkpoint_file.unlink(missing_ok=True)  # a resumed run might not import the module again
            raise


def evaluate_lengths(run: Run, config: Config, load: Callable[[], tuple[nn.Module, Task]]) -> str:
    """Evaluate a trained model at each missing length: done, or failed with a message on each length that fails.

    The run's result does not change.
    """
    try:
        run.evaluation()
    except Unreadable:
        raise
    except Corrupt as error:
        put_aside(run, error, run.evaluation_file, "tested again")
    lengths = lacking(run, config.eval.lengths)
    status = "done"
    model_and_task = None
    for length in lengths:
        try:
            with raising_disk_full(run.folder):
                model_and_task = model_and_task or load()
                add_length(run, *model_and_task, setting_of(config), length)
        except (LeaseLost, Corrupt):
            raise
        except Exception as error:  # such as out of memory at a large length
            say(f"{run.path} cannot be tested at eval.lengths=[{length}] ({first_line(error)})")
            status = "failed"
    return status


def save_weights(run: Run, model: nn.Module) -> Sum:
    """Save the evaluated weights; returns the file's size and digest."""
    tensors: dict[str, torch.Tensor] = {}
    saved: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in saved:  # tied parameters are stored once, under the first name
            saved.add(tensor.data_ptr())
            tensors[name] = tensor.cpu().contiguous()
    weights = save(tensors, {"key": run.key})
    write_atomic(run.weights_file, weights, run.check)
    return sum_of(weights)


def with_facts(result: Result, trainer: Trainer | None, cell: Cell) -> Result:
    """Add counts, times, device and versions to a result."""
    host = socket.gethostname()
    config = cell.planned_config
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "cpu_kernels": torch.backends.cpu.get_cpu_capability(),  # ATEN_CPU_CAPABILITY can choose older ones
    }
    result = dataclasses.replace(
        result,
        params=cell.params,
        flops_per_token=cell.flops_per_token,
        data_fingerprint=cell.task,
        versions=versions,
        host=host,
    )
    if trainer is None:
        return result
    seconds = {phase: round(value, 4) for phase, value in trainer.clock.seconds.items()}
    seconds["total"] = round(sum(seconds.values()), 4)
    devices = trainer.ranks.count
    device = device_name(trainer.device)
    progress = trainer.progress
    step_seconds = trainer.clock.mean_step_seconds()
    tokens_per_second = None
    mfu = None
    if step_seconds:
        tokens_per_second = progress.tokens / progress.step / step_seconds
        if cell.flops_per_token:
            precision = config.train.precision
            mfu = utilisation(cell.flops_per_token, tokens_per_second / devices, device, precision)
    sitting = None
    if config.timing == "isolated":  # the same for runs that one process trained one after another on one machine
        sitting = f"{host} {boot()} {os.getppid()}"
    return dataclasses.replace(
        result,
        steps=progress.step,
        tokens=progress.tokens,
        resumed=progress.resumed,
        accumulation=trainer.gradients.parts,
        vectors_seconds=trainer.vectors_seconds,
        seconds=seconds,
        timing=config.timing,
        sitting=sitting,
        step_seconds=step_seconds,
        tokens_per_second=tokens_per_second,
        mfu=mfu,
        peak_memory=peak_memory(trainer.device),
        device=f"{devices} × {device}" if devices > 1 else device,
        documents={"test": trainer.documents},
    )


def git() -> Commit | None:
    """Commit of the checkout that contains this code, and whether the code has changes; None outside a checkout.

    Code that is installed inside another repository, as in its .venv, does not belong to that repository's commit.
    """
    file = Path(__file__).resolve()

    def output(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=True).stdout

    try:
        output("ls-files", "--error-unmatch", file.name)
        commit, top = output("rev-parse", "HEAD", "--show-toplevel").splitlines()
        entries = output("status", "--porcelain", "-z", "--untracked-files=all").strip("\0").split("\0")
    except (OSError, subprocess.CalledProcessError):
        return None
    new_files: list[Path] = []
    changed = False
    for entry in filter(None, entries):
        if entry.startswith("?? "):
            new_files.append(Path(top) / entry.removeprefix("?? "))
        else:
            changed = True
    # New files are changes of the code if they are in its folders or were imported.
    folders = [file.parents[2] / name for name in ("ablate", "analysis")]
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for new_file in new_files:
        if str(new_file) in imported or any(new_file.is_relative_to(folder) for folder in folders):
            changed = True
    return Commit(commit=commit, dirty=changed)
