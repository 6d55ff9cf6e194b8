"""Runs user code in a separate process, as the planning process never loads any, and caches what checks find."""

import contextlib
import hashlib
import importlib
import json
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ablate.config.errors import Corrupt, one_line
from ablate.config.schema import Config
from ablate.config.targets import within
from ablate.data.corpus import cache_folder
from ablate.data.task import Task
from ablate.execution.pool import how_it_died
from ablate.planning.checks.child import ALMOST, become_subreaper, kill_children, start
from ablate.runs.code_digest import SOURCES
from ablate.runs.files import read_json, write_json
from ablate.runs.key import is_foreign, parts_of, torch_version
from ablate.runs.user_files import compile_from_source, forget_local_modules

Record = dict[str, Any]

LONG = 30.0  # seconds after which a message says what takes so long
POLL = 0.2  # seconds between checks whether a process has died
FACTS = [
    *("name", "title", "kind", "kinds", "token", "metrics", "yardsticks", "train_tokens", "bytes_per_token", "notes"),
    *("vocab", "outputs", "features", "context", "positions", "length", "fingerprint"),
]
OWN_CODE = hashlib.sha256(b"".join(SOURCES.values())).hexdigest()
loads_user_code = False  # whether this process may
SUBNORMAL = 5e-324  # processors can be set to take it for 0
# Settings of the process on which every number depends: importing a module must not change them.
SETTINGS: dict[str, Callable[[], Any]] = {
    "torch's default dtype": torch.get_default_dtype,
    "torch's default device": torch.get_default_device,
    "whether gradients are computed": torch.is_grad_enabled,
    "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch's precision of matrix products": torch.get_float32_matmul_precision,
    "torch's use of TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "torch's use of oneDNN": lambda: torch.backends.mkldnn.enabled,
    "torch's number of threads": torch.get_num_threads,
    "whether subnormal numbers are taken for 0": lambda: SUBNORMAL * 1.0 == 0.0,
}


class Failed(Exception):
    """User code raised an exception, or its process died; the message says how."""


def isolate_user_code(config: Config, call: Callable[[], Any]) -> Any:
    """What `call` returns, as plain data; in a separate process if the cell has user components.  Raises Failed, naming
    these components, if that process dies or raises; without one, whatever `call` raises."""
    if loads_user_code or not is_foreign(config):
        return call()
    parts = " or ".join(sorted({target for _, target in parts_of(config) if is_foreign({"_target_": target})}))
    try:
        return run_in_subprocess(call, about=f"building {parts}")
    except Failed as error:
        raise Failed(f"{parts}: {error}") from None


def run_in_subprocess(call: Callable[[], Any], seconds: float = math.inf, about: str = "") -> Any:
    """What `call` returns, as plain data, from a separate process.  Prints what it is `about` if that takes long.
    Raises Failed, also after these seconds without an answer."""
    if loads_user_code:
        return call()
    child = start(partial(answer, call))
    found, line, began, reported = {}, None, time.monotonic(), not about
    try:
        while line is None and time.monotonic() < began + seconds:
            line = child.receive(POLL)
            if line is None and not reported and time.monotonic() >= began + LONG:
                print(f"ablate: still {about}, after {LONG:.0f} s; Ctrl-C stops it", file=sys.stderr, flush=True)
                reported = True
    finally:
        code = child.end(ALMOST if line == "" else 0)
    if line is None:
        raise Failed(f"it took longer than {seconds:.0f} s")
    with contextlib.suppress(ValueError):
        found = json.loads(line or "{}")
    if not found:
        raise Failed(how_it_died(code, "its process"))
    if "error" in found:
        raise Failed(found["error"])
    return found["value"]


def import_problems(config: Config) -> list[str]:
    """The settings of the process that importing a cell's user modules changes, as sentences."""
    modules = {target.rpartition(".")[0] for _, target in parts_of(config)}
    problems = []
    for module in sorted(module for module in modules if within(module, config.user)):  # nothing else may be imported
        before = {name: read() for name, read in SETTINGS.items()}
        try:
            importlib.import_module(module)
        except Exception:  # reported where the target is looked up
            continue
        for name, read in SETTINGS.items():
            if read() != before[name]:
                change = f"changes {name} from {before[name]} to {read()}"
                problems.append(f"importing {module} {change}, which would change all else that a run computes")
    return problems


def cached(kind: str, depends: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, or newly made; besides `depends` it depends on torch's version and ablate's code.  A
    damaged record is made again; a full disk is ignored."""
    content = json.dumps([kind, depends, torch_version(), OWN_CODE], sort_keys=True)
    file = cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    found = make()
    with contextlib.suppress(OSError):
        write_json(file, found)
    return found


def answer(call: Callable[[], Any], channel: socket.socket) -> None:
    """Call, send the result or the error as JSON, and kill all child processes."""
    global loads_user_code
    loads_user_code, own = True, os.getpid()
    torch.set_num_threads(1)  # a forked process has no threads of its parent
    forget_local_modules()
    compile_from_source()
    become_subreaper()
    try:
        found = {"value": call()}
    except BaseException as error:  # also SystemExit and KeyboardInterrupt, which only user code raises here
        found = {"error": one_line(error)}
    if os.getpid() != own:  # a component forked this process
        os._exit(1)
    kill_children()  # before the parent reads the answer and kills this process
    channel.sendall(json.dumps(found, default=lambda number: number.item()).encode() + b"\n")  # of numpy or torch


def describe(task: Task, config: Config) -> dict[str, Any]:
    """The facts on a task that `DescribedTask` needs, as plain data."""
    blank = {name: [list(x.shape), str(x.dtype).partition(".")[2]] for name, x in task.blank().items()}
    found = {name: getattr(task, name) for name in FACTS}
    found["changes"] = task.changes_length(config.train.batch_size, config.train.steps)
    return found | {"inputs": blank, "seen": seen_lengths(config, task), "metric_facts": task.metric_facts()}


def seen_lengths(config: Config, task: Task) -> dict[str, float]:
    """The lengths of a cell whose test examples occur in training (as JSON keys), with their expected share."""
    examples = config.train.steps * config.train.batch_size
    found = {str(length): task.trained_on(length, examples) for length in config.eval.lengths}
    return {length: share for length, share in found.items() if share > 0}


class DescribedTask(Task):
    """A user's task as its separate process described it, without examples."""

    def __init__(self, facts: dict[str, Any]):
        self.facts = facts
        vars(self).update({name: facts[name] for name in FACTS})

    def metric_facts(self) -> dict[str, list[str] | dict[str, str]]:
        """See Task."""
        return dict(self.facts["metric_facts"])

    def changes_length(self, size: int, steps: int) -> bool:
        """See Task."""
        return bool(self.facts["changes"])

    def trained_on(self, length: int, examples: int) -> float:
        """See Task."""
        return float(self.facts["seen"].get(str(length), 0.0))

    def blank(self) -> dict[str, Tensor]:
        """See Task."""
        shapes = {name: (shape, getattr(torch, dtype)) for name, (shape, dtype) in self.facts["inputs"].items()}
        return {name: torch.full(shape, name.endswith("mask"), dtype=kind) for name, (shape, kind) in shapes.items()}
