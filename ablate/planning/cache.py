"""What checks find: kept while this process lives, and of whole studies on disk, as long as ablate's code, torch and
this machine are the same.  Needs no torch."""

import contextlib
import hashlib
import json
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ablate.config.schema import BUILT, Config
from ablate.data.corpus import cache_folder
from ablate.planning.checks import child
from ablate.runs.code_digest import SOURCES
from ablate.runs.files import read_json, write_json
from ablate.runs.key import is_foreign, torch_version

T = TypeVar("T")
OWN_CODE = hashlib.sha256(b"".join(SOURCES.values())).hexdigest()
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of Linux containers and jobs
results: dict[str, Any] = {}  # of `once`


def once(kind: str, config: Config, depends: Any, make: Callable[[], T]) -> T:
    """What `make` returns, called once for equal models and data that it depends on; each time for user code, which may
    depend on more."""
    settings = config.as_json()
    parts = {group: settings[group] for group in (*BUILT, "model")}
    if is_foreign(parts):
        return make()
    key = json.dumps([kind, parts, depends], sort_keys=True)
    if key not in results:
        results[key] = make()
    result: T = results[key]
    return result


def size_of(task: Any) -> list[Any]:
    """The facts on a task that a model and its cost depend on."""
    blank = {name: [list(x.shape), str(x.dtype)] for name, x in task.blank().items()}
    return [task.kind, task.context, task.positions, task.vocab, task.outputs, task.features, blank]


def file_of(depends: Any) -> Path:
    """The file of what is found of a study."""
    machine = [socket.gethostname(), machine_memory()]
    content = json.dumps([depends, machine, torch_version(), OWN_CODE], sort_keys=True)
    return cache_folder() / "preflight" / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"


def read_cache(depends: Any) -> dict[str, Any]:
    """What was found of a study.  Raises OSError if nothing is kept, Corrupt if it is damaged."""
    return read_json(file_of(depends))


def write_cache(depends: Any, record: dict[str, Any]) -> None:
    """Keep what is found of a study, unless the disk is full.  A process that has run user code, which may have changed
    anything in it, keeps nothing."""
    if child.channel is None:
        with contextlib.suppress(OSError):
            write_json(file_of(depends), record)


def machine_memory() -> float:
    """Bytes of the machine's memory, within the limit of this process's cgroup; infinite if unknown."""
    limit = math.inf
    with contextlib.suppress(OSError, ValueError):
        limit = float(CGROUP_LIMIT.read_text())
    with contextlib.suppress(OSError, ValueError):
        limit = min(limit, float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    return limit
