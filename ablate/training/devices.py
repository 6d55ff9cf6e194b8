"""The devices of this machine: one environment per worker, names, peak memory."""

from __future__ import annotations

import functools
import os
import platform
import resource
import sys

import torch

MAXRSS = 1 if sys.platform == "darwin" else 1024  # bytes in what the system counts memory by


def environments(device: str, parallel: str | int) -> list[dict[str, str]]:
    """What each worker's environment adds: nothing on the CPU, its own device on GPUs."""
    if device != "cuda":
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return [{}] * (count if parallel == "auto" else int(parallel))
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = listed.split(",") if listed else [str(i) for i in range(torch.cuda.device_count())]
    count = len(devices) if parallel == "auto" else int(parallel)
    return [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} for i in range(count)]


def peak_memory(device: torch.device) -> int:
    """Most bytes held so far: on the GPU by tensors, on the CPU by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS


@functools.cache
def device_name(device: torch.device) -> str:
    """The device as its maker calls it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"
