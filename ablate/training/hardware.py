"""The hardware of this machine, and each worker's share of it.  Needs torch only to ask for GPUs."""

import functools
import json
import math
import os
import subprocess
import sys
from typing import NamedTuple

from ablate.config.import_path import cores

# What torchrun, Slurm and submitit tell each task of a job: its number, that on its host, and how many there are.
TASKS = [
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
    ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_LOCALID", "SUBMITIT_LOCAL_NTASKS"),
]


def task_of_job() -> tuple[int, int, int]:
    """This process's number among the tasks of a job, that on its host, and how many there are.  Other programs use
    some of these names, too: what cannot be such numbers is ignored."""
    for names in TASKS:
        values = [os.environ.get(name, "") for name in names]
        if all(value.isdecimal() for value in values):
            number, local, count = map(int, values)
            if number < count and local < count:
                return number, local, count
    return 0, 0, 1


def environments(device: str, parallel: str | int, devices: int = 1, flops: float = math.inf) -> list[dict[str, str]]:
    """The environment variables of each worker: none on the CPU, its GPUs otherwise.  One that trains on several
    devices has an equal share of them with the other tasks of its job.  With parallel=auto, several workers share a GPU
    where the `flops` of a training step are few: as many as cores and memory allow.  [] if devices are lacking."""
    local = 0
    tasks = 1
    if devices > 1:
        _, local, tasks = task_of_job()
    if devices % tasks:
        return []
    names = visible_devices(device)
    size = devices // tasks
    groups = [",".join(names[i : i + size]) for i in range(0, len(names) - size + 1, size)]
    if not groups:
        return []
    if tasks > 1:
        groups = [groups[local % len(groups)]]
        count = 1
    elif parallel != "auto":
        count = int(parallel)
    elif device == "cuda" and devices == 1 and flops < BUSY:
        memory = min((card.total for card in cards()), default=0)
        count = len(groups) * max(1, min(MOST, cores() // len(groups), int(memory / SHARE)))
    else:
        count = len(groups)
    if device != "cuda":
        return [{} for _ in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": groups[i % len(groups)]} for i in range(count)]


BUSY = 5e11  # floating-point operations of a training step that keep a GPU busy, so that it is not shared
SHARE = 6e9  # bytes of a GPU for each process with smaller steps, which need about half as much
MOST = 8  # processes on a GPU


def visible_devices(device: str) -> list[str]:
    """The ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them; on a CPU a number for each
    core, which is not the core's id."""
    if device != "cuda":
        return [str(i) for i in range(cores())]
    import torch

    count = torch.cuda.device_count()
    ids = os.environ.get("CUDA_VISIBLE_DEVICES")
    if ids is None:
        return [str(i) for i in range(count)]
    return ids.split(",")[:count]  # CUDA ignores an invalid id and all that follow


class Card(NamedTuple):
    """A GPU: total memory in bytes, free memory when queried, and whether it supports bf16."""

    total: int
    free: int
    bf16: bool


# Run in a subprocess: a CUDA context in this process would hold half a gigabyte for as long as a sweep is planned and
# watched, keep all other processes off a card in exclusive mode, and make forking impossible.
ASK = """
import json, torch
found = []
for i in range(torch.cuda.device_count()):
    card, free = torch.cuda.get_device_properties(i), 0
    try:
        free = torch.cuda.mem_get_info(i)[0]
    except RuntimeError:
        pass  # another process uses it exclusively
    found.append([card.total_memory, free, bool(torch.version.hip) or card.major >= 8])
print(json.dumps(found))
"""


@functools.cache
def cards() -> list[Card]:
    """The GPUs visible to this process, queried once; [] if there are none or they do not respond."""
    import torch

    if not torch.cuda.device_count():
        return []
    done = subprocess.run([sys.executable, "-P", "-c", ASK], capture_output=True, text=True)
    if done.returncode:
        return []
    return [Card(*row) for row in json.loads(done.stdout.splitlines()[-1])]
