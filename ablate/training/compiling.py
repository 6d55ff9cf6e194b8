"""Compilation of models in place, which leaves the names of their parameters unchanged."""

import importlib
import time
from collections.abc import Iterable
from types import NoneType
from typing import Any

from torch import nn

# Options that make inductor's code faster, each with its effect on a step at scale=small (docs/measurements.md).
# Results differ by rounding only.
FASTER: dict[str, Any] = {
    # A value of this many operations is computed once.  By default the limit is 30 and the kernels of every layer
    # compute rotary sines again: a step takes 1.1 times as long.
    "realize_opcount_threshold": 7,
    # A value that reads two others, such as each sum of the residual stream, is not recomputed in later layers.  Their
    # kernels are then identical and compiled once; otherwise a step takes 1.03 times as long, compiling 1.15 times.
    "realize_reads_threshold": 1,
    # tanh(a) as 2 / (1 + e^−2a) − 1, accurate to 2e-7.  The library's tanh is slow: with GPT-2's GELU a step takes 1.13
    # times as long, in bf16 1.15 times.
    "cpp.use_decompose_tanh": True,
    # a · b + c as one instruction; otherwise a step takes 1.01 times as long, in bf16 1.025 times.
    "cpp.enable_floating_point_contract_flag": "fast",
}


class Stopwatch:
    """Seconds that torch.compile has taken in this process since models were first compiled in place."""

    seconds = started = 0.0

    @classmethod
    def begin(cls, _: object) -> None:
        """A compilation begins."""
        cls.started = time.perf_counter()

    @classmethod
    def end(cls, _: object) -> None:
        """The compilation has ended."""
        cls.seconds += time.perf_counter() - cls.started


def compile_in_place(models: Iterable[nn.Module], code: str) -> None:
    """Let torch.compile compile models when they are first called; earlier compiled code is dropped.

    torch's cache knows models by their graphs, which do not show the gradients of custom operators; `code`, a digest of
    the source that the models use, makes it forget them when one is edited.

    All models share one entry of the compiler's cache, that of Module._call_impl (on a GPU, training has another, of a
    model with its loss).  Without the reset, a process that trains cell after cell would reach the recompile limit at
    the fifth and run the others eagerly, slower and with different rounding, with only a warning in a log.  A single
    run that reaches it raises FailOnRecompileLimitHit.
    """
    dynamo = importlib.import_module("torch._dynamo")  # half a second, which only compiled runs should pay
    dynamo.reset()
    dynamo.on_compile_start(Stopwatch.begin)  # after the reset, which removes the callbacks
    dynamo.on_compile_end(Stopwatch.end)
    dynamo.config.fail_on_recompile_limit_hit = True
    # By default a ReLU's derivative is saved as a boolean mask, which inductor's CPU kernels write element by element:
    # a step takes 1.5 times as long.  Inductor's cache ignores this setting: clear it before measuring again.
    importlib.import_module("torch._functorch.config").recompute_views = True  # type: ignore[attr-defined]
    cache = importlib.import_module("torch.compiler.config")
    if hasattr(cache, "cache_key_tag"):  # from torch 2.7 on
        cache.cache_key_tag = code  # type: ignore[attr-defined]
    for model in models:
        model.compile(options=supported(FASTER))


def supported(options: dict[str, Any]) -> dict[str, Any]:
    """The options of inductor that this version of torch has, with the same type; the others are dropped."""
    defaults = importlib.import_module("torch._inductor.config").get_config_copy()
    options_here = {}
    for name, value in options.items():
        if name in defaults and type(defaults[name]) in (type(value), NoneType):
            options_here[name] = value
    return options_here
