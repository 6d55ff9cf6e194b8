"""Progress of studies, read from the files of their runs: the state and speed of each run, and the time left."""

import contextlib
import heapq
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
# Rounds other than the study itself, by the key of their manifest that names the study.
ROUNDS = {"tunes": "tuning", "exchange_of": "other numbers of steps"}

Rates = dict[str | None, float]  # FLOP/s of one process by cell; under None for all cells together


class Pace(NamedTuple):
    """A running run's step, its last losses as text, and its speed (None: not known yet).  `tokens_per_second` covers
    training only; `steps_per_second` includes evaluations."""

    step: int = 0
    train: str = ""
    val: str = ""
    tokens_per_second: float | None = None
    steps_per_second: float | None = None


class RunState:
    """A run and its last known state on disk.  With `again`, the files are from before the sweep: a failed run is about
    to be retried."""

    def __init__(self, results: Path, cell: Cell, planned: PlannedRun, metric: str, again: bool):
        self.run, self.metric, self.cell = Run(results, planned.path), metric, cell.id
        self.name, train = f"{cell.label} s{planned.seed}", cell.planned_config.train
        self.steps = max(1, train.steps)
        self.flops = float(cell.flops_per_token or 1) * float(cell.tokens_per_step or 1)  # per step
        self.holder: Holder | None = None
        self.seen_result: object = None
        self.seen_metrics: object = None
        self.pace, self.damage = Pace(), list[str]()
        self.result: Result | None = None
        if self.poll() and again and self.result and self.result.status == "failed":
            self.result, self.pace = None, Pace()
            self.poll()

    def poll(self) -> bool:
        """Read the files again; returns whether the run has ended since the last poll."""
        found = stamp(self.run.result_file)
        if fresh := found != self.seen_result:
            self.seen_result, self.result, self.damage = found, None, []
            with contextlib.suppress(OSError):
                self.result, self.damage = noted(self.run.result)
        if self.result:
            self.pace = Pace(self.result.steps or 0)
            return fresh
        found = stamp(self.run.metrics_file)
        if found != self.seen_metrics:
            self.seen_metrics, self.pace = found, read_pace(self.run.metrics_file)
        self.holder = self.run.holder()
        return False

    def state(self) -> str:
        """One of STATES: how it ended, running, interrupted (it has a checkpoint and no holder), or queued."""
        if self.result:
            return self.result.status
        if self.holder:
            return "running"
        return "interrupted" if self.run.checkpoint_file.exists() else "queued"

    def work(self) -> tuple[float, float] | None:
        """FLOPs and seconds of the run, so far if it has not ended; None if unknown."""
        if not self.result:
            pace = self.pace
            return (self.flops * pace.step, pace.step / pace.steps_per_second) if pace.steps_per_second else None
        steps, seconds = self.result.steps, self.result.seconds or {}
        total, setup = seconds.get("total"), seconds.get("setup", 0.0)  # setup is long for a process's first run
        if self.result.status == "failed" or steps is None or total is None:
            return None
        return self.flops * steps, total - setup

    def seconds_left(self, rates: Rates, state: str = "running") -> float | None:
        """Estimated seconds until it ends: by its own pace, else its cell's, else the study's, else None."""
        steps = self.steps if state == "queued" else max(0, self.steps - self.pace.step)  # queued: all steps
        if self.pace.steps_per_second:
            return steps / self.pace.steps_per_second
        rate = rates.get(self.cell) or rates.get(None)
        return steps * self.flops / rate if rate else None

    def row(self, rates: Rates) -> tuple[str, ...]:
        """A running run in a table: name, step, training and validation loss, tokens per second, time left, where."""
        pace, seconds = self.pace, self.seconds_left(rates)
        speed = f"{pace.tokens_per_second:,.0f}" if pace.tokens_per_second else ""
        left = "" if seconds is None else duration(seconds)
        return self.name, f"{pace.step}/{self.steps}", pace.train, pace.val, speed, left, self.where()

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
        held = self.holder
        return f"{held.host.partition('.')[0]}:{held.pid} {held.device}".rstrip() if held else ""


class Runs(list[RunState]):
    """Runs that are monitored together."""

    def poll(self) -> list[RunState]:
        """Poll all runs; returns those that have ended since the last poll, in order."""
        fresh = [run for run in self if run.poll()]
        return sorted(fresh, key=lambda run: str(run.result.ended if run.result else ""))

    def ended(self) -> int:
        """The number of ended runs."""
        return sum(run.result is not None for run in self)

    def by_state(self) -> dict[str, list[RunState]]:
        """The runs in each state."""
        return grouped((run.state(), run) for run in self)

    def rates(self) -> Rates:
        """The speed of one process, from the work of all runs so far."""
        sums: dict[str | None, tuple[float, float]] = {}
        for run in self:
            more = run.work() or (0.0, 0.0)
            for name in (run.cell, None):
                flops, seconds = sums.get(name, (0.0, 0.0))
                sums[name] = flops + more[0], seconds + more[1]
        return {name: flops / seconds for name, (flops, seconds) in sums.items() if flops > 0 and seconds > 0}

    def left(self) -> str:
        """The time until all have ended, in words; empty if unknown.  Waiting runs take the places of running ones; if
        none is running, it is the sum of their times."""
        rates, found = self.rates(), self.by_state()
        running = [run.seconds_left(rates) for run in found.get("running", [])]
        waiting = [run.seconds_left(rates, one) for one in ("interrupted", "queued") for run in found.get(one, [])]
        known = [seconds for seconds in running + waiting if seconds is not None]
        if len(known) < len(running + waiting) or not known:
            return ""
        if not running:
            return f"{duration(sum(known))} of computing left"
        return f"about {duration(makespan(known, len(running)))} left"


def runs_of(results: Path, manifest: Manifest, paths: Sequence[str] | None = None) -> Runs:
    """The runs of a study, or only those at `paths`, which a sweep is about to train."""
    cells = {cell.id: cell for cell in manifest.cells}
    metric = {key: manifest.endpoint or f"test/{task.measured}" for key, task in manifest.tasks.items()}
    runs = manifest.runs if paths is None else [run for run in manifest.runs if run.path in set(paths)]
    chosen = [(run, cells[run.cell]) for run in runs]
    return Runs(RunState(results, cell, run, metric[cell.task], paths is not None) for run, cell in chosen)


def read_pace(file: Path) -> Pace:
    """The pace of a run from the end of its metrics file; ignores torn lines."""
    lines = list[bytes]()
    with contextlib.suppress(OSError), open(file, "rb", opener=regular) as handle:
        cut = handle.seek(0, os.SEEK_END) > TAIL
        handle.seek(-TAIL if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
        lines = handle.read(TAIL).split(b"\n")[cut:]
    rows = [row for row in parse_lines(lines)[0] if isinstance(row.get("step"), int)]
    if not rows:
        return Pace()
    # The median over intervals ignores those with an evaluation or the first steps.
    slopes = [slope for pair in itertools.pairwise(rows) if (slope := _slope(*pair, "tokens")) is not None]
    tokens = statistics.median_high(slopes) if slopes else None
    steps = _slope(rows[1], rows[-1], "step") if len(rows) > 2 else None  # the first interval includes compilation
    return Pace(rows[-1]["step"], _last(rows, "train/loss"), _last(rows, "val/loss"), tokens, steps)


def _last(rows: list[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return "" if not values else f"{values[-1]:.3f}" if isinstance(values[-1], float | int) else "not finite"


def _slope(before: dict[str, Any], after: dict[str, Any], name: str) -> float | None:
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
        slope = (after[name] - before[name]) / (after["seconds"] - before["seconds"])
        return float(slope) if slope > 0 else None
    return None


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Seconds until the last job ends, if the first free worker takes the next one."""
    ends = [0.0] * workers
    for one in seconds:
        heapq.heapreplace(ends, ends[0] + one)
    return max(ends)


class Round(NamedTuple):
    """A study on disk and its role for the requested one: tuning, references for other steps, or the study itself."""

    kind: str
    manifest: Manifest
    runs: Runs


def base_of(manifest: Manifest) -> str:
    """The study that a manifest is a round of, for example the one that it tunes; else itself."""
    return next(filter(None, (getattr(manifest, key) for key in ROUNDS)), manifest.study)


def rounds_of(results: Path, base: str) -> list[Round]:
    """The rounds of a study on disk, in order of training.  Raises Refused."""
    found = []
    for name in studies(results):
        if not name.startswith(base):  # a round's name begins with its study's
            continue
        manifest = manifest_of(results, name) if name == base else readable(results, name)
        if manifest and base_of(manifest) == base:
            kind = next((words for key, words in ROUNDS.items() if getattr(manifest, key)), "study")
            with refusing(study_folder(results, name)):
                found.append(Round(kind, manifest, runs_of(results, manifest)))
    return sorted(found, key=lambda one: [*ROUNDS.values(), "study"].index(one.kind))


def together(rounds: list[Round]) -> Runs:
    """The runs of all rounds."""
    return Runs(run for one in rounds for run in one.runs)


def is_planned(rounds: list[Round]) -> bool:
    """Whether the study itself is on disk, not only earlier rounds."""
    return bool(rounds) and rounds[-1].kind == "study"


def is_over(rounds: list[Round]) -> bool:
    """Whether the study is planned and all runs of all rounds have ended."""
    return is_planned(rounds) and all(run.result for one in rounds for run in one.runs)


def unsettled(rounds: list[Round]) -> bool:
    """Whether its command may add runs after all have ended: further looks of seeds=auto, or runs of references
    for other numbers of steps."""
    manifest = rounds[-1].manifest
    more = len(manifest.seeds) < max(manifest.sequential.looks if manifest.sequential else (), default=0)
    there = [one.manifest.seeds for one in rounds if one.manifest.exchange_of == manifest.study]
    # The manifest may keep such runs of earlier commands.
    requested = manifest.cells[0].planned_config.step_equivalents or manifest.design == "ladder"
    return more or (bool(requested and manifest.exchange) and manifest.seeds not in there)


def find(results: Path, name: str | None) -> str:
    """The study of this name, or of the round of this name; without a name the newest.  Raises Refused."""
    bases: set[str] = set()
    if name is not None and name not in studies(results):  # perhaps only its tuning is on disk
        bases = {base_of(manifest) for one in studies(results) if (manifest := readable(results, one))}
    chosen = choose_study(results, name, bases)
    return chosen if chosen in bases else base_of(manifest_of(results, chosen))


def progress(runs: Runs) -> str:
    """The number of runs in each state and the time left, in one line."""
    number = {state: len(runs) for state, runs in runs.by_state().items()}
    parts = [f"{number.get(state, 0)} {state}" for state in STATES if state in number or state == "done"]
    left = "" if runs.ended() == len(runs) else f", {runs.left() or 'time left unknown'}"
    return f"{counted(len(runs), 'run')}: {', '.join(parts)}{left}"


def standing(rounds: list[Round]) -> list[str]:
    """What a study compares, and the number of runs in each state: of each round, then of all."""
    manifest = rounds[-1].manifest
    factors = " ".join(f"{key}={','.join(map(show, levels))}" for key, levels in manifest.factors.items())
    size = f"{counted(len(manifest.cells), 'configuration')} × {counted(len(manifest.seeds), 'seed')}"
    looks = manifest.sequential.looks if manifest.sequential else []
    auto = f"interim analyses at {', '.join(map(str, looks))} seeds" * bool(looks)
    tasks = ", ".join(dict.fromkeys(task.title or key for key, task in manifest.tasks.items()))
    lines = ["; ".join(filter(None, [f"{base_of(manifest)}: {factors}".rstrip(": "), size, auto, tasks]))]
    if len(rounds) > 1 or not is_planned(rounds):
        lines += [f"{one.kind} ({one.manifest.study}): {progress(one.runs)}" for one in rounds]
    lines += [] if is_planned(rounds) else ["the study itself is planned when this has ended"]
    return [*lines, progress(together(rounds))]


def damage(runs: Runs) -> list[str]:
    """A sentence on each damaged file."""
    return [f"damaged: {note}; the run is trained again" for run in runs for note in run.damage]


def idle(rounds: list[Round]) -> str:
    """How to go on if nothing is running and runs are left; else empty."""
    waits = not is_over(rounds) and "running" not in together(rounds).by_state()
    how = f"if no job waits in a launcher's queue, go on with: {rounds[-1].manifest.command}"
    return f"nothing is running; {how}" * waits


def polls(results: Path, base: str, rest: Callable[[float], object] = time.sleep) -> Iterator[list[Round]]:
    """The rounds of a study until it is over, `rest`ing for TICK seconds between polls.  Raises Refused."""
    seen, rounds, since = None, list[Round](), math.inf
    while True:
        found = {file: stamp(file) for file in sorted((results / "studies").glob("*/manifest.json"))}
        if found != seen:
            seen, rounds = found, rounds_of(results, base)
            if not rounds:
                raise Refused(f"{base} is no longer in {results}")
        else:
            for one in rounds:
                one.runs.poll()
        yield rounds
        since = min(since, time.monotonic()) if is_over(rounds) else math.inf
        if time.monotonic() - since >= (PLANNING if unsettled(rounds) else 0):
            return
        rest(TICK)
