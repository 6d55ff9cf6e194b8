"""Models compiled in place, so that their parameters keep their names."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable

from torch import nn

# Inductor computes a value of so many operations once; by itself it waits for 30, and computes rotary sines again in
# the kernels of every layer: the step of scale=small takes 1.1 times as long (benchmarks/step.py).
REALIZED = 7


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
        model.compile(options={"realize_opcount_threshold": REALIZED})
