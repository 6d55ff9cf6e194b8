"""Checks that a run does not change process-wide settings on which the numbers of later runs depend.

Runs of built-in components share a process; a run with user code has a separate process.
"""

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import rich.style  # noqa: F401 (uses Python's random numbers on import, which scikit-learn would trigger during a run)
import torch

from ablate.config.errors import first_line

# Prefixes of environment variables that libraries set for themselves.
LIBRARIES = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "CUDA_MODULE_LOADING", "KINETO_", "KMP_", "TORCH_", "FLA_")
SUBNORMAL = 5e-324  # processors can be set to flush it to 0

READERS: dict[str, Callable[[], Any]] = {
    "torch's default dtype": torch.get_default_dtype,
    "torch's default device": torch.get_default_device,
    "whether gradients are computed": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "torch's number of threads": torch.get_num_threads,
    "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch's precision of matrix products": torch.get_float32_matmul_precision,
    "anomaly detection": torch.is_anomaly_enabled,
    "torch's flags of cuDNN and TF32": lambda: [
        (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32),
        (torch.backends.mkldnn.enabled, torch.backends.cuda.flash_sdp_enabled()),
    ],
    "whether subnormal numbers are taken for 0": lambda: SUBNORMAL * 1.0 == 0.0,
    "torch's random numbers": lambda: torch.default_generator.get_state().numpy().tobytes(),
    "numpy's random numbers": lambda: repr(numpy.random.get_state(legacy=False)["state"]),
    "Python's random numbers": random.getstate,
    "how numpy treats errors": numpy.geterr,
    "the working folder": os.getcwd,
    "the environment": lambda: {key: value for key, value in os.environ.items() if not key.startswith(LIBRARIES)},
}


class Changed(Exception):
    """A run changed process-wide settings; the message lists them with their values."""


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Raise Changed if the `with` block changes settings that later runs of the process depend on."""
    before = {name: answer(read) for name, read in READERS.items()}
    try:
        yield
    finally:
        after = {name: answer(read) for name, read in READERS.items()}
        if found := [name + difference(before[name], after[name]) for name in READERS if before[name] != after[name]]:
            raise Changed(f"the run changed what other runs of its process depend on: {'; '.join(found)}")


def answer(read: Callable[[], Any]) -> Any:
    """The value of a setting, or the error of reading it: torch raises for contradictory settings."""
    try:
        return read()
    except (RuntimeError, OSError) as error:
        return first_line(error)


def difference(before: Any, after: Any) -> str:
    """The old and new value if they are short; of the environment, the names of changed variables."""
    if isinstance(before, dict):
        return f" ({', '.join(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))})"
    words = f" (from {before} to {after})"
    return words if len(words) < 200 else ""
