"""Progress of studies, read from the files of their runs: the state of each run, the time left, and both in words.

A run's configuration, FLOPs and number of steps may be unknown, as those of another program's runs are.
"""

import contextlib
import heapq
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.errors import Refused
from ablate.config.files import regular
from ablate.formatting import counted, duration, grouped, show
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


@dataclass(frozen=True)
class Pace:
    """What a run has logged: its last step, its seconds so far, its last losses as text, and its speed with evaluations
    (None: not known yet)."""

    step: int = 0
    seconds: float = 0.0
    train: str = ""
    val: str = ""
    tokens_per_second: float | None = None
    steps_per_second: float | None = None


def read_pace(file: Path) -> Pace:
    """The pace of a run from the end of its metrics file; torn lines are ignored."""
    rows = [row for row in last_rows(file) if isinstance(row.get("step"), int)]
    if not rows:
        return Pace()
    first = rows[min(1, len(rows) - 1)]  # compilation comes before
    last = rows[-1]
    seconds = last.get("seconds")
    return Pace(
        step=last["step"],
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        train=last_value(rows, "train/loss"),
        val=last_value(rows, "val/loss"),
        tokens_per_second=per_second(first, last, "tokens"),
        steps_per_second=per_second(first, last, "step"),
    )


def last_rows(file: Path) -> list[dict[str, Any]]:
    """The rows in the last TAIL bytes of a metrics file."""
    try:
        with open(file, "rb", opener=regular) as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL))
            lines = opened.read(TAIL).split(b"\n")
    except OSError:
        return []
    if size > TAIL:
        lines = lines[1:]  # the first one is cut
    rows, _ = parse_lines(lines)
    return rows


def last_value(rows: list[dict[str, Any]], name: str) -> str:
    """The last logged value of a metric as text; empty if there is none."""
    values = [row[name] for row in rows if name in row]
    if not values:
        return ""
    return f"{values[-1]:.3f}" if isinstance(values[-1], float | int) else "not finite"


def per_second(first: dict[str, Any], last: dict[str, Any], name: str) -> float | None:
    """How fast a logged number grows from one row to another; None if unknown."""
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
        speed = (last[name] - first[name]) / (last["seconds"] - first["seconds"])
        if speed > 0:
            return float(speed)
    return None


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
        self.pace = Pace()
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
            self.follow()
        else:
            self.pace = Pace(self.result.steps or 0)

    def follow(self) -> None:
        """Read the pace of a run that has not ended, and who trains it."""
        self.pace = read_pace(self.run.metrics_file)
        self.holder = self.run.holder()

    def forget_failure(self) -> None:
        """Count a failed run as not ended: it is about to be trained again."""
        if self.result and self.result.status == "failed":
            self.result = None
            self.follow()

    def state(self) -> str:
        """One of STATES: how it ended, running, interrupted (it has a checkpoint and no holder), or queued."""
        if self.result:
            return self.result.status
        if self.holder:
            return "running"
        return "interrupted" if self.run.checkpoint_file.exists() else "queued"

    def whole_seconds(self) -> float | None:
        """Seconds that training the whole run takes, by its own speed; None if unknown."""
        if self.result is None:
            if self.steps is None or self.pace.steps_per_second is None:
                return None
            return self.steps / self.pace.steps_per_second
        seconds = self.result.seconds or {}
        total = seconds.get("total")
        if self.result.status != "done" or total is None:
            return None
        return total - seconds.get("setup", 0.0)  # setup is long for the first run of a process

    def seconds_left(self, expected: Seconds) -> float | None:
        """Seconds until it ends, by its own speed, else by the time that runs of its cell are `expected` to take."""
        whole = self.whole_seconds() or expected.get(self.cell.id)
        if whole is None:
            return None
        if self.state() == "queued":  # it begins with the first step, whatever was logged before
            return whole
        if self.steps is None:
            return max(0.0, whole - self.pace.seconds)
        return whole * max(0.0, 1 - self.pace.step / self.steps)

    def row(self, expected: Seconds) -> tuple[str, ...]:
        """A running run in a table: name, step, training and validation loss, tokens per second, time left, where."""
        pace = self.pace
        step = str(pace.step) if self.steps is None else f"{pace.step}/{self.steps}"
        speed = f"{pace.tokens_per_second:,.0f}" if pace.tokens_per_second else ""
        seconds = self.seconds_left(expected)
        left = "" if seconds is None else duration(seconds)
        return self.name, step, pace.train, pace.val, speed, left, self.where()

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
        """Seconds of a whole run of each cell: the mean over its runs; of a cell without a timed run, by the time of
        all others in proportion to FLOPs, or as long as theirs if FLOPs are unknown."""
        cells = {run.cell.id: run.cell for run in self}
        flops = {name: cell.training_flops for name, cell in cells.items()}
        if not all(0 < value < math.inf for value in flops.values()):
            flops = dict.fromkeys(cells, 1.0)
        timed = grouped((run.cell.id, seconds) for run in self if (seconds := run.whole_seconds()) is not None)
        if not timed:
            return {}
        all_seconds = sum(map(sum, timed.values()))
        all_flops = sum(flops[name] * len(seconds) for name, seconds in timed.items())
        expected = {name: flops[name] * all_seconds / all_flops for name in cells}
        return expected | {name: statistics.mean(seconds) for name, seconds in timed.items()}

    def left(self) -> str:
        """The time until all have ended, in words; empty if unknown.  Waiting runs take the places of running ones; if
        none is running, it is the sum of their times."""
        expected = self.expected_seconds()
        by_state = self.by_state()
        running = by_state.get("running", [])
        todo = [*running, *by_state.get("interrupted", []), *by_state.get("queued", [])]
        times = []
        for run in todo:
            seconds = run.seconds_left(expected)
            if seconds is None:
                return ""
            times.append(seconds)
        if not times:
            return ""
        if not running:
            return f"{duration(sum(times))} of computing left"
        return f"about {duration(makespan(times, len(running)))} left"


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Seconds until the last job ends, if the first free worker takes the next one."""
    ends = [0.0] * workers
    for time_of_job in seconds:
        heapq.heapreplace(ends, ends[0] + time_of_job)
    return max(ends)


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


@dataclass(frozen=True)
class Round:
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
    runs = together(rounds)
    return is_planned(rounds) and runs.ended() == len(runs)


def unsettled(rounds: list[Round]) -> bool:
    """Whether its command may add runs after all have ended: further looks of seeds=auto, or runs of references
    for other numbers of steps."""
    manifest = rounds[-1].manifest
    if manifest.sequential and len(manifest.seeds) < max(manifest.sequential.looks, default=0):
        return True
    config = manifest.cells[0].config
    # The manifest may keep references of earlier commands, which this one does not train.
    requested = manifest.design == "ladder" or (config is not None and config.step_equivalents)
    if not (requested and manifest.exchange):
        return False
    references = [step.manifest for step in rounds if step.manifest.exchange_of == manifest.study]
    return all(reference.seeds != manifest.seeds for reference in references)


def find(results: Path, name: str | None) -> str:
    """The study of this name, or of the round of this name; without a name the newest.  Raises Refused."""
    bases = set()
    if name is not None and name not in studies(results):  # perhaps only its tuning is on disk
        manifests = [readable(results, study) for study in studies(results)]
        bases = {base_of(manifest) for manifest in manifests if manifest}
    chosen = choose_study(results, name, bases)
    return chosen if chosen in bases else base_of(manifest_of(results, chosen))


def progress(runs: Runs) -> str:
    """The number of runs in each state and the time left, in one line."""
    by_state = runs.by_state()
    parts = []
    for state in STATES:
        if state in by_state or state == "done":
            parts.append(f"{len(by_state.get(state, []))} {state}")
    line = f"{counted(len(runs), 'run')}: {', '.join(parts)}"
    if runs.ended() == len(runs):
        return line
    return f"{line}, {runs.left() or 'time left unknown'}"


def standing(rounds: list[Round]) -> list[str]:
    """What a study compares, and the number of runs in each state: of each round, then of all."""
    manifest = rounds[-1].manifest
    factors = [f"{key}={','.join(map(show, levels))}" for key, levels in manifest.factors.items()]
    parts = [f"{base_of(manifest)}: {' '.join(factors)}" if factors else base_of(manifest)]
    parts.append(f"{counted(len(manifest.cells), 'configuration')} × {counted(len(manifest.seeds), 'seed')}")
    if manifest.sequential and manifest.sequential.looks:
        parts.append(f"interim analyses at {', '.join(map(str, manifest.sequential.looks))} seeds")
    tasks = dict.fromkeys(task.title or task.name for task in manifest.tasks.values())
    parts.append(", ".join(tasks))
    lines = ["; ".join(parts)]
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
