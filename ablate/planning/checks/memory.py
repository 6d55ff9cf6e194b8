"""Estimates the memory that training a cell needs, without running its model, and checks that its device has it."""

import math
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ablate.config.errors import Problem
from ablate.config.schema import BUILT, Config
from ablate.model.build import build_model, build_objective
from ablate.model.cost import device_for
from ablate.model.dropout import Dropout
from ablate.model.objective import terms_of
from ablate.planning.checks.small_models import facts_of
from ablate.planning.checks.user_code import cached
from ablate.planning.checks.validate import Checked
from ablate.runs.key import code_of, is_foreign
from ablate.runs.records import Cell
from ablate.runs.tables import class_name
from ablate.training.capture import captures
from ablate.training.devices import MEMORY, card_of, cards, environments
from ablate.training.evaluation import positions_at_once

FLOAT = 4  # bytes
DRAWING = 4 * 8  # bytes for each number of a dropout's mask: four of int64 at a time in its hash
# Numbers that an optimiser holds for each parameter, by its class; Adafactor has one for each row and column.
MOMENTS = {"lion": 1, "sgd": 1, "adafactor": 0, "SGD": 1, "RMSprop": 1, "Adagrad": 1, "Rprop": 2, "Adadelta": 2}
DEFAULT_MOMENTS = 2  # as Adam, and for a user's optimiser
HELD_BY_STEP = {"SAM": 2}  # the weights, and the gradients there
PROCESS = {"cpu": 3.3e8, "cuda": 5e8}  # bytes of torch itself, and on a GPU of its context and kernels
HEAP = {"cpu": 1.4, "cuda": 1.1}  # allocated bytes per byte in use; 1.2 to 1.6 measured on the CPU
SURE = 0.8  # a cell is refused if this share of its estimate exceeds the memory
GROUP = Path("/sys/fs/cgroup")  # limits of Linux containers and jobs
UNASKED = "no GPU responds here: precision auto means bf16, and memory is not checked; it is with train.memory=80GB"
HALF = 0.6  # size of the activations in bf16: norms and softmax keep float32


class Fused(torch.autograd.Function):
    """Saves what fused attention saves for backward: queries, keys, values, bias, outputs and one number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """An output of the right shape, (B, H, T, D)."""
        found = query.new_empty(*query.shape[:-1], value.shape[-1])
        kept = [] if bias is None else [bias]
        ctx.save_for_backward(query, key, value, *kept, found, query.new_empty(query.shape[:-1]))
        return found


class AsKernels(TorchFunctionMode):
    """Makes attention save what the kernels of a device save."""

    def __init__(self, device: str):
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace one function."""
        bias = (kwargs or {}).get("attn_mask")
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, key, value = args[:3]
        if self.device != "cuda" and bias is not None and bias.is_floating_point():
            return (query @ key.transpose(-2, -1) + bias).softmax(-1) @ value  # a CPU's kernel takes no such bias
        return Fused.apply(query, key, value, bias)


class Sizes(NamedTuple):
    """Sizes of a training step by which its memory is estimated."""

    saved: int  # bytes that are saved for backward in float32
    largest: int  # half of the temporary bytes of its largest operation, usually the logits and their gradient


def sizes_of(model: nn.Module, config: Config, task: Any, rows: int) -> Sizes:
    """The sizes of a step on a batch of so many rows, on the current default device."""
    saved: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        saved.setdefault(x.untyped_storage()._cdata, x)
        return x

    inputs = {name: x.expand(rows, *x.shape[1:]).clone() for name, x in task.blank().items()}
    lasting = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers(), *inputs.values())}
    drawn: list[int] = []  # numbers of each dropout's mask
    hooks = []
    for module in model.modules():
        if isinstance(module, Dropout) and module.p > 0:
            hooks.append(module.register_forward_pre_hook(lambda _, given: drawn.append(given[0].numel())))
    with AsKernels(config.train.device), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        logits = model(**inputs)
        targets = torch.zeros(logits.shape[:-1], dtype=torch.long)
        loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
        terms = terms_of(model, build_objective(config), logits.float(), targets, inputs, targets.numel(), 1.0)
    for hook in hooks:
        hook.remove()
    sizes = [x.untyped_storage().nbytes() for storage, x in saved.items() if storage not in lasting]
    del loss, terms
    masks = [DRAWING * numbers // 2 for numbers in drawn]
    return Sizes(sum(sizes), max([*sizes, logits.numel() * FLOAT, *masks]))


def count_memory(config: Config, task: Any) -> dict[str, Any]:
    """The sizes of a step on one row and on two, and the number of trained parameters, without frozen tables."""
    with torch.device(device_for(config, task)):
        model = build_model(config, task).train()
        one, two = (sizes_of(model, config, task, rows) for rows in (1, 2))
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {"one": list(one), "two": list(two), "trained": trained}


def memory_facts(cell: Checked) -> dict[str, Any] | None:
    """`count_memory` of a cell, from the cache if it is there; None for a user's component that fails."""
    config, task = cell.config, cell.task
    whole = config.as_json()
    parts = {key: whole[key] for key in (*BUILT, "model")}
    code = code_of(config, cell.user_code).content
    depends = [parts, facts_of(task), task.vocab, task.outputs, task.positions, config.train.device, code]
    try:
        return cached("memory", depends, partial(count_memory, config, task))
    except Exception:
        return None


def moments_of(config: Config) -> int:
    """Numbers that optimiser and step hold for each trained parameter."""
    target = config.optim._target_
    numbers = DEFAULT_MOMENTS if is_foreign({"_target_": target}) else MOMENTS.get(class_name(target), DEFAULT_MOMENTS)
    return numbers + HELD_BY_STEP.get(class_name(config.step["_target_"]), 0)


def needed(cell: Checked) -> float:
    """Bytes that a cell's training process needs; 0 if they are unknown."""
    if cell.memory is None:
        return 0.0
    one, two = Sizes(*cell.memory["one"]), Sizes(*cell.memory["two"])
    rows = cell.config.train.part_rows
    saved = one.saved + (rows - 1) * (two.saved - one.saved)
    largest = one.largest + (rows - 1) * (two.largest - one.largest)
    return estimate(cell.budget.params, cell.memory["trained"], saved, largest, cell.task.outputs, cell.config)


def estimate(params: int, trained: int, saved: int, largest: int, outputs: int, config: Config) -> float:
    """Bytes of a training process: parameters, optimiser and step, gradients, the activations of a part of a batch, and
    temporary tensors."""
    train = config.train
    weights = params * (1 + (train.average != "none"))
    lasting = FLOAT * (weights + moments_of(config) * trained)
    share = HALF if train.precision == "bf16" else 1.0
    stepping = FLOAT * trained + share * saved + 2 * largest  # logits and their gradient
    chunk = positions_at_once(train, config.data["context"])
    evaluating = 4 * FLOAT * chunk * max(outputs, 4 * config.model.dim)
    graphs = train.device == "cuda" and captures(train, params, train.batch_size * config.data["context"])
    working = stepping + evaluating if graphs else max(stepping, evaluating)  # a graph keeps its memory for itself
    return PROCESS[train.device] + HEAP[train.device] * (lasting + working)


def memory_problems(rows: list[Cell], checked: list[Checked], runs: int) -> tuple[list[Problem], list[str]]:
    """Problems of cells that need more memory than each training process can have, and notes on memory in use now."""
    found, notes, fitting = [], [], dict[float, str]()
    flops = max((row.flops_per_step for row in rows), default=0.0)  # of the largest step, by which workers are started
    for row, cell in zip(rows, checked, strict=True):
        train = cell.config.train
        device = train.device
        workers = environments(device, train.parallel, train.devices, flops)
        if train.memory is not None and not workers:  # one GPU, as nobody can be asked how many there are
            workers = [{}] * (1 if train.parallel == "auto" else train.parallel)
        if not workers and device == "cuda":
            notes.append(UNASKED)
            continue
        need = needed(cell)
        (processes, devices), least = sharing(workers or [{}], runs), SURE * need
        processes *= train.devices if device == "cpu" else 1  # each GPU has its own memory
        where = f"each process {'on a GPU' if device == 'cuda' else 'on this machine'}"
        whole, free = memory_of(device) if train.memory is None else (float(card_of(train.memory).total), 0.0)
        if least > (have := whole / processes):
            needs = f"{row.label} needs about {need / 1e9:.1f} GB of the {have / 1e9:.1f} GB that {where} can have"
            found.append(Problem("", f"{needs}; {remedies(cell, whole, least, devices)}"))
        elif train.memory is not None:
            source = train.memory if str(train.memory).lower() in MEMORY else "train.memory; precision auto means bf16"
            shared = f"; {processes} processes share it" * (processes > 1)
            fitting[need] = f"memory: about {need / 1e9:.1f} GB of {have / 1e9:.4g} GB ({source}{shared})"
        elif least > (have := free / processes):
            needs = f"{row.label} needs about {need / 1e9:.1f} GB, and others leave {have / 1e9:.1f} GB to {where}"
            notes.append(f"{needs} at present")
    return found, notes + [fitting[need] for need in sorted(fitting)[-1:]]


def sharing(workers: list[dict[str, str]], runs: int) -> tuple[int, int]:
    """The most training processes that share a memory, and the number of memories: the machine's, or each GPU's."""
    devices = len({worker.get("CUDA_VISIBLE_DEVICES") for worker in workers})
    return max(1, math.ceil(min(len(workers), runs) / devices)), devices


def remedies(cell: Checked, whole: float, least: float, devices: int) -> str:
    """What to write instead, if a process needs at least so many bytes of the whole device."""
    train = cell.config.train
    fixed = FLOAT * cell.budget.params * (2 + DEFAULT_MOMENTS)
    smaller = []
    if train.batch_size > 1:
        smaller.append("train.batch_size")
    if train.batch_size == 1 or fixed > whole / 2:
        smaller.append("model.dim")
    hints = [f"write a smaller {' or '.join(smaller)}"]
    if train.precision == "fp32" and train.device == "cuda":
        hints.append("train.precision=bf16")
    if whole >= least:
        hints.append(f"train.parallel={int(whole / least) * devices}")
    return ", or ".join(hints)


def memory_of(device: str) -> tuple[float, float]:
    """Bytes of the smallest GPU, or of the machine within the limit of this process's cgroup, and those free now."""
    if device == "cuda":
        return float(min(card.total for card in cards())), float(min(card.free for card in cards()))
    whole, free = [float("inf"), 1024.0 * meminfo("MemTotal")], [1024.0 * meminfo("MemAvailable")]
    with suppress(OSError, ValueError):
        whole.append(float((GROUP / "memory.max").read_text()))
        used = float((GROUP / "memory.current").read_text())
        counts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        free.append(whole[-1] - used + float(counts.get("inactive_file", 0)))  # what is only cached can go
    return min(whole), min(free)


def meminfo(key: str) -> float:
    """A line of /proc/meminfo in KiB; on other systems the whole memory."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return float(next(line for line in lines if line.startswith(f"{key}:")).split()[1])
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024
    return float("inf")
