"""Where the time of a run goes: seconds by phase, by the host's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ablate.training.compiling import Stopwatch

STEP = ("data", "forward_backward", "optimiser", "wait")  # a GPU that works meanwhile is waited for in the last alone
PHASES = ("setup", "compile", *STEP, "evaluate", "log", "checkpoint")


class Clock:
    """Seconds by phase, each second once: within another phase, and in compiling, a phase stands still."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.inner = 0.0  # of a phase: what those within it took

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time that the body takes to a phase."""
        start, compiled, inner, self.inner = time.perf_counter(), Stopwatch.seconds, self.inner, 0.0
        counted = self.seconds["compile"]
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            compiling = Stopwatch.seconds - compiled - (self.seconds["compile"] - counted)
            self.seconds["compile"] += compiling
            self.seconds[phase] += whole - compiling - self.inner
            self.inner = inner + whole
