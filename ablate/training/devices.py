"""The devices that this process trains on: configuring torch, device names, memory and out-of-memory errors."""

import contextlib
import ctypes
import functools
import platform
import resource
import sys
from pathlib import Path

import torch

# Libraries and the driver raise other errors than torch when memory is full, such as cuBLAS for its handle.
FULL = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "HIP out of memory")
MAXRSS = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss


def configure_torch() -> None:
    """Configure torch in a worker: one thread, one family of attention kernels, and memory that is kept.

    Another order of summation gives other rounding, and one process per core is faster anyway.  On a GPU, flash and
    memory-efficient attention use the same arithmetic, with scores and sums in float32.  So does cuDNN's, but it gave
    wrong gradients with masks (github.com/pytorch/pytorch/issues/196678): `attend` enables it where there is none.
    """
    torch.set_num_threads(1)
    torch.backends.cuda.enable_cudnn_sdp(False)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
    if mallopt:
        for option, value in KEEP_MEMORY.items():
            mallopt(option, value)


# By default glibc returns the memory of each step's large tensors to the system, which clears it again page by page:
# thousands of page faults a step at scale=small.  M_MMAP_THRESHOLD, of which this is the largest, and M_TRIM_THRESHOLD.
KEEP_MEMORY = {-3: 1 << 25, -1: 1 << 30}


def to_device(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy a CPU tensor to a device; to a GPU from pinned memory, without waiting.  The CPU can then prepare and launch
    the next step while the GPU works on this one, without another thread or queue."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def reset_peak_memory(device: torch.device) -> None:
    """Let `peak_memory` begin at the memory in use now; without effect on a CPU that is not Linux's."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if malloc_trim:
        malloc_trim(0)  # what earlier runs of the process freed, and `KEEP_MEMORY` kept
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: allocated tensors on a GPU, the resident set of the process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError):  # Linux's ru_maxrss counts the process that started this one, too
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS


@functools.cache
def device_name(device: torch.device) -> str:
    """The device's model name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}"


class TooLarge(Exception):
    """A batch does not fit into memory and cannot be split further."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that an accelerator's memory is full, so that a smaller batch may fit."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in FULL)


def make_room(device: torch.device) -> None:
    """Release cached GPU memory.  Call it after the `except` block: the error keeps tensors of its frames alive."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
