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
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.steps, self.step_seconds = 0, 0.0  # steps timed after the warm-up, and their seconds without evaluations
        self.cpu_before, self.began = 0.0, time.process_time()  # CPU seconds of earlier processes of the run
        self.processes = processes  # that share the work equally
        self.counted = 0.0  # seconds of all steps up to the last counted one
        self.inner = 0.0  # seconds spent in phases nested in the current one
        self.compiled = 0.0  # seconds of compilation in this process that are in `seconds`

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent in the `with` block to a phase."""
        start, compiled, inner, self.inner = time.perf_counter(), Stopwatch.seconds, self.inner, 0.0
        counted = self.compiled
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            compiling = Stopwatch.seconds - compiled - (self.compiled - counted)
            self.compiled += compiling
            self.seconds["compile"] += compiling
            self.seconds[phase] += whole - compiling - self.inner
            self.inner = inner + whole

    def count_step(self, warm: bool) -> None:
        """Called after each step; counts it, and the time since the previous one, once the process has warmed up."""
        before, self.counted = self.counted, sum(self.seconds[phase] for phase in STEP)
        if warm:
            self.steps += 1
            self.step_seconds += self.counted - before

    def mean_step_seconds(self) -> float | None:
        """Mean seconds of a training step after the warm-up, without evaluations; None if no step was timed."""
        return self.step_seconds / self.steps if self.step_seconds else None

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        cpu = self.cpu_before + self.processes * (time.process_time() - self.began)
        return {"seconds": self.seconds, "steps": self.steps, "step_seconds": self.step_seconds, "cpu_seconds": cpu}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from a checkpoint; the time of this process so far is added."""
        self.seconds = {phase: self.seconds[phase] + state["seconds"][phase] for phase in PHASES}
        self.steps, self.step_seconds, self.cpu_before = state["steps"], state["step_seconds"], state["cpu_seconds"]
