"""A run that changes its process is named and failed, of built-in components, too."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import torch
from one_run import train, write_plan
from torch import nn

from ablate.execution.process_state import Changed, unchanged
from ablate.model.norm import LayerNorm
from ablate.planning.checks.user_code import run_in_subprocess

CHANGES: dict[str, Callable[[], Any]] = {
    "default dtype (from torch.float32 to torch.float64)": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "whether gradients are computed": lambda: torch.set_grad_enabled(False),
    "number of threads": lambda: torch.set_num_threads(3),
    "deterministic algorithms (from False to True)": lambda: torch.use_deterministic_algorithms(True),
    "precision of matrix products": lambda: torch.set_float32_matmul_precision("medium"),
    "taken for 0": lambda: torch.set_flush_denormal(True),
    "torch's random numbers": lambda: torch.rand(1),
    "numpy's random numbers": lambda: numpy.random.rand(),
    "Python's random numbers": lambda: random.random(),
    "the working folder": lambda: os.chdir("/"),
    "the environment (NEW)": lambda: os.environ.update(NEW="1"),
}


def changed(change: Callable[[], Any]) -> str:
    try:
        with unchanged():
            change()
    except Changed as error:
        return str(error)
    return ""


def test_each_change_of_a_process_is_named() -> None:
    assert [name for name, change in CHANGES.items() if name not in run_in_subprocess(partial(changed, change))] == []
    assert changed(lambda: torch.ones(1, 2).relu()) == ""


LOADING = """
from ablate.execution.process_state import unchanged
with unchanged():
    from ablate.data.digits import Digits
    import ablate.training.trainer
    assert Digits(16, 2).features
"""


def test_loading_the_libraries_of_a_task_is_no_change() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_that_changes_its_process_has_failed(plan: Callable[..., Any]) -> None:
    planned, forward = plan("norm=ln", "seeds=1"), LayerNorm.forward

    def changing(self: nn.Module, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        torch.set_flush_denormal(True)
        return forward(self, x, mask)

    write_plan(planned)

    def trained() -> list[Any]:
        LayerNorm.forward = changing
        status, run = train(planned)
        result = run.result()
        return [status, result.error.type, run.weights_file.exists() or run.checkpoint_file.exists()]

    assert run_in_subprocess(trained) == ["failed", "Changed", False]
