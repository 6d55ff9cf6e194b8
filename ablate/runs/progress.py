"""Progress of studies, read from the files of their runs: the state of each run, the time left, and both in words.

A run's configuration and number of steps may be unknown, as those of another program's runs are.
"""

import contextlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.errors import Refused
from ablate.config.files import regular
from ablate.formatting import counted, duration, grouped, is_number, show
from ablate.runs.folder import Result, Run, noted, stamp
from ablate.runs.lock import Holder
from ablate.runs.manifest import choose_study, manifest_of, readable, refusing, studies, study_folder
from ablate.runs.records import Cell, Manifest, PlannedRun
from ablate.runs.tables import parse_lines

TAIL = 16384  # bytes read from the end of a metrics file
TICK = 2.0  # seconds between polls of a study
PLANNING = 30.0  # seconds to wait for a command with seeds=auto to plan further runs
STATES = ("done", "diverged", "failed", "running", "interrupted", "queued")
KINDS = ("tuning", "other numbers of steps", "study")  # of rounds, in order of training

Seconds = dict[str, float]  # of training a whole run, by its cell


def last_values(file: Path) -> dict[str, Any]:
    """What a run has logged last, by name, from the end of its metrics file; torn lines are ignored."""
    try:
        with open(file, "rb", opener=regular) as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL))
            rows, _ = parse_lines(opened.read(TAIL).split(b"\n"))
    except OSError:
        return {}
    values: dict[str, Any] = {}
    for row in rows:
        values |= row
    return values


class RunState:
    """A run and its last known state on disk."""

    def __init__(self, results: Path, cell: Cell, planned: PlannedRun, metric: str):
        self.run = Run(results, planned.path)
        self.name = f"{cell.label} s{planned.seed}"
        self.cell = cell
        self.metric = metric
        self.steps = cell.config.train.steps if cell.config else None
        self.holder: Holder | None = None
        self.result: Result | None = None
        self.damage: list[str] = []
        self.logged: dict[str, Any] = {}  # what it has logged last, until it has ended
        self.result_stamp: object = None
        self.poll()

    def poll(self) -> None:
        """Read what has changed on disk."""
        result_stamp = stamp(self.run.result_file)
        if result_stamp != self.result_stamp:
            self.result_stamp = result_stamp
            self.result = None
            self.damage = []
            with contextlib.suppress(OSError):
                self.result, self.damage = noted(self.run.result)
        if self.result is None:
            self.logged = last_values(self.run.metrics_file)
            self.holder = self.run.holder()

    def forget_failure(self) -> None:
        """Count a failed run as not ended: it is about to be trained again."""
        if self.result and self.result.status == "failed":
            self.result = None

    def state(self) -> str:
        """One of STATES: how it ended, running, interrupted (it has a checkpoint and no holder), or queued."""
        if self.result:
            return self.result.status
        if self.holder:
            return "running"
        return "interrupted" if self.run.checkpoint_file.exists() else "queued"

    def value(self, name: str) -> float:
        """The last logged value of a number; 0 if there is none."""
        value = self.logged.get(name)
        return float(value) if is_number(value) else 0.0

    @property
    def step(self) -> int:
        """The last step that it has logged, or ended at."""
        return (self.result.steps or 0) if self.result else int(self.value("step"))

    def whole_seconds(self) -> float | None:
        """Seconds that training the whole run takes, by its own speed; None if unknown."""
        if self.result:
            seconds = self.result.seconds or {}
            is_timed = self.result.status == "done" and "total" in seconds
            # Setup is long for the first run of a process.
            return seconds["total"] - seconds.get("setup", 0.0) if is_timed else None
        if self.steps and self.step and self.value("seconds"):
            return self.value("seconds") * self.steps / self.step
        return None

    def seconds_left(self, expected: Seconds) -> float | None:
        """Seconds until it ends, by its own speed, else by the time that runs of its cell are `expected` to take."""
        whole = self.whole_seconds() or expected.get(self.cell.id)
        if whole is None or self.state() == "queued":  # it begins with the first step, whatever was logged before
            return whole
        done = whole * self.step / self.steps if self.steps else self.value("seconds")
        return max(0.0, whole - done)

    def row(self, expected: Seconds) -> tuple[str, ...]:
        """A running run in a table: name, step, training and validation loss, tokens per second, time left, where."""
        step = str(self.step) if self.steps is None else f"{self.step}/{self.steps}"
        seconds = self.value("seconds")
        speed = f"{self.value('tokens') / seconds:,.0f}" if seconds and self.value("tokens") else ""
        left = self.seconds_left(expected)
        time_left = "" if left is None else duration(left)
        return self.name, step, self.loss("train/loss"), self.loss("val/loss"), speed, time_left, self.where()

    def loss(self, name: str) -> str:
        """The last logged value of a loss as text; empty if there is none."""
        if name not in self.logged:
            return ""
        return f"{self.value(name):.3f}" if is_number(self.logged[name]) else "not finite"

    def ending(self) -> str:
        """How the run ended, in a few words."""
        assert self.result
        if self.result.status == "failed":
            return f"failed: {self.error()}"
        if self.result.status == "diverged":
            return f"diverged at step {'?' if self.result.steps is None else self.result.steps}"
        value = self.result.final.get(self.metric)
        return "done" if value is None else f"done  {self.metric} {value:.3f}"

    def error(self) -> str:
        """Type and message of a failed run's error."""
        error = self.result.error if self.result else None
        return f"{error.type or 'error'}: {error.message}" if error else "error: "

    def where(self) -> str:
        """The host, process and device that hold it; empty if none does."""
        if self.holder is None:
            return ""
        host = self.holder.host.partition(".")[0]
        return f"{host}:{self.holder.pid} {self.holder.device}".rstrip()


class Runs(list[RunState]):
    """Runs that are monitored together."""

    def poll(self) -> None:
        """Read what has changed on disk."""
        for run in self:
            run.poll()

    def ended(self) -> int:
        """The number of ended runs."""
        return sum(run.result is not None for run in self)

    def by_state(self) -> dict[str, list[RunState]]:
        """The runs in each state."""
        return grouped((run.state(), run) for run in self)

    def expected_seconds(self) -> Seconds:
        """Seconds of a whole run of each cell: the mean over its runs, of a cell without a timed run over all runs."""
        timed = grouped((run.cell.id, seconds) for run in self if (seconds := run.whole_seconds()) is not None)
        if not timed:
            return {}
        mean = statistics.mean(seconds for of_cell in timed.values() for seconds in of_cell)
        return {run.cell.id: statistics.mean(timed.get(run.cell.id, [mean])) for run in self}

    def left(self) -> str:
        """The time until all have ended, in words; empty if unknown.  It is the sum of their times, or that shared by
        the running ones, of which the slowest takes its own time."""
        expected = self.expected_seconds()
        todo = [run for run in self if run.result is None]
        seconds = {run: run.seconds_left(expected) or 0.0 for run in todo}
        running = self.by_state().get("running", [])
        if not expected:
            return ""
        if not running:
            return f"{duration(sum(seconds.values()))} of computing left"
        slowest = max(seconds[run] for run in running)
        return f"about {duration(max(slowest, sum(seconds.values()) / len(running)))} left"


def runs_of(results: Path, manifest: Manifest, paths: Sequence[str] | None = None) -> Runs:
    """The runs of a study, or only those at `paths`, which a sweep is about to train: earlier failures do not count."""
    cells = {cell.id: cell for cell in manifest.cells}
    runs = Runs()
    for planned in manifest.runs:
        if paths is None or planned.path in paths:
            cell = cells[planned.cell]
            metric = manifest.endpoint or f"test/{manifest.tasks[cell.task].measured}"
            runs.append(RunState(results, cell, planned, metric))
            if paths is not None:
                runs[-1].forget_failure()
    return runs


class Round(NamedTuple):
    """A study on disk and its role for the requested one, one of KINDS."""

    kind: str
    manifest: Manifest
    runs: Runs


def base_of(manifest: Manifest) -> str:
    """The study that a manifest is a round of, for example the one that it tunes; else itself."""
    return manifest.tunes or manifest.exchange_of or manifest.study


def kind_of(manifest: Manifest) -> str:
    """The kind of round that a manifest is of, one of KINDS."""
    if manifest.tunes:
        return "tuning"
    return "other numbers of steps" if manifest.exchange_of else "study"


def rounds_of(results: Path, base: str) -> list[Round]:
    """The rounds of a study on disk, in order of training.  Raises Refused."""
    rounds = []
    for name in studies(results):
        if not name.startswith(base):  # a round's name begins with its study's
            continue
        manifest = manifest_of(results, name) if name == base else readable(results, name)
        if manifest and base_of(manifest) == base:
            with refusing(study_folder(results, name)):
                rounds.append(Round(kind_of(manifest), manifest, runs_of(results, manifest)))
    return sorted(rounds, key=lambda step: KINDS.index(step.kind))


def together(rounds: list[Round]) -> Runs:
    """The runs of all rounds."""
    return Runs(run for step in rounds for run in step.runs)


def is_planned(rounds: list[Round]) -> bool:
    """Whether the study itself is on disk, not only earlier rounds."""
    return bool(rounds) and rounds[-1].kind == "study"


def is_over(rounds: list[Round]) -> bool:
    """Whether the study is planned and all runs of all rounds have ended."""
    return is_planned(rounds) and all(run.result for run in together(rounds))


def unsettled(rounds: list[Round]) -> bool:
    """Whether its command may add runs after all have ended: further looks of seeds=auto, or runs of references
    for other numbers of steps."""
    manifest = rounds[-1].manifest
    last_look = max(manifest.sequential.looks, default=0) if manifest.sequential else 0
    lacks_references = manifest.exchange and all(step.manifest.study != manifest.exchange for step in rounds)
    return len(manifest.seeds) < last_look or bool(lacks_references)


def find(results: Path, name: str | None) -> str:
    """The study of this name, or of the round of this name; without a name the newest.  Raises Refused."""
    manifests = {study: readable(results, study) for study in studies(results)}
    bases = {study: base_of(manifest) for study, manifest in manifests.items() if manifest}
    chosen = choose_study(results, name, bases.values())  # perhaps only the tuning of a study is on disk
    return bases.get(chosen, chosen)


def progress(runs: Runs) -> str:
    """The number of runs in each state and the time left, in one line."""
    by_state = runs.by_state()
    parts = [f"{len(by_state.get(state, []))} {state}" for state in STATES if state in by_state or state == "done"]
    line = f"{counted(len(runs), 'run')}: {', '.join(parts)}"
    if runs.ended() == len(runs):
        return line
    return f"{line}, {runs.left() or 'time left unknown'}"


def standing(rounds: list[Round]) -> list[str]:
    """What a study compares, and the number of runs in each state: of each round, then of all."""
    manifest = rounds[-1].manifest
    factors = [f"{key}={','.join(map(show, levels))}" for key, levels in manifest.factors.items()]
    headline = f"{base_of(manifest)}: {' '.join(factors)}" if factors else base_of(manifest)
    size = f"{counted(len(manifest.cells), 'configuration')} × {counted(len(manifest.seeds), 'seed')}"
    tasks = dict.fromkeys(task.title or task.name for task in manifest.tasks.values())
    lines = [f"{headline}; {size}; {', '.join(tasks)}"]
    if len(rounds) > 1 or not is_planned(rounds):
        lines += [f"{step.kind} ({step.manifest.study}): {progress(step.runs)}" for step in rounds]
    if not is_planned(rounds):
        lines.append("the study itself is planned when this has ended")
    return [*lines, progress(together(rounds))]


def damage(runs: Runs) -> list[str]:
    """A sentence on each damaged file."""
    return [f"damaged: {note}; the run is trained again" for run in runs for note in run.damage]


def idle(rounds: list[Round]) -> str:
    """How to go on if nothing is running and runs are left; else empty."""
    if is_over(rounds) or "running" in together(rounds).by_state():
        return ""
    how = f"to go on, once what stopped it is mended and if no job waits in a queue: {rounds[-1].manifest.command}"
    return f"nothing is running; {how}"


def polls(results: Path, base: str, rest: Callable[[float], object] = time.sleep) -> Iterator[list[Round]]:
    """The rounds of a study until it is over, `rest`ing for TICK seconds between polls.  Raises Refused."""
    rounds: list[Round] = []
    manifest_stamps = None
    over_since = math.inf
    while True:
        stamps = {file: stamp(file) for file in sorted((results / "studies").glob("*/manifest.json"))}
        if stamps == manifest_stamps:
            together(rounds).poll()
        else:
            manifest_stamps = stamps
            rounds = rounds_of(results, base)
            if not rounds:
                raise Refused(f"{base} is no longer in {results}")
        yield rounds
        over_since = min(over_since, time.monotonic()) if is_over(rounds) else math.inf
        if time.monotonic() - over_since >= (PLANNING if unsettled(rounds) else 0):
            return
        rest(TICK)
