"""Timing of a run: wall-clock seconds by phase and per training step, and CPU seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ablate.training.compiling import Stopwatch

STEP = ("data", "forward_backward", "optimiser", "wait")  # GPU work is asynchronous: waiting for it counts in "wait"
PHASES = ("setup", "compile", *STEP, "evaluate", "log", "checkpoint")
WARM_UP = 10  # first steps of each process, at most half of the run's, which are not timed


class Clock:
    """Seconds by phase.  No second counts twice: a phase excludes compilation and the phases nested in it."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes  # that share the work equally
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.steps = 0  # timed after the warm-up
        self.step_seconds = 0.0  # of those steps, without evaluations
        self.cpu_before = 0.0  # CPU seconds of earlier processes of the run
        self.cpu_start = time.process_time()
        self.last_step = 0.0  # seconds of all steps up to the last counted one
        self.nested = 0.0  # seconds spent in phases nested in the current one
        self.compiled = 0.0  # seconds of compilation in this process that are in `seconds`

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent in the `with` block to a phase."""
        outer_nested = self.nested
        self.nested = 0.0
        compiled_before = self.compiled
        stopwatch_before = Stopwatch.seconds
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            compiled_in_nested = self.compiled - compiled_before
            compiling = Stopwatch.seconds - stopwatch_before - compiled_in_nested
            self.compiled += compiling
            self.seconds["compile"] += compiling
            self.seconds[phase] += elapsed - compiling - self.nested
            self.nested = outer_nested + elapsed

    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self.seconds.values())

    def count_step(self, is_warm: bool) -> None:
        """Called after each step; counts it, and the time since the previous one, once the process has warmed up."""
        before = self.last_step
        self.last_step = sum(self.seconds[phase] for phase in STEP)
        if is_warm:
            self.steps += 1
            self.step_seconds += self.last_step - before

    def mean_step_seconds(self) -> float | None:
        """Mean seconds of a training step after the warm-up, without evaluations; None if no step was timed."""
        return self.step_seconds / self.steps if self.step_seconds else None

    def cpu_seconds(self) -> float:
        """CPU seconds of all processes of the run so far."""
        return self.cpu_before + self.processes * (time.process_time() - self.cpu_start)

    def state_dict(self) -> dict[str, Any]:
        return {
            "seconds": self.seconds,
            "steps": self.steps,
            "step_seconds": self.step_seconds,
            "cpu_seconds": self.cpu_seconds(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint; the time of this process so far is added."""
        for phase in PHASES:
            self.seconds[phase] += state["seconds"][phase]
        self.steps = state["steps"]
        self.step_seconds = state["step_seconds"]
        self.cpu_before = state["cpu_seconds"]
