"""Decides `train.compile` and `train.matmul` if they are `auto`: once per study, and again the same when it continues.

`ablate.model.attend` chooses the kernel of attention, in every forward pass.
"""

import dataclasses
import importlib.util
import shutil
import sysconfig
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch

from ablate.config.schema import Config
from ablate.model.products import product_seconds
from ablate.planning.checks.validate import Checked, in_float32_on_cpu, resolve_auto
from ablate.planning.describe import reconfigured
from ablate.planning.earlier_runs import begun
from ablate.planning.study import CheckedStudy
from ablate.results.records import Cell

# FLOPs of a run above which compiling pays: about a minute.  The value for GPUs is a guess.
LONG = {"cpu": 4e12, "cuda": 4e15}
CLEARLY = 1.15  # times as fast; less could be noise, and the next study of the same cells would not find their runs
ENOUGH = 1024  # rows of a product; more do not change its rate


class Kernels(NamedTuple):
    """The meaning of `auto` in a study; the defaults are those of short runs."""

    matmul: str = "torch"
    compile: bool = False


OPEN = Kernels._fields  # the keys of `train` that can be auto


def with_kernels(study: CheckedStudy) -> CheckedStudy:
    """The study with `train.matmul` and `train.compile` decided: by its manifest, else for this machine."""
    if not any(getattr(config.train, key) == "auto" for config in study.cells.raw for key in OPEN):
        return study
    chosen = of_manifest(study) or chosen_for(*study.cells.references[0])
    if chosen == Kernels():
        return study
    cells = reconfigured(study.cells, study.settings, [decided(config, chosen) for config in study.cells.raw])
    parts = ["compiled"] * chosen.compile + ["float32 products by oneDNN"] * (chosen.matmul == "onednn")
    note = f"{' and '.join(parts)}, which is faster here; train.compile=false train.matmul=torch: neither"
    return dataclasses.replace(study, cells=cells, notes=[*study.notes, note])


def decided(config: Config, chosen: Kernels) -> Config:
    """A configuration with each `auto` decided, if the choice applies to it."""
    if config.train.compile == "auto":
        config = config.with_value("train.compile", chosen.compile)
    if config.train.matmul == "auto" and in_float32_on_cpu(resolve_auto(config)):
        config = config.with_value("train.matmul", chosen.matmul)
    return config


def of_manifest(study: CheckedStudy) -> Kernels | None:
    """The choice that the study or one of its rounds was started with, on any machine; None for a new study."""
    for manifest in begun(study)[0]:
        cells = [(cell.levels, cell.config.train) for cell in manifest.cells]
        # Not levels of the sweep; and some cells may not support the choice.
        compiled = any(train.compile is True for at, train in cells if at.get("train.compile", "auto") == "auto")
        onednn = any(train.matmul == "onednn" for at, train in cells if at.get("train.matmul", "auto") == "auto")
        return Kernels("onednn" if onednn else "torch", compiled)
    return None


def chosen_for(row: Cell, cell: Checked) -> Kernels:
    """The faster choice for a cell's runs on this machine."""
    train = cell.config.train
    if row.flops_per_step * train.steps < LONG[train.device]:
        return Kernels()
    choice = in_float32_on_cpu(cell.config) and torch.backends.mkldnn.is_available()
    products = faster(cell, int(row.tokens_per_step or 1)) if choice else "torch"
    return Kernels(products, can_compile(train.device))


def faster(cell: Checked, rows: int) -> str:
    """The library with the faster products of a model's matrices, without embedding tables, on this machine."""
    shapes = list(cell.budget.shapes.values())
    tables = ("position", "embedding") if any(role == "head" for role, _ in shapes) else ("position",)
    linear = Counter((shape[1], shape[0]) for role, shape in shapes if len(shape) == 2 and role not in tables)
    seconds = {backend: product_seconds(linear, min(rows, ENOUGH), backend) for backend in ("torch", "onednn")}
    return "onednn" if seconds["torch"] > CLEARLY * seconds["onednn"] else "torch"


def can_compile(device: str) -> bool:
    """Whether torch.compile can work: it needs Triton on a GPU, a C++ compiler and Python's headers on a CPU."""
    if device == "cuda":
        return importlib.util.find_spec("triton") is not None
    compiler = any(shutil.which(name) for name in ("g++", "clang++", "c++"))
    return compiler and (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()
