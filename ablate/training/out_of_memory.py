"""What errors of an accelerator say that its memory is full: the allocator's, those of its libraries, the driver's."""

from __future__ import annotations

import torch

# A library, or the driver, that gets no memory raises an error of another kind: cuBLAS for its handle, say.
SAID = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "HIP out of memory")


class TooLarge(Exception):
    """Work that does not fit into memory and cannot be taken by parts."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that an accelerator's memory is full, so that less work at a time may do."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in SAID)


def make_room(device: torch.device) -> None:
    """Give memory that is free back to the GPU, so that it can be had in other pieces.

    Not while the error is handled, which holds on to what it was raised in.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
