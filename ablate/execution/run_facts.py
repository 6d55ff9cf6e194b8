"""What a result holds of its run: budget, speed, memory, device, versions, commit."""

import dataclasses
import functools
import os
import platform
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import numpy
import torch

from ablate.model.cost import utilisation
from ablate.results.lease import boot
from ablate.results.records import Cell, Commit, Documents, Result, RunError
from ablate.training.devices import device_name, peak_memory
from ablate.training.trainer import Trainer

CODE = ("ablate", "analysis", "conf")  # folders of a checkout whose new files are changes to its code


def describe(error: BaseException) -> RunError:
    """An error as a result keeps it."""
    return RunError(
        type=type(error).__name__,
        message=str(error).strip() or type(error).__name__,
        traceback="".join(traceback.format_exception(error)),
    )


def with_facts(result: Result, trainer: Trainer | None, cell: Cell) -> Result:
    """A result with what it holds besides metrics: counts, times, device, versions."""
    found = dataclasses.replace(
        result,
        params=cell.params,
        flops_per_token=cell.flops_per_token,
        data_fingerprint=cell.task,
        versions=versions(),
        git=git(),
        host=socket.gethostname(),
    )
    if trainer is None:
        return found
    seconds = {phase: round(value, 4) for phase, value in trainer.clock.seconds.items()}
    step = trainer.clock.mean_step_seconds()
    rate = trainer.progress.tokens / trainer.progress.step / step if step else None
    name, texts = device_name(trainer.device), trainer.documents
    return dataclasses.replace(
        found,
        steps=trainer.progress.step,
        tokens=trainer.progress.tokens,
        resumed=trainer.progress.resumed,
        accumulation=trainer.gradients.parts,
        vectors_seconds=trainer.vectors_seconds,
        seconds=seconds | {"total": round(sum(seconds.values()), 4)},
        timing=cell.config.timing,
        sitting=sitting() if cell.config.timing == "isolated" else None,
        step_seconds=step,
        tokens_per_second=rate,
        mfu=utilisation(cell.flops_per_token, rate, name, trainer.loop.precision) if rate else None,
        peak_memory=peak_memory(trainer.device),
        device=name,
        documents={"test": Documents(name=list(texts.name), tokens=list(texts.tokens), loss=list(texts.loss))},
    )


def sitting() -> str:
    """Which process's runs this one is among, that trained one after another on one machine."""
    return f"{socket.gethostname()} {boot()} {os.getppid()}"


def versions() -> dict[str, str]:
    """Versions of what numbers depend on."""
    return {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}


@functools.cache
def git() -> Commit | None:
    """Commit of the checkout that this code is in, and whether the code has changes; None outside a checkout.

    Installed below somebody's repository, as in its .venv, the code is not that of the repository's commit.
    """
    file = Path(__file__).resolve()
    commands = [["ls-files", "--error-unmatch", file.name], ["rev-parse", "HEAD"], ["rev-parse", "--show-toplevel"]]
    commands.append(["status", "--porcelain", "-z", "--untracked-files=all"])
    try:
        _, commit, top, status = (
            subprocess.run(["git", *what], cwd=file.parent, capture_output=True, text=True, check=True).stdout.strip()
            for what in commands
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    # Changed files, or new ones that are in the folders of code or were imported.
    entries = [entry for entry in status.split("\0") if entry]
    new = [Path(top) / entry.removeprefix("?? ") for entry in entries if entry.startswith("?? ")]
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    code = [file.parents[2] / name for name in CODE]
    is_code = any(str(each) in imported or any(map(each.is_relative_to, code)) for each in new)
    return Commit(commit=commit, dirty=is_code or len(new) < len(entries))
