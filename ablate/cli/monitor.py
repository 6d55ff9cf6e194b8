"""Progress of runs, read from their files: the state and speed of each, and the time left."""

import contextlib
import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.config.files import regular
from ablate.formatting import duration
from ablate.formatting.streams import say, screen
from ablate.planning.runs import makespan
from ablate.results.lease import Holder
from ablate.results.manifest import read_manifest
from ablate.results.records import Cell, Manifest, PlannedRun
from ablate.results.run import Result, Run, noted, stamp
from ablate.results.tables import parse_lines

LEASE = 5.0  # seconds between polls of a fresh lease
TAIL = 16384  # bytes read from the end of a metrics file
STATES = ("done", "diverged", "failed", "running", "interrupted", "queued")

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
        self.name, train = f"{cell.label} s{planned.seed}", cell.config.train
        self.steps = max(1, train.steps)
        self.flops = float(cell.flops_per_token or 1) * float(cell.tokens_per_step or 1)  # per step
        self.lease_read = -LEASE
        self.holder: Holder | None = None
        self.seen_result, self.seen_metrics = stamp(self.run.result_file), stamp(self.run.metrics_file)
        self.result: Result | None = self._read_result()
        if again and self.result and self.result.status == "failed":
            self.result = None
        self.pace = Pace(self.result.steps or 0) if self.result else read_pace(self.run.metrics_file)
        self.poll()

    def poll(self) -> bool:
        """Read the files again; returns whether the run has ended since the last poll."""
        now, found, ended = time.monotonic(), stamp(self.run.result_file), False
        if found != self.seen_result:
            self.seen_result, self.result = found, self._read_result()
            ended = self.result is not None
        if self.result:
            return ended
        found = stamp(self.run.metrics_file)
        if found != self.seen_metrics:
            self.seen_metrics, self.pace = found, read_pace(self.run.metrics_file)
        if not self.holder or now - self.lease_read >= LEASE:
            self.holder, self.lease_read = self.run.holder(), now
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

    def _read_result(self) -> Result | None:
        result, self.damage = None, list[str]()
        with contextlib.suppress(OSError):
            result, self.damage = noted(self.run.result)
        return result


class Runs:
    """Runs that are monitored together."""

    def __init__(self, runs: list[RunState]):
        self.runs = runs

    def poll(self) -> list[RunState]:
        """Poll all runs; returns those that have ended since the last poll, in order."""
        fresh = [run for run in self.runs if run.poll()]
        return sorted(fresh, key=lambda run: str(run.result.ended if run.result else ""))

    def ended(self) -> int:
        """The number of ended runs."""
        return sum(run.result is not None for run in self.runs)

    def by_state(self) -> dict[str, list[RunState]]:
        """The runs in each state."""
        found: dict[str, list[RunState]] = {}
        for run in self.runs:
            found.setdefault(run.state(), []).append(run)
        return found

    def rates(self) -> Rates:
        """The speed of one process, from the work of all runs so far."""
        sums: dict[str | None, tuple[float, float]] = {}
        for run in self.runs:
            for name in (run.cell, None):
                flops, seconds = sums.get(name, (0.0, 0.0))
                more = run.work() or (0.0, 0.0)
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
    own, tasks = manifest.endpoint, manifest.tasks
    metric = {key: own or f"test/{task.measured}" for key, task in tasks.items()}
    runs = manifest.runs if paths is None else [run for run in manifest.runs if run.path in set(paths)]
    chosen = [(run, cells[run.cell]) for run in runs]
    return Runs([RunState(results, cell, run, metric[cell.task], paths is not None) for run, cell in chosen])


def read_pace(file: Path) -> Pace:
    """The pace of a run from the end of its metrics file; ignores torn lines."""
    try:
        with open(file, "rb", opener=regular) as handle:
            cut = handle.seek(0, os.SEEK_END) > TAIL
            handle.seek(-TAIL if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            lines = handle.read(TAIL).split(b"\n")[cut:]
    except OSError:
        lines = []
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


Show = Callable[[Runs, threading.Event], None]  # shows runs until the event is set
TICK = 0.5  # seconds between polls
HEARTBEAT = 30.0  # seconds without output after which a plain line reports progress
# The columns of the table, each with the least terminal width at which it is shown.
COLUMNS = {"run": 0, "step": 20, "train/loss": 36, "val/loss": 48, "tokens/s": 60, "left": 72, "where": 96}
BAR = 110  # the same for progress bars


def table(runs: Runs, width: int, height: int, bars: bool = True) -> Group:
    """A table of running runs that fits a terminal, and the number of those left out."""
    running, rates = runs.by_state().get("running", []), runs.rates()
    names, bars = [name for name, least in COLUMNS.items() if width >= least], bars and width >= BAR
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.show_header = True
    for name in names:
        least = None if name == "run" else len(name)  # only this column may shrink
        side: Literal["left", "right"] = "left" if name in ("run", "where") else "right"
        shown.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", min_width=least)
    for run in running[: max(1, height - 6)]:
        pace, seconds = run.pace, run.seconds_left(rates)
        speed = f"{pace.tokens_per_second:,.0f}" if pace.tokens_per_second else ""
        left = "" if seconds is None else duration(seconds)
        values = (run.name, f"{pace.step}/{run.steps}", pace.train, pace.val, speed, left, run.where())
        cells = dict(zip(COLUMNS, map(printable, values), strict=True))
        bar = [ProgressBar(run.steps, pace.step, width=20)] * bars
        shown.add_row(*(Text(cells[name]) for name in names), *bar)
    hidden = len(running) - shown.row_count
    return Group(shown, *[Text(f"and {hidden} more running")] * bool(hidden))


def counts(runs: Runs) -> str:
    """The progress of a sweep in one line."""
    number = {state: len(found) for state, found in runs.by_state().items()}
    parts = [f"{runs.ended()}/{len(runs.runs)} ended"]
    parts += [f"{number.get(state, 0)} {state}" for state in ("diverged", "failed", "running")]
    parts += [f"{number['interrupted']} interrupted"] if "interrupted" in number else []
    return ", ".join([*parts, f"{number.get('queued', 0)} queued", *filter(None, [runs.left()])])


def endings(runs: Runs) -> list[tuple[str, str]]:
    """Poll all runs; returns status and a line for each that has ended since the last poll."""
    fresh, lines = runs.poll(), list[tuple[str, str]]()
    for i, run in enumerate(fresh, runs.ended() - len(fresh) + 1):
        assert run.result
        count = f"[{i:{len(str(len(runs.runs)))}}/{len(runs.runs)}]"
        seconds = (run.result.seconds or {}).get("total")
        took = f"  {duration(seconds)}" if seconds is not None else ""
        again = "  resumed" if run.result.resumed else ""
        lines.append((run.result.status, printable(f"{count} {run.name} {run.ending()}{took}{again}")))
    return lines


@contextlib.contextmanager
def follow(results: Path, study: str, paths: list[str], show: Show | None = None) -> Iterator[None]:
    """Show the progress of the runs at `paths` from a thread until the context ends; `show` defaults to the live view.
    Enter it before the runs begin.  Raises what `read_manifest` raises; later errors only end the view."""
    runs, stop = runs_of(results, read_manifest(results, study), paths), threading.Event()
    thread = threading.Thread(target=show or _show, args=(runs, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def is_terminal() -> bool:
    """Whether standard output is a terminal whose lines can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def printable(text: str) -> str:
    """A text in one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _show(runs: Runs, stop: threading.Event) -> None:
    try:
        (_show_table if is_terminal() else _show_lines)(runs, stop)
    except Exception as error:  # for example a closed pipe; the sweep must go on
        with contextlib.suppress(OSError):
            say(f"the live view stopped ({type(error).__name__}: {error})")


def _show_table(runs: Runs, stop: threading.Event) -> None:
    console, last = Console(file=screen()), False
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while not last:
            last = stop.wait(TICK)
            for status, line in endings(runs):
                if status != "done":
                    console.print(Text(line))
            live.update(Group(table(runs, *console.size), Text(counts(runs))), refresh=True)


def _show_lines(runs: Runs, stop: threading.Event) -> None:
    printed, last = time.monotonic(), False
    while not last:
        last = stop.wait(TICK)
        lines = [line for _, line in endings(runs)]
        if not lines and not last and time.monotonic() - printed >= HEARTBEAT:
            lines = [counts(runs)]
        for line in lines:
            print(line, flush=True)
            printed = time.monotonic()
