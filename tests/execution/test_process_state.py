"""A run that changes its process is named and failed, of our own components, too."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from conftest import run_fresh
from one_run import train, write_plan
from torch import nn

from ablate.execution.process_state import Changed, unchanged
from ablate.model.norm import LayerNorm
from ablate.planning.checks.user_code import apart

CHANGES: dict[str, Callable[[], Any]] = {
    "default dtype (from torch.float32 to torch.float64)": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "whether gradients are computed": lambda: torch.set_grad_enabled(False),
    "number of threads": lambda: torch.set_num_threads(3),
    "flags of precision and determinism (from": lambda: torch.use_deterministic_algorithms(True),
    "flags of precision": lambda: torch.set_float32_matmul_precision("medium"),
    "taken for 0": lambda: torch.set_flush_denormal(True),
    "torch's random numbers": lambda: torch.rand(1),
    "numpy's random numbers": lambda: numpy.random.rand(),
    "Python's random numbers": lambda: random.random(),
    "the working folder": lambda: os.chdir("/"),
    "the environment (NEW)": lambda: os.environ.update(NEW="1"),
    "torch.nn.functional.relu": lambda: setattr(F, "relu", torch.sigmoid),
    "torch.nn.Linear.forward": lambda: setattr(nn.Linear, "forward", nn.Identity.forward),
    "hooks on all modules": lambda: nn.modules.module.register_module_forward_hook(lambda *_: None),
}


def said(change: Callable[[], Any]) -> str:
    try:
        with unchanged():
            change()
    except Changed as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_of_a_process_is_named(name: str) -> None:
    assert name in apart(lambda: said(CHANGES[name]))


def test_what_changes_nothing_is_no_change() -> None:
    assert apart(lambda: said(lambda: torch.ones(1, 2).relu())) == ""


def test_loading_the_libraries_of_a_task_is_no_change(tmp_path: Path) -> None:
    sizes = ["model.dim=16", "model.layers=1", "model.heads=2", "train.steps=2", "optim.warmup=1", "eval.tokens=64"]
    done = run_fresh("ablate", "model=encoder", "data=digits", "seeds=1", *sizes, "track=none", cwd=tmp_path)
    assert done.returncode == 0 and "0 failed" in done.stdout, done.stdout + done.stderr


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

    assert apart(trained) == ["failed", "Changed", False]
