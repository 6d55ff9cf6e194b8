"""A study's runs as their files show them: which state each is in, how fast it goes, how it ended."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ablate.cli.monitor.throughput import Pace, Sample, read_pace
from ablate.config.errors import Corrupt
from ablate.results.records import Cell, Manifest, PlannedRun
from ablate.results.result import Result
from ablate.results.run import Run, stamp

STALE = 60.0  # seconds without a logged step after which a run without a lease no longer counts as running
LOOK = 5.0  # seconds between two looks at a lease that was fresh
STATES = ("done", "diverged", "failed", "running", "interrupted", "queued")


class Watched:
    """A run and what was last seen of it on disk.

    With `again`, what stands there is from before the sweep: a failed run is about to be tried again, and steps that
    were logged a short while ago do not mean that it is running.
    """

    def __init__(self, results: Path, cell: Cell, planned: PlannedRun, metric: str, again: bool):
        self.run, self.metric, self.cell = Run(results, planned.path), metric, str(cell.id)
        self.name, train = f"{cell.label} s{planned.seed}", cell.config["train"]
        self.steps = max(1, int(train["steps"]))
        every = train.get("eval_every")
        self.eval_every = every if every and every < self.steps else None
        self.flops = float(cell.flops_per_token or 1) * float(cell.tokens_per_step or 1)  # of a step
        self.damage, self.asked = "", -LOOK
        self.holder: dict[str, Any] | None = None
        self.checkpoint: tuple[int, int] | None = None
        self.seen_result, self.seen_metrics = stamp(self.run.result_file), stamp(self.run.metrics_file)
        self.result: Result | None = self._read_result()
        if again and self.result and self.result.status == "failed":
            self.result = None
        self.pace = Pace() if self.result else read_pace(self.run.metrics_file, self.eval_every)
        self.grew = -STALE
        if self.seen_metrics and not again:  # a file server's clock may be off; where that matters, leases tell
            self.grew = time.monotonic() - abs(time.time() - self.seen_metrics[0] / 1e9)
        self.look(time.monotonic())

    def look(self, now: float) -> bool:
        """Look at the files again; True when the run has ended since the last look."""
        found, ended = stamp(self.run.result_file), False
        if found != self.seen_result:
            self.seen_result, self.result = found, self._read_result()
            ended = self.result is not None
        if self.result:
            return ended
        found = stamp(self.run.metrics_file)
        if found != self.seen_metrics:
            self.seen_metrics, self.grew = found, now
            self.pace = read_pace(self.run.metrics_file, self.eval_every)
        if not self.holder or now - self.asked >= LOOK:
            self.holder, self.asked = self.run.holder(), now
        self.checkpoint = stamp(self.run.checkpoint_file) if found else None
        return False

    def state(self, now: float) -> str:
        """One of STATES: how it ended; running; interrupted: it has a checkpoint and nobody holds it; or queued."""
        if self.result:
            return str(self.result.status)
        if self.holder or self._growing(now):
            return "running"
        return "interrupted" if self.checkpoint else "queued"

    def sample(self) -> Sample | None:
        """What the run says about how fast its cell is: all of it where it ended, else its pace so far."""
        if self.result:
            steps, seconds = self.result.steps, self.result.seconds or {}
            total, setup = seconds.get("total"), seconds.get("setup", 0.0)  # which is long for a process's first run
            if self.result.status == "failed" or not isinstance(steps, int) or not isinstance(total, float | int):
                return None
            return Sample(self.cell, self.flops * steps, total - setup)
        if self.pace.step and self.pace.steps_per_second:
            return Sample(self.cell, self.flops * self.pace.step, self.pace.step / self.pace.steps_per_second)
        return None

    def seconds_left(self, rates: dict[str | None, float], state: str = "running") -> float | None:
        """Seconds of one process until it ends: by its own pace, else its cell's, else the study's, else None."""
        steps = self.steps if state == "queued" else max(0, self.steps - self.pace.step)  # without a checkpoint: anew
        if self.pace.steps_per_second:
            return steps / self.pace.steps_per_second
        rate = rates.get(self.cell) or rates.get(None)
        return steps * self.flops / rate if rate else None

    def ending(self) -> str:
        """How the run ended, in a few words."""
        assert self.result
        status, final = self.result.status, self.result.final
        if status == "failed":
            return f"failed: {self.error()}"
        if status == "diverged":
            return f"diverged at step {'?' if self.result.steps is None else self.result.steps}"
        value = final.get(self.metric)
        return f"done  {self.metric} {value:.3f}" if isinstance(value, float | int) else "done"

    def error(self) -> str:
        """What a failed run died of: the error's type and message."""
        error = self.result.error if self.result else None
        return f"{error.type or 'error'}: {error.message}" if error else "error: "

    def _growing(self, now: float) -> bool:
        """Whether it logged steps a short while ago, where it has no lease: after its last checkpoint, that is."""
        if not self.seen_metrics or now - self.grew >= STALE or self.run.lease_file.exists():
            return False
        return self.checkpoint is None or self.checkpoint[0] < self.seen_metrics[0]

    def _read_result(self) -> Result | None:
        self.damage = ""
        try:
            return self.run.result()
        except Corrupt as error:
            self.damage = str(error)
        except OSError:
            pass
        return None


def watched(results: Path, manifest: Manifest, paths: list[str] | None = None) -> list[Watched]:
    """The runs of a study; or those at `paths`, which a sweep is about to train."""
    cells = {cell.id: cell for cell in manifest.cells}
    own, tasks = manifest.endpoint, manifest.tasks
    metric = {key: own or f"test/{next(iter(task.metrics))}" for key, task in tasks.items()}
    runs = manifest.runs if paths is None else [run for run in manifest.runs if run.path in set(paths)]
    found = []
    for run in runs:
        cell = cells[run.cell]
        found.append(Watched(results, cell, run, metric[cell.task], paths is not None))
    return found


def printable(text: str) -> str:
    """A text in one line without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
