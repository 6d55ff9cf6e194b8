"""Every variant in every form, with masks and with dropout: bf16 steps on the device, float32 steps on the CPU."""

import contextlib
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch

from ablate.config.components import resolve
from ablate.config.files import read_plain
from ablate.config.groups import groups
from ablate.config.schema import COMPONENTS, Config
from gpu_parts.setup import Report, Setup, losses, on, one_cell, reason, trainer_of

FORMS = {
    "decoder": ["data.context=64"],
    "decoder, masks": ["data=reverse"],
    "encoder": ["model=encoder", "data=mlm", "data.context=64"],
    "encoder-decoder, masks": ["model=encoder_decoder", "data=addition"],
}
SIZE = ["model.dim=64", "model.layers=2", "model.heads=4", "train.batch_size=8", "optim.warmup=1"]
STEPS = 5  # the last two of which are replayed as CUDA graphs
PROCESSES = 6  # that share the cells: most of a small cell's time is the CPU's
NEAR = 0.05  # of losses near 4 at the first step
LATER = 0.5  # the same at the last step, which Adam's first steps lead to
NARROW: dict[str, dict[str, Any]] = {"window": {"window": 16}}  # the default is wider than these contexts
# Families by what their operators are called.
KERNELS = {"flash_attention": "flash", "efficient_attention": "efficient", "cudnn_attention": "cudnn"}


class Row(NamedTuple):
    """What became of a cell: the difference of its first losses, the kernels of its attention, what did not hold."""

    name: str
    difference: float
    kernels: list[str]
    failure: str


def sample(setup: Setup, report: Report) -> None:
    """Every eighth cell of `variants`."""
    variants(setup, report, 8)


def variants(setup: Setup, report: Report, every: int = 1) -> None:
    """Losses, gradients and kernels of each cell; at a toy size of some."""
    processes = setup.pick(1, PROCESSES)
    step = setup.pick(29, every) * processes
    rows: list[Row] = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        shares = [pool.submit(compare_share, setup, first, step) for first in range(0, step, step // processes)]
        for share in shares:
            rows += share.result()
    names_of_kernel: dict[str, list[str]] = {}
    for row in rows:
        report.expect(not row.failure, row.failure)
        for kernel in row.kernels:
            names_of_kernel.setdefault(kernel, []).append(row.name)
    report.add(cells=len(rows), worst_difference=max(row.difference for row in rows), kernels=names_of_kernel)
    if setup.device == "cuda":
        report.expect("cudnn" not in names_of_kernel, "cuDNN's attention is used")


def compare_share(setup: Setup, first: int, step: int) -> list[Row]:
    """The rows of every so many cells."""
    setup = setup._replace(folder=setup.folder / str(first))
    setup.folder.mkdir()
    cells = list(all_cells(setup).items())
    return [compare(setup, name, config) for name, config in cells[first::step]]


def all_cells(setup: Setup) -> dict[str, Config]:
    """Each variant in each form that takes it, without and with dropout.

    Embeddings with vectors trained on the CPU are left out: on a GPU they are the table of `learned`."""
    references = {form: one_cell(setup.words(*SIZE, *words)).config for form, words in FORMS.items()}
    cells = {}
    for group in COMPONENTS:
        for variant, file in sorted(groups()[group].items()):
            node = read_plain(file) | NARROW.get(variant, {})
            if hasattr(resolve(group, node["_target_"]), "begin_with"):
                continue
            for form, config in in_forms(references, group, node).items():
                for dropout in (0.0, 0.1):
                    name = f"{group}={variant}, {form}, dropout {dropout}"
                    cells[name] = config.with_value("model.dropout", dropout)
    return cells


def in_forms(references: dict[str, Config], group: str, node: dict[str, Any]) -> dict[str, Config]:
    """A variant in each form that takes it, and with what it needs there.

    What reads from left to right is in no encoder, an attention of that kind beside another one across stacks; a table
    that is frozen beside a head of its own.
    """
    cells = {form: config.with_value(group, node) for form, config in references.items()}
    if group == "embedding":
        return {form: config.with_value("model.tie_embeddings", False) for form, config in cells.items()}
    if getattr(resolve(group, node["_target_"]), "causal_only", False):
        del cells["encoder"]
        both = cells.pop("encoder-decoder, masks")
        if group == "attention":
            across = read_plain(groups()["cross_attention"]["mha"])
            cells["encoder-decoder, masks"] = both.with_value("cross_attention", across)
    return cells


def compare(setup: Setup, name: str, config: Config) -> Row:
    """A cell's losses on the device in bf16 and on the CPU in float32, and, of attention and positions, the kernels."""
    profiled = name.startswith(("attention", "position"))
    try:
        expected = losses(trainer_of(setup, f"{name}, CPU", on(config, "cpu", "fp32")), STEPS)
        trainer = trainer_of(setup, name, on(config, setup.device, "bf16"))
        with torch.profiler.profile() if profiled else contextlib.nullcontext() as profile:
            measured = losses(trainer, STEPS)
    except Exception as error:  # one cell that fails must not end the others
        return Row(name, 0.0, [], f"{name}: {reason(error)}")
    difference = abs(measured[0] - expected[0])
    near = difference < NEAR and abs(measured[-1] - expected[-1]) < LATER
    finite = all(map(math.isfinite, measured)) and all(bool(p.isfinite().all()) for p in trainer.model.parameters())
    failure = "" if near and finite else f"{name}: losses {measured} in bf16, {expected} on the CPU in float32"
    kernels = kernels_in(profile) or ["explicit"] if profiled else []
    return Row(name, difference, kernels, failure)


def kernels_in(profile: torch.profiler.profile) -> list[str]:
    """The families of fused kernels of attention that a profile has."""
    names = " ".join(event.key for event in profile.key_averages()).lower()
    return sorted({family for part, family in KERNELS.items() if part in names})
