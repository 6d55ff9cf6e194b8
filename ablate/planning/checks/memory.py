"""Estimates the memory that training a cell needs, without running its model, and checks that its device has it.

bytes = process + heap · (weights, gradients and optimiser states + activations saved for backward + 2 · the largest
of these); runs that need more all the same halve their batches (`ablate.training`).
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ablate.config.errors import Problem
from ablate.config.schema import Config, Train
from ablate.model.build import build_model, build_objective
from ablate.model.objective import terms_of
from ablate.planning.cache import machine_memory, once, size_of
from ablate.planning.checks.validate import Checked
from ablate.runs.key import is_foreign
from ablate.runs.records import Cell
from ablate.runs.tables import class_name
from ablate.training.hardware import card_of, cards, environments

FLOAT = 4  # bytes
# Numbers that an optimiser holds for each parameter, by its class; Adafactor has one for each row and column.
MOMENTS = {"lion": 1, "sgd": 1, "SGD": 1, "adafactor": 0}
DEFAULT_MOMENTS = 2  # as Adam, and for a user's optimiser
PROCESS = {"cpu": 3.3e8, "cuda": 5e8}  # bytes of torch itself, and on a GPU of its context and kernels
HEAP = {"cpu": 1.4, "cuda": 1.1}  # allocated bytes per byte in use; 1.2 to 1.6 measured on the CPU
SURE = 0.8  # a cell is refused if this share of its estimate exceeds the memory
UNASKED = "no GPU responds here: precision auto means bf16, and memory is not checked; it is with train.memory=80GB"
HALF = 0.6  # size of the activations in bf16: norms and softmax keep float32


class Fused(torch.autograd.Function):
    """Saves what fused attention saves for backward: queries, keys, values, bias, outputs and one number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """An output of the right shape, (B, H, T, D)."""
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        biases = [] if bias is None else [bias]
        ctx.save_for_backward(query, key, value, *biases, output, query.new_empty(query.shape[:-1]))
        return output


class AsKernels(TorchFunctionMode):
    """Makes attention save what the kernels of a device save."""

    def __init__(self, device: str):
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace one function."""
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = args[:3]
        bias = kwargs.get("attn_mask")
        if self.device != "cuda" and bias is not None and bias.is_floating_point():
            return (query @ key.transpose(-2, -1) + bias).softmax(-1) @ value  # a CPU's kernel takes no such bias
        return Fused.apply(query, key, value, bias)


def count_memory(config: Config, task: Any, rows: int) -> dict[str, int]:
    """The bytes that a step on so many rows saves for backward in float32, those of the largest tensor, and the number
    of trained parameters, without frozen tables."""
    saved: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        saved.setdefault(x.untyped_storage()._cdata, x)
        return x

    example = task.blank()
    with torch.device("meta"):
        model = build_model(config, task).train()
        inputs = {name: x.to("meta").expand(rows, *x.shape[1:]).clone() for name, x in example.items()}
        with AsKernels(config.train.device), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            logits = model(**inputs)
            targets = torch.zeros(logits.shape[:-1], dtype=torch.long)
            loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
            terms = terms_of(model, build_objective(config), logits.float(), targets, inputs, targets.numel(), 1.0)
    lasting = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers(), *inputs.values())}
    sizes = [x.untyped_storage().nbytes() for storage, x in saved.items() if storage not in lasting]
    largest = max([*sizes, logits.numel() * FLOAT])
    del loss, terms  # until here they hold what is saved
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"saved": sum(sizes), "largest": largest, "trained": trained}


def moments_of(config: Config) -> int:
    """Numbers that an optimiser holds for each trained parameter."""
    target = config.optim._target_
    if is_foreign({"_target_": target}):
        return DEFAULT_MOMENTS
    return MOMENTS.get(class_name(target), DEFAULT_MOMENTS)


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
    depends = [size_of(cell.task), train.part_rows, train.device]
    try:
        facts = once("memory", config, depends, partial(count_memory, config, cell.task, train.part_rows))
    except Exception:  # a user's component can fail in any way
        return 0.0
    averages = 0 if train.average == "none" else 1
    weights = cell.budget.params * (1 + averages)
    trained = facts["trained"] * (1 + moments_of(config))
    activations = facts["saved"] * (HALF if train.precision == "bf16" else 1.0)
    in_use = FLOAT * (weights + trained) + activations + 2 * facts["largest"]  # the logits and their gradient
    return float(PROCESS[train.device] + HEAP[train.device] * in_use)


def memory_problems(rows: list[Cell], checked: list[Checked], runs: int) -> tuple[list[Problem], list[str]]:
    """Problems of cells that need more memory than each training process can have, and notes on planned GPUs."""
    problems = []
    notes = []
    flops = max((row.flops_per_step for row in rows), default=0.0)  # of the largest step, by which workers are started
    largest = ""
    most = 0.0
    for row, cell in zip(rows, checked, strict=True):
        train = cell.config.train
        workers = workers_of(train, flops)
        if not workers and train.device == "cuda":
            notes.append(UNASKED)
            continue
        processes, devices = sharing(workers or [{}], runs)
        if train.device == "cpu":
            processes *= train.devices  # each GPU has its own memory
        total = memory_of(train.device) if train.memory is None else float(card_of(train.memory).total)
        have = total / processes
        if train.memory is None and at_most(cell) <= have:
            continue
        need = needed(cell)
        if SURE * need > have:
            where = "on a GPU" if train.device == "cuda" else "on this machine"
            message = (
                f"{row.label} needs about {need / 1e9:.1f} GB of the {have / 1e9:.1f} GB that each process {where}"
            )
            problems.append(Problem("", f"{message} can have; {remedies(total, need, devices)}"))
        elif train.memory is not None and need > most:
            most = need
            largest = f"memory: about {need / 1e9:.1f} GB of {have / 1e9:.4g} GB (train.memory={train.memory})"
    return problems, [*dict.fromkeys(notes), *([largest] if largest else [])]


def workers_of(train: Train, flops: float) -> list[dict[str, str]]:
    """The environments of a cell's workers; with train.memory, for a GPU that is not here, of one or train.parallel."""
    workers = environments(train.device, train.parallel, train.devices, flops)
    if workers or train.memory is None:
        return workers
    return [{}] * (1 if train.parallel == "auto" else int(train.parallel))


def sharing(workers: list[dict[str, str]], runs: int) -> tuple[int, int]:
    """The most training processes that share a memory, and the number of memories: the machine's, or each GPU's."""
    devices = len({worker.get("CUDA_VISIBLE_DEVICES") for worker in workers})
    return max(1, math.ceil(min(len(workers), runs) / devices)), devices


def remedies(total: float, need: float, devices: int) -> str:
    """What to write instead, if a process needs so many bytes and the device has a total."""
    hint = "write a smaller train.batch_size or model.dim"
    fitting = int(total / (SURE * need)) * devices
    return f"{hint}, or train.parallel={fitting}" if fitting else hint


def memory_of(device: str) -> float:
    """Bytes of the smallest GPU, or of the machine within the limit of this process's cgroup."""
    if device == "cuda":
        return float(min(card.total for card in cards()))
    return machine_memory()
