"""Models compiled in place, so that their parameters keep their names."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from torch import nn


def compile_in_place(models: Iterable[nn.Module]) -> None:
    """Have torch.compile translate models when they are first called; what it made of earlier ones is dropped.

    All models share one entry of its cache, that of Module._call_impl: a process that trains cell after cell would
    reach the limit of graphs at the fifth and run the others eagerly, slower and with other last digits, with no more
    than a warning in a log.  A single run that reaches the limit fails with FailOnRecompileLimitHit.
    """
    dynamo = importlib.import_module("torch._dynamo")  # half a second that only compiled runs should pay
    dynamo.reset()
    dynamo.config.fail_on_recompile_limit_hit = True
    for model in models:
        model.compile()
