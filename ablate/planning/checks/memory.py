"""Estimates the memory that training a cell needs, without computing, and checks that its device has it.

bytes = process + heap · (weights, gradients and optimiser states + activations saved for backward + 2 · logits); runs
that need more all the same halve their batches (`ablate.training`).
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.config.errors import Problem
from ablate.config.schema import Config
from ablate.model.build import build_model
from ablate.planning.cache import machine_memory, once, size_of
from ablate.planning.checks.small_models import Checked
from ablate.runs.records import Cell
from ablate.runs.tables import class_name
from ablate.training.hardware import cards, environments

FLOAT = 4  # bytes
# Numbers that an optimiser holds for each parameter, by its class; Adafactor has one for each row and column.
MOMENTS = {"lion": 1, "sgd": 1, "SGD": 1, "adafactor": 0}
DEFAULT_MOMENTS = 2  # as Adam
PROCESS = {"cpu": 3.3e8, "cuda": 5e8}  # bytes of torch itself, and on a GPU of its context and kernels
HEAP = {"cpu": 1.4, "cuda": 1.1}  # allocated bytes per byte in use; 1.2 to 1.6 measured on the CPU
SURE = 0.8  # a cell is refused if this share of its estimate exceeds the memory
HALF = 0.6  # size of the activations in bf16: norms and softmax keep float32


def count_memory(config: Config, task: Any, rows: int) -> dict[str, int]:
    """The bytes that a step on so many rows saves for backward in float32, those of its logits, and the number of
    trained parameters.  The scores of attention are left out: fused kernels save none."""
    saved: dict[int, Tensor] = {}
    length = task.positions
    scores = rows * config.model.heads * length**2

    def pack(x: Tensor) -> Tensor:
        is_score = x.shape[-2:] == (length, length) and x.numel() == scores
        if not is_score:
            saved.setdefault(x.untyped_storage()._cdata, x)
        return x

    with torch.device("meta"):
        model = build_model(config, task).train()
        inputs = {name: x.to("meta").expand(rows, *x.shape[1:]).clone() for name, x in task.blank().items()}
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            logits = model(**inputs)
            targets = torch.zeros(logits.shape[:-1], dtype=torch.long)
            loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
    lasting = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers(), *inputs.values())}
    sizes = [x.untyped_storage().nbytes() for storage, x in saved.items() if storage not in lasting]
    del loss  # until here it holds what is saved
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"saved": sum(sizes), "logits": logits.numel() * FLOAT, "trained": trained}


def at_most(cell: Checked) -> float:
    """More bytes than a cell's training process needs, without counting them: what is saved for backward has cost at
    least an operation."""
    budget = cell.budget
    device = cell.config.train.device
    weights = budget.params * (3 + DEFAULT_MOMENTS)
    saved = cell.config.train.part_rows * cell.task.positions * (budget.flops_per_token + cell.task.outputs)
    return float(PROCESS[device] + HEAP[device] * FLOAT * (weights + 2 * saved))


def needed(cell: Checked) -> float:
    """Bytes that a cell's training process needs; 0 if they are unknown."""
    config = cell.config
    train = config.train
    depends = [size_of(cell.task), train.part_rows]
    try:
        facts = once("memory", config, depends, partial(count_memory, config, cell.task, train.part_rows))
    except Exception:  # a user's component can fail in any way
        return 0.0
    averages = 0 if train.average == "none" else 1
    weights = cell.budget.params * (1 + averages)
    trained = facts["trained"] * (1 + MOMENTS.get(class_name(config.optim._target_), DEFAULT_MOMENTS))
    activations = facts["saved"] * (HALF if train.precision == "bf16" else 1.0)
    in_use = FLOAT * (weights + trained) + activations + 2 * facts["logits"]  # and their gradient
    return float(PROCESS[train.device] + HEAP[train.device] * in_use)


def memory_problems(rows: list[Cell], checked: list[Checked], runs: int) -> list[Problem]:
    """Problems of cells that need more memory than each training process can have; of GPUs that do not respond here,
    none are known."""
    problems = []
    flops = max((row.flops_per_step for row in rows), default=0.0)  # of the largest step, by which workers are started
    for row, cell in zip(rows, checked, strict=True):
        train = cell.config.train
        workers = environments(train.device, train.parallel, train.devices, flops)
        if train.device == "cuda" and not workers:
            continue
        # The memories: the machine's, or each GPU's.
        memories = len({worker.get("CUDA_VISIBLE_DEVICES") for worker in workers}) or 1
        processes = max(1, math.ceil(min(len(workers), runs) / memories))
        if train.device == "cpu":
            processes *= train.devices
        have = memory_of(train.device) / processes
        if at_most(cell) <= have:
            continue
        need = needed(cell)
        if SURE * need > have:
            where = "on a GPU" if train.device == "cuda" else "on this machine"
            message = f"needs about {need / 1e9:.1f} GB of the {have / 1e9:.1f} GB that each process {where} can have"
            remedy = "write a smaller train.batch_size, model.dim or train.parallel"
            problems.append(Problem("", f"{row.label} {message}; {remedy}"))
    return problems


def memory_of(device: str) -> float:
    """Bytes of the smallest GPU, or of the machine within the limit of this process's cgroup."""
    if device == "cuda":
        return float(min(card.total for card in cards()))
    return machine_memory()
