"""Models compiled in place, so that their parameters keep their names."""

import importlib
import time
from collections.abc import Iterable
from types import NoneType
from typing import Any

from torch import nn

# What makes inductor's code faster, each as the step of scale=small shows it (benchmarks/step.py, which takes one of
# them away at a time); rounding apart, it computes the same.
FASTER: dict[str, Any] = {
    # A value of so many operations is computed once; inductor by itself waits for 30, and computes rotary sines again
    # in the kernels of every layer: without, a step takes 1.1 times as long.
    "realize_opcount_threshold": 7,
    # Nor is what reads two others, such as each sum of the residual stream, computed again in the layers that follow,
    # whose kernels are then alike and compiled once: without, a step takes 1.03 times as long, compiling 1.15 times.
    "realize_reads_threshold": 1,
    # tanh(a) as 2 / (1 + e^−2a) − 1, right to 2e-7; the library's is slow: without, a step with GPT-2's GELU takes 1.13
    # times as long, in bf16 1.15.
    "cpp.use_decompose_tanh": True,
    # a · b + c as one instruction: without, a step takes 1.01 times as long, in bf16 1.025.
    "cpp.enable_floating_point_contract_flag": "fast",
}


class Stopwatch:
    """Seconds that torch.compile has taken in this process since models were first compiled in place."""

    seconds = started = 0.0

    @classmethod
    def begin(cls, _: object) -> None:
        """A translation begins; one that another needs is part of that."""
        cls.started = time.perf_counter()

    @classmethod
    def end(cls, _: object) -> None:
        """It has ended."""
        cls.seconds += time.perf_counter() - cls.started


def compile_in_place(models: Iterable[nn.Module]) -> None:
    """Have torch.compile translate models when they are first called; what it made of earlier ones is dropped.

    All models share one entry of its cache, that of Module._call_impl: a process that trains cell after cell would
    reach the limit of graphs at the fifth and run the others eagerly, slower and with other last digits, with no more
    than a warning in a log.  A single run that reaches the limit fails with FailOnRecompileLimitHit.
    """
    dynamo = importlib.import_module("torch._dynamo")  # half a second that only compiled runs should pay
    dynamo.reset()
    dynamo.on_compile_start(Stopwatch.begin)  # resetting has forgotten them
    dynamo.on_compile_end(Stopwatch.end)
    dynamo.config.fail_on_recompile_limit_hit = True
    # Else a ReLU's derivative is kept as a mask of truth values, which inductor's CPU kernels write one by one: a
    # step takes 1.5 times as long.  To measure it again, clear inductor's cache, which does not notice.
    importlib.import_module("torch._functorch.config").recompute_views = True  # type: ignore[attr-defined]
    for model in models:
        model.compile(options=known(FASTER))


def known(options: dict[str, Any]) -> dict[str, Any]:
    """Those of inductor's options that this version of torch has, and for such values; others have no need of them."""
    now = importlib.import_module("torch._inductor.config").get_config_copy()
    return {
        name: value for name, value in options.items() if name in now and type(now[name]) in (type(value), NoneType)
    }
