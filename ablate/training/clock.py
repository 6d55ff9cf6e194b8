"""Where the time of a run goes: seconds by phase and of a training step, by the host's clock, and those of the CPU."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ablate.training.compiling import Stopwatch

STEP = ("data", "forward_backward", "optimiser", "wait")  # a GPU that works meanwhile is waited for in the last alone
PHASES = ("setup", "compile", *STEP, "evaluate", "log", "checkpoint")
WARM_UP = 10  # steps of each process, or half of the run's, in which it loads what later ones find there


class Clock:
    """Seconds by phase, each second once: within another phase, and in compiling, a phase stands still."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.steps, self.step_seconds = 0, 0.0  # after the warm-up, and what they took without evaluations
        self.cpu_before, self.began = 0.0, time.process_time()  # CPU seconds of earlier processes of the run
        self.counted = 0.0  # of the seconds of steps, those until the last one
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

    def count_step(self, warm: bool) -> None:
        """Count a step, and the seconds since the one before it, where the process is beyond its warm-up."""
        before, self.counted = self.counted, sum(self.seconds[phase] for phase in STEP)
        if warm:
            self.steps += 1
            self.step_seconds += self.counted - before

    def mean_step_seconds(self) -> float | None:
        """Mean seconds of a training step after the warm-up, without evaluations; None where no step was timed."""
        return self.step_seconds / self.steps if self.step_seconds else None

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint has to hold of it."""
        cpu = self.cpu_before + time.process_time() - self.began
        return {"seconds": self.seconds, "steps": self.steps, "step_seconds": self.step_seconds, "cpu_seconds": cpu}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint; what this process took so far is added."""
        self.seconds = {phase: self.seconds[phase] + state["seconds"][phase] for phase in PHASES}
        self.steps, self.step_seconds, self.cpu_before = state["steps"], state["step_seconds"], state["cpu_seconds"]
