"""The live view of a sweep, read from results on disk: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablate.results import Corrupt, Run, parse_lines, read_manifest, stamp

TICK = 0.5  # seconds between looks
HEARTBEAT = 30.0  # seconds without a plain line after which one says that the sweep is alive
STALE = 60.0  # seconds without a logged step after which a run no longer counts as running
TAIL = 16384  # bytes read from the end of a metrics file
# The columns of the table, each with the width of a terminal from which on it is shown.
COLUMNS = {"run": 0, "step": 20, "train/loss": 36, "val/loss": 48, "tokens/s": 60, "left": 72}


class Pace(NamedTuple):
    """Where a running run is, its last losses in words, and its speed over the last rows (None: not known yet)."""

    step: int = 0
    train: str = ""
    val: str = ""
    tokens_per_second: float | None = None
    steps_per_second: float | None = None


class Watched:
    """A run of the sweep and what was last seen of it on disk."""

    def __init__(self, results: Path, cell: dict[str, Any], planned: dict[str, Any], metric: str):
        self.run, self.metric = Run(results, planned["path"]), metric
        self.name = f"{cell['label']} s{planned['seed']}"
        self.steps = max(1, int(cell["config"]["train"]["steps"]))
        self.work = self.steps * float(cell.get("flops_per_token") or 1)
        self.seen_result, self.seen_metrics = stamp(self.run.result_file), stamp(self.run.metrics_file)
        self.result, self.grew, self.pace = self._read_result(), -STALE, Pace()
        if self.result is None:
            self.pace = read_pace(self.run.metrics_file)  # interrupted: it goes on from about here
        elif self.result["status"] == "failed":
            self.result = None  # in an earlier sweep; this one tries it again

    def look(self, now: float) -> bool:
        """Look at the files again; True when the run has ended since the last look."""
        if self.result:
            return False
        found = stamp(self.run.result_file)
        if found != self.seen_result:
            self.seen_result, self.result = found, self._read_result()
        found = stamp(self.run.metrics_file)
        if found != self.seen_metrics:
            self.seen_metrics, self.grew = found, now
            self.pace = read_pace(self.run.metrics_file)
        return self.result is not None

    def running(self, now: float) -> bool:
        """Whether steps were logged a short while ago, by our clock: a file server's may differ."""
        return not self.result and now - self.grew < STALE

    def share(self) -> float:
        """How much of the run is behind us, from 0 to 1."""
        return 1.0 if self.result else min(1.0, self.pace.step / self.steps)

    def ending(self) -> str:
        """How the run ended, in a few words."""
        assert self.result
        status, final, error = self.result["status"], self.result.get("final") or {}, self.result.get("error") or {}
        if status == "failed":
            return f"failed: {error.get('type', 'error')}: {error.get('message', '')}"
        if status == "diverged":
            return f"diverged at step {self.result.get('steps', '?')}"
        value = final.get(self.metric)
        return f"done  {self.metric} {value:.3f}" if isinstance(value, float | int) else "done"

    def _read_result(self) -> dict[str, Any] | None:
        with contextlib.suppress(Corrupt, OSError):
            return self.run.result()
        return None


class View:
    """The runs of a sweep: looks at their files and puts what it sees into words."""

    def __init__(self, results: Path, study: str, paths: list[str]):
        manifest, wanted = read_manifest(results, study), set(paths)
        cells = {cell["id"]: cell for cell in manifest["cells"]}
        metric = {
            key: manifest.get("endpoint") or f"test/{next(iter(task['metrics']), 'loss')}"
            for key, task in manifest.get("tasks", {}).items()
        }
        self.runs = [
            Watched(results, cells[run["cell"]], run, metric.get(cells[run["cell"]].get("task"), "test/loss"))
            for run in manifest["runs"]
            if run["path"] in wanted
        ]
        self.ended = sum(run.result is not None for run in self.runs)
        self.begun, self.work_before = time.monotonic(), self._work()

    def look(self) -> list[tuple[str, str]]:
        """Look at all runs; the status of each that has ended since the last look, and a line about it."""
        now = time.monotonic()
        fresh = [run for run in self.runs if run.look(now)]
        lines = []
        for run in sorted(fresh, key=lambda run: str((run.result or {}).get("ended"))):
            assert run.result
            self.ended += 1
            count = f"[{self.ended:{len(str(len(self.runs)))}}/{len(self.runs)}]"
            seconds = (run.result.get("seconds") or {}).get("total")
            took = f"  {duration(seconds)}" if isinstance(seconds, float | int) else ""
            again = "  resumed" if run.result.get("resumed") else ""
            lines.append((run.result["status"], _printable(f"{count} {run.name} {run.ending()}{took}{again}")))
        return lines

    def counts(self) -> str:
        """How far the sweep is, in one line."""
        statuses = [run.result["status"] for run in self.runs if run.result]
        running = sum(run.running(time.monotonic()) for run in self.runs)
        parts = [f"{self.ended}/{len(self.runs)} ended"]
        parts += [f"{statuses.count(status)} {status}" for status in ("diverged", "failed")]
        parts += [f"{running} running", f"{len(self.runs) - self.ended - running} queued"]
        left = self._seconds_left()
        return ", ".join(parts) + (f", about {duration(left)} left" if left else "")

    def table(self, width: int, height: int) -> Group:
        """The running runs as a table that fits a terminal, above the counts."""
        names = [name for name, least in COLUMNS.items() if width >= least]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in names:  # only the first column may shrink
            table.add_column(name, justify="left" if name == "run" else "right", no_wrap=name != "run")
        running = [run for run in self.runs if run.running(time.monotonic())]
        for run in running[: max(1, height - 6)]:
            cells = dict(zip(COLUMNS, _cells(run), strict=True))
            table.add_row(*(Text(_printable(cells[name]), no_wrap=True, overflow="ellipsis") for name in names))
        hidden = len(running) - table.row_count
        more = [Text(f"and {hidden} more running")] if hidden else []
        return Group(table, *more, Text(self.counts()))

    def _work(self) -> float:
        return sum(run.work * run.share() for run in self.runs)

    def _seconds_left(self) -> float | None:
        done, seconds = self._work(), time.monotonic() - self.begun
        if done <= self.work_before or seconds < 2 or self.ended == len(self.runs):
            return None
        return (sum(run.work for run in self.runs) - done) * seconds / (done - self.work_before)


@contextlib.contextmanager
def follow(results: Path, study: str, paths: list[str]) -> Iterator[None]:
    """Show how the runs at `paths` go on, from a thread of its own, until the context ends.

    Enter it before the runs begin.  Raises what `read_manifest` raises; nothing that happens to the view later.
    """
    view, stop = View(results, study, paths), threading.Event()
    terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    show = _show_table if terminal else _show_lines
    thread = threading.Thread(target=_show, args=(show, view, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def _show(show: Callable[[View, threading.Event], None], view: View, stop: threading.Event) -> None:
    try:
        show(view, stop)
    except Exception as error:  # a closed pipe, an odd file: the sweep must go on without its view
        with contextlib.suppress(OSError):
            print(f"ablate: the live view stopped ({type(error).__name__}: {error})", file=sys.stderr)


def _show_table(view: View, stop: threading.Event) -> None:
    console = Console()
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while True:
            last = stop.wait(TICK)
            for status, line in view.look():
                if status != "done":
                    console.print(Text(line))
            live.update(view.table(*console.size), refresh=True)
            if last:
                return


def _show_lines(view: View, stop: threading.Event) -> None:
    said = time.monotonic()
    while True:
        last = stop.wait(TICK)
        lines = [line for _, line in view.look()]
        if not lines and not last and time.monotonic() - said >= HEARTBEAT:
            lines = [view.counts()]
        for line in lines:
            print(line, flush=True)
            said = time.monotonic()
        if last:
            return


def read_pace(file: Path) -> Pace:
    """The pace of a run from the end of its metrics; passes over torn lines."""
    rows = [row for row in _tail(file) if isinstance(row.get("step"), int)]
    if not rows:
        return Pace()
    train, val = (_last(rows, name) for name in ("train/loss", "val/loss"))
    return Pace(rows[-1]["step"], train, val, _slope(rows, "tokens"), _slope(rows, "step"))


def duration(seconds: float) -> str:
    """Seconds as people write them: 8.1 s, 1 min 48 s, 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _cells(run: Watched) -> tuple[str, ...]:
    pace = run.pace
    left = duration((run.steps - pace.step) / pace.steps_per_second) if pace.steps_per_second else ""
    speed = f"{pace.tokens_per_second:,.0f}" if pace.tokens_per_second else ""
    return run.name, f"{pace.step}/{run.steps}", pace.train, pace.val, speed, left


def _last(rows: list[dict[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    return "" if not values else f"{values[-1]:.3f}" if isinstance(values[-1], float | int) else "not finite"


def _slope(rows: list[dict[str, Any]], name: str) -> float | None:
    with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
        slope = (rows[-1][name] - rows[0][name]) / (rows[-1]["seconds"] - rows[0]["seconds"])
        return float(slope) if slope > 0 else None
    return None


def _tail(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with open(file, "rb") as handle:
            cut = handle.seek(0, os.SEEK_END) > TAIL
            handle.seek(-TAIL if cut else 0, os.SEEK_END if cut else os.SEEK_SET)
            lines = handle.read(TAIL).split(b"\n")[cut:]
    except OSError:
        return
    yield from parse_lines(lines)[0]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
