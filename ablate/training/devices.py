"""The devices of this machine: one environment per worker, names, memory, and what errors say that it is full."""

import functools
import json
import os
import platform
import resource
import subprocess
import sys
from typing import NamedTuple

import torch

# A library, or the driver, that gets no memory raises an error of another kind: cuBLAS for its handle, say.
FULL = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "HIP out of memory")
MAXRSS = 1 if sys.platform == "darwin" else 1024  # bytes in what the system counts memory by


def settle() -> None:
    """Set what every run's numbers depend on in its process: one thread, and one family of attention kernels.

    Sums in another order are other numbers, and one process per core is faster anyway.  On a GPU flash and
    memory-efficient attention share their arithmetic, scores and sums in float32; cuDNN's takes some of the cells that
    flash would, and has given wrong gradients (github.com/pytorch/pytorch/issues/196678).
    """
    torch.set_num_threads(1)
    torch.backends.cuda.enable_cudnn_sdp(False)


def environments(device: str, parallel: str | int) -> list[dict[str, str]]:
    """What each worker's environment adds: nothing on the CPU, its own device on GPUs; none where there is no GPU."""
    if device != "cuda":
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return [{}] * (count if parallel == "auto" else int(parallel))
    count, listed = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [str(i) for i in range(count)] if listed is None else listed.split(",")[:count]  # others are in vain
    count = len(devices) if parallel == "auto" else int(parallel)
    return [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} for i in range(count if devices else 0)]


def share(device: str, number: int) -> dict[str, str]:
    """The environment of one of several processes that others start: GPUs are given out in turn, by its number."""
    workers = environments(device, "auto")
    return workers[number % len(workers)] if workers and device == "cuda" else {}


class Card(NamedTuple):
    """A GPU: bytes that it has, bytes that could be had when it was asked, and whether it computes in bf16."""

    total: int
    free: int
    bf16: bool


# In a process of its own: a CUDA context here would hold half a gigabyte for as long as a sweep is planned and watched,
# would keep every other process off a card in exclusive mode, and no fork may follow it.
ASK = """
import json, torch
found = []
for i in range(torch.cuda.device_count()):
    card, free = torch.cuda.get_device_properties(i), 0
    try:
        free = torch.cuda.mem_get_info(i)[0]
    except RuntimeError:
        pass  # another process has it for itself
    found.append([card.total_memory, free, bool(torch.version.hip) or card.major >= 8])
print(json.dumps(found))
"""


@functools.cache
def cards() -> list[Card]:
    """The GPUs that this process may use, asked once; none where there is none, or none that answers."""
    if not torch.cuda.device_count():
        return []
    done = subprocess.run([sys.executable, "-P", "-c", ASK], capture_output=True, text=True)
    return [Card(*row) for row in json.loads(done.stdout.splitlines()[-1])] if not done.returncode else []


def moved(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor of the CPU on a device; on a GPU from pinned memory, which nobody waits for.

    The CPU is then free to make the next batch, and to launch its step, while the GPU is at this one: no further thread
    or queue is needed to be a batch ahead.
    """
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def peak_memory(device: torch.device) -> int:
    """Most bytes held so far: on the GPU by tensors, on the CPU by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS


@functools.cache
def device_name(device: torch.device) -> str:
    """The device as its maker calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"


class TooLarge(Exception):
    """Work that does not fit into memory and cannot be taken by parts."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that an accelerator's memory is full, so that less work at a time may do."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in FULL)


def make_room(device: torch.device) -> None:
    """Give memory that is free back to the GPU, so that it can be had in other pieces.

    Not while the error is handled, which holds on to what it was raised in.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
