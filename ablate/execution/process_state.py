"""What of a process can change the numbers of later runs: looked at before a run, and compared after it."""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import rich.style  # noqa: F401 (draws one of Python's random numbers when it is loaded: with scikit-learn, amid a run)
import torch
import torch.nn.functional as F
from torch import nn

# Where compilers say for their own processes what they found out.
COMPILERS = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_", "CUDA_MODULE_LOADING", "KINETO_", "TORCH_", "FLA_")
TORCH = str(Path(torch.__file__).parent) + os.sep
DYNAMO = TORCH + "_dynamo" + os.sep  # which marks modules made after it was loaded, by a constructor of its own
FLAG = re.compile("_get_.*(cudnn_|cublas_|tf32|determin|sdp|matmul_precision|mkldnn_|_fp16_)")
ODD = ("kernel", "reserve", "getter", "order")  # parts of names of what is no flag
ARITHMETIC = [("generic", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("cuda", "matmul"), ("cuda", "conv")]
FLAGS = sorted(name for name in dir(torch._C) if FLAG.match(name) and not any(part in name for part in ODD))
# Whose functions are called by name wherever a model runs; lazily loaded ones may be added.
OWNERS: dict[str, Any] = {"torch.nn.functional": F, "torch": torch, "torch.Tensor": torch.Tensor, "torch.nn": nn}
OWNERS |= {f"torch.nn.{kind.__name__}": kind for kind in (nn.Module, nn.Linear, nn.Embedding, nn.Parameter)}
HOOKS = [name for name in vars(nn.modules.module) if name.startswith("_global_") and name.endswith("_hooks")]
TINY = 5e-324  # the least number that is not 0, which processors can be told to take for 0

Reader = Callable[[], Any]


class Changed(Exception):
    """A run changed its process; the message says what, from what to what."""


def arithmetic() -> list[Any]:
    """How torch is to multiply, per backend, in versions that can be asked."""
    ask = getattr(torch._C, "_get_fp32_precision_getter", None)
    return [said(ask, *each) for each in ARITHMETIC] if ask else []


def said(ask: Callable[..., Any], *of: Any) -> Any:
    """What torch answers; settings that contradict each other are refused, in words."""
    try:
        return ask(*of)
    except (RuntimeError, TypeError) as error:
        return str(error).split("\n")[0]


def environment() -> dict[str, str]:
    """The environment but for what compilers write there."""
    return {key: value for key, value in os.environ.items() if not key.startswith(COMPILERS)}


def folder() -> str:
    """The working folder; nothing where it is gone."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


# What is looked at, by what people call it.
READERS: dict[str, Reader] = {
    "torch's default dtype": torch.get_default_dtype,
    "torch's default device": torch.get_default_device,
    "whether gradients are computed": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "anomaly detection": torch.is_anomaly_enabled,
    "torch's number of threads": lambda: (torch.get_num_threads(), torch.get_num_interop_threads()),
    "torch's flags of precision and determinism": lambda: [(name[5:], said(getattr(torch._C, name))) for name in FLAGS],
    "torch's precision of products": arithmetic,
    "whether the least numbers are taken for 0": lambda: TINY * float(len(FLAGS) or 1) == 0.0,
    "torch's modes": lambda: (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
    "hooks on all modules": lambda: [len(getattr(nn.modules.module, name)) for name in HOOKS],
    "torch's random numbers": lambda: torch.default_generator.get_state().numpy().tobytes(),
    "numpy's random numbers": lambda: repr(numpy.random.get_state(legacy=False)["state"]),
    "Python's random numbers": random.getstate,
    "how numpy treats errors": numpy.geterr,
    "the working folder": folder,
    "the environment": environment,
}


def functions() -> dict[tuple[str, str], Any]:
    """Everything that can be called, by owner and name."""
    return {
        (owner, name): value
        for owner, holder in OWNERS.items()
        for name, value in vars(holder).items()
        if callable(value)
    }


def changes(before: dict[str, Any], known: dict[tuple[str, str], Any]) -> Iterator[str]:
    """What is other than before, in words."""
    for name, read in READERS.items():
        if (found := read()) != before[name]:
            yield f"{name}{told(before[name], found)}"
    for (owner, name), value in known.items():
        if not same(vars(OWNERS[owner]).get(name), value):
            yield f"{owner}.{name}"


def same(found: Any, value: Any) -> bool:
    """Whether a function is what it was, or torch itself has wrapped it, as loading its compiler does."""
    if found is value:
        return True
    file = getattr(getattr(found, "__code__", None), "co_filename", "")
    return file.startswith(DYNAMO) or (file.startswith(TORCH) and inspect.unwrap(found) is inspect.unwrap(value))


def told(before: Any, after: Any) -> str:
    """From what to what, where that is short."""
    if isinstance(before, dict):
        keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        return f" ({', '.join(keys)})"
    if isinstance(before, list):
        pairs = [(old, new) for old, new in zip(before, after, strict=False) if old != new]
        before, after = [old for old, _ in pairs], [new for _, new in pairs]
    words = f" (from {before} to {after})"
    return words if len(words) < 200 else ""


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Raise Changed where the body leaves the process other than it was: the runs after it would be others, too."""
    before, known = {name: read() for name, read in READERS.items()}, functions()
    try:
        yield
    finally:
        if found := list(changes(before, known)):
            raise Changed(f"the run changed what other runs of its process depend on: {'; '.join(found)}")
