"""Estimates the memory that training a cell needs, without running its model, and checks that its device has it."""

import math
import os
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ablate.config.errors import Problem
from ablate.config.schema import BUILT, Config
from ablate.data.task import Batch
from ablate.model.build import build_model, build_objective
from ablate.model.dropout import Dropout
from ablate.model.objective import terms_of
from ablate.planning.checks.small_models import facts_of
from ablate.planning.checks.user_code import cached, isolate_user_code
from ablate.planning.checks.validate import Checked
from ablate.runs.key import code_of
from ablate.runs.records import Cell
from ablate.training.capture import captures
from ablate.training.devices import MEMORY, card_of, cards, environments
from ablate.training.evaluation import positions_at_once
from ablate.training.optim import build_optimiser
from ablate.training.step import Step, build_step

FLOAT = 4  # bytes
DRAWING = 4 * 8  # bytes for each number of a dropout's mask: four of int64 at a time in its hash
ROWS = 8  # of the batch that a step is tried with: it may split it
SMALL = 2e6  # parameters up to which a real optimiser's step takes a fifth of the time of a fake one
MOMENTS = 2  # numbers per parameter of an optimiser that cannot be tried; Adam has two
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
    """Makes attention on the meta device save what the kernels of a device save."""

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


def kept_bytes(config: Config, task: Any, batch: int, device: str) -> tuple[int, int]:
    """Bytes that a training step in float32 saves for backward, and half of the temporary bytes of its largest
    operation, usually the logits and their gradient."""
    kept: dict[int, Tensor] = {}

    def pack(x: Tensor) -> Tensor:
        kept.setdefault(x.untyped_storage()._cdata, x)
        return x

    with torch.device("meta"):
        model = build_model(config, task)
        inputs = {name: x.expand(batch, *x.shape[1:]).clone() for name, x in task.blank().items()}
        own = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers(), *inputs.values())}
        drawn: list[int] = []  # numbers of each dropout's mask
        for module in model.modules():
            if isinstance(module, Dropout) and module.p > 0:
                module.register_forward_pre_hook(lambda _, given: drawn.append(given[0].numel()))
        with AsKernels(device), torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            logits = model(**inputs)
            targets = torch.zeros(logits.shape[:-1], dtype=torch.long)
            loss = F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())
            terms = terms_of(model, build_objective(config), logits.float(), targets, inputs, targets.numel(), 1.0)
    sizes = [x.untyped_storage().nbytes() for key, x in kept.items() if key not in own]
    del loss, terms
    return sum(sizes), max([*sizes, logits.numel() * FLOAT, *(DRAWING * numbers // 2 for numbers in drawn)])


def numbers_trained(config: Config, task: Any, params: int) -> tuple[int, int]:
    """The number of trained parameters, which excludes frozen tables, and of numbers in the optimiser and the step."""
    with torch.random.fork_rng(devices=[]) if params < SMALL else FakeTensorMode():
        model = build_model(config, task)
        trained = [p for p in model.parameters() if p.requires_grad]
        numbers = sum(p.numel() for p in trained)
        for parameter in trained:
            parameter.grad = torch.zeros_like(parameter)
        try:
            with Live() as live:
                optimiser = build_optimiser(config, model)
                step = build_step(config, model, optimiser, config.optim.grad_clip or math.inf)
                if type(step) is not Step:
                    return numbers, held_numbers(step, trained, task, live)
            optimiser.step()
        except Exception:  # a user's optimiser may read values, which fake tensors do not have
            return numbers, MOMENTS * numbers
        return numbers, sum(x.numel() for x in tree_leaves(optimiser.state_dict()) if isinstance(x, Tensor))


class Live(TorchDispatchMode):
    """Tracks the results of operations that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[weakref.ref[Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        found = func(*args, **(kwargs or {}))
        self.made += [weakref.ref(x) for x in tree_leaves(found) if isinstance(x, Tensor)]
        return found

    def numbers(self, besides: list[Tensor]) -> int:
        """The size of these results in numbers, without the tensors `besides`."""
        found = {x.untyped_storage()._cdata: x.untyped_storage() for made in self.made if (x := made()) is not None}
        known = {x.untyped_storage()._cdata for x in besides}
        return sum(storage.nbytes() // FLOAT for key, storage in found.items() if key not in known)


def held_numbers(step: Step, trained: list[nn.Parameter], task: Any, live: Live) -> int:
    """The most numbers that optimiser and step hold during a gradient computation: moments, or copies of weights."""
    inputs = {name: x.expand(ROWS, *x.shape[1:]).clone() for name, x in task.blank().items()}
    batch, most = Batch(inputs, torch.zeros((ROWS, task.context), dtype=torch.long)), [0]
    given = [*inputs.values(), batch.targets, *trained]

    def gradients(part: Batch) -> dict[str, Tensor]:
        for parameter in trained:
            parameter.grad = torch.empty_like(parameter)
        most.append(live.numbers([*given, *(p.grad for p in trained if p.grad is not None)]))
        return {"loss": torch.zeros(())}

    for _ in range(2):  # the first creates the state
        step.update(batch, 0.0, gradients)
    return max(most)


def estimate(params: int, trained: int, moments: int, kept: int, largest: int, outputs: int, config: Config) -> float:
    """Bytes of a training process: parameters, optimiser and step, gradients, the activations of a part of a batch, and
    temporary tensors."""
    train = config.train
    held = FLOAT * (params * (1 + (train.average != "none")) + moments)
    share = HALF if train.precision == "bf16" else 1.0
    stepping = FLOAT * trained + share * kept + 2 * largest  # logits and their gradient
    chunk = positions_at_once(train, config.data["context"])
    evaluating = 4 * FLOAT * chunk * max(outputs, 4 * config.model.dim)
    graphs = train.device == "cuda" and captures(train, params, train.batch_size * config.data["context"])
    working = stepping + evaluating if graphs else max(stepping, evaluating)  # a graph keeps its memory for itself
    return PROCESS[train.device] + HEAP[train.device] * (held + working)


def _counts(config: Config, task: Any, params: int, batch: int, device: str) -> dict[str, int]:
    kept, largest = kept_bytes(config, task, batch, device)
    trained, moments = numbers_trained(config, task, params)
    return {"kept": kept, "largest": largest, "trained": trained, "moments": moments}


def needed(cell: Checked) -> float:
    """Bytes that a cell's training process needs."""
    config, task = cell.config, cell.task
    whole = config.as_json()
    parts = {key: whole[key] for key in (*BUILT, "model", "data")} | {"user": config.user}
    parts |= {"optim": [config.optim._target_, config.arguments("optim")], "step": whole["step"]}
    batch, device = config.train.part_rows, config.train.device
    depends = [parts, facts_of(task), task.vocab, task.outputs, batch, device, code_of(config, cell.user_code).content]
    count = partial(_counts, config, task, cell.budget.params, batch, device)
    try:
        found = cached("memory", depends, lambda: isolate_user_code(config, count))
    except Exception:  # a user's component that does not run on the meta device
        return 0.0
    return estimate(params=cell.budget.params, outputs=task.outputs, config=config, **found)


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
            found.append(Problem("", f"{needs}; {remedies(cell, whole, have, least, devices)}"))
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


def remedies(cell: Checked, whole: float, have: float, least: float, devices: int) -> str:
    """What to write instead, if a process needs `least` bytes, but can only `have` a part of the `whole` device."""
    train = cell.config.train
    fixed = FLOAT * cell.budget.params * (2 + MOMENTS)
    hints = ["train.batch_size"] if train.batch_size > 1 else []
    hints += ["model.dim"] if not hints or fixed > whole / 2 else []
    hints = [f"write a smaller {' or '.join(hints)}"]
    parts = 2 * train.parts
    while parts <= train.batch_size and not cell.budget.running:  # the fewest parts with which a process fits
        if SURE * needed(cell._replace(config=cell.config.with_value("train.parts", parts))) <= have:
            hints.append(f"train.parts={parts}")
            break
        parts *= 2
    hints += ["train.precision=bf16"] * (train.precision == "fp32" and train.device == "cuda")
    hints += [f"train.parallel={int(whole / least) * devices}"] * (whole >= least)
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
