"""What of a cell is user code, facts on a task that are plain data, and a cache of what checks find."""

import contextlib
import hashlib
import importlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from omegaconf import MISSING
from torch import Tensor

from ablate.config.errors import Corrupt
from ablate.config.schema import Config
from ablate.config.targets import within
from ablate.data.corpus import cache_folder
from ablate.data.task import Task
from ablate.planning.checks import child
from ablate.runs.code_digest import SOURCES
from ablate.runs.files import read_json, write_json
from ablate.runs.key import is_foreign, parts_of, torch_version

Record = dict[str, Any]

FACTS = [
    *("name", "title", "kind", "kinds", "token", "metrics", "yardsticks", "train_tokens", "bytes_per_token", "notes"),
    *("vocab", "outputs", "features", "context", "positions", "length", "fingerprint"),
]
OWN_CODE = hashlib.sha256(b"".join(SOURCES.values())).hexdigest()


def foreign_parts(config: Config) -> str:
    """The `_target_`s of a cell's user components, as text."""
    return " or ".join(sorted({target for _, target in parts_of(config) if is_foreign({"_target_": target})}))


def runs_user_code(config: Config) -> bool:
    """Whether to check a cell imports user code."""
    return is_foreign(config) or config.user not in ([], MISSING)


def isolate_user_code(config: Config, call: Callable[[], Any]) -> Any:
    """What `call` returns, as plain data; in the child process if the cell has user components.  Raises Failed, naming
    these components, if that process dies or raises; without one, whatever `call` raises."""
    if child.loads_user_code or not is_foreign(config):
        return call()
    return child.run_in_child(partial(call_for, foreign_parts(config), call))


def call_for(about: str, call: Callable[[], Any]) -> Any:
    """Call, in the child process, on behalf of the components that are named."""
    child.begin(about)
    return call()


def import_problems(config: Config) -> list[str]:
    """The settings of the process that importing a cell's user modules changes, as sentences."""
    modules = {target.rpartition(".")[0] for _, target in parts_of(config)}
    problems = []
    for module in sorted(module for module in modules if within(module, config.user)):  # nothing else may be imported
        try:
            importlib.import_module(module)
        except Exception:  # reported where the target is looked up
            continue
        problems += child.changed_settings(f"importing {module}")
    return problems


def cached(kind: str, depends: Any, make: Callable[[], Record]) -> Record:
    """A record from the cache, or newly made; besides `depends` it depends on torch's version and ablate's code.  A
    damaged record is made again; a full disk is ignored.  A process that has run user code, which may have changed
    anything in it, writes none."""
    content = json.dumps([kind, depends, torch_version(), OWN_CODE], sort_keys=True)
    file = cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(Corrupt, OSError):
        return read_json(file)
    found = make()
    if child.channel is None:
        with contextlib.suppress(OSError):
            write_json(file, found)
    return found


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

    @property
    def identity(self) -> str:
        """All of its facts, as text: tasks with equal ones are the same."""
        return json.dumps(self.facts, sort_keys=True)

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
