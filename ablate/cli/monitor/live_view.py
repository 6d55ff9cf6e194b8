"""The live view of a sweep, read from results on disk: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablate.cli.monitor.run_state import Watched, printable, watched
from ablate.cli.monitor.throughput import makespan, rates
from ablate.format import duration
from ablate.format.streams import screen
from ablate.results.manifest import read_manifest

TICK = 0.5  # seconds between looks
HEARTBEAT = 30.0  # seconds without a plain line after which one says that the sweep is alive
# The columns of the table, each with the width of a terminal from which on it is shown.
COLUMNS = {"run": 0, "step": 20, "train/loss": 36, "val/loss": 48, "tokens/s": 60, "left": 72, "where": 96}


class View:
    """Runs whose files are looked at, and what they show in words."""

    def __init__(self, runs: list[Watched]):
        self.runs = runs

    def look(self) -> list[tuple[str, str]]:
        """Look at all runs; the status of each that has ended since the last look, and a line about it."""
        now = time.monotonic()
        fresh = [run for run in self.runs if run.look(now)]
        ended, lines = self.ended() - len(fresh), list[tuple[str, str]]()
        for i, run in enumerate(sorted(fresh, key=lambda run: str(run.result and run.result.ended)), ended + 1):
            assert run.result
            count = f"[{i:{len(str(len(self.runs)))}}/{len(self.runs)}]"
            seconds = (run.result.seconds or {}).get("total")
            took = f"  {duration(seconds)}" if isinstance(seconds, float | int) else ""
            again = "  resumed" if run.result.resumed else ""
            lines.append((run.result.status, printable(f"{count} {run.name} {run.ending()}{took}{again}")))
        return lines

    def ended(self) -> int:
        """How many of the runs have ended."""
        return sum(run.result is not None for run in self.runs)

    def by_state(self) -> dict[str, list[Watched]]:
        """The runs of each state."""
        now = time.monotonic()
        found: dict[str, list[Watched]] = {}
        for run in self.runs:
            found.setdefault(run.state(now), []).append(run)
        return found

    def counts(self) -> str:
        """How far the sweep is, in one line."""
        number = {state: len(runs) for state, runs in self.by_state().items()}
        parts = [f"{self.ended()}/{len(self.runs)} ended"]
        parts += [f"{number.get(state, 0)} {state}" for state in ("diverged", "failed", "running")]
        parts += [f"{number['interrupted']} interrupted"] if "interrupted" in number else []
        return ", ".join([*parts, f"{number.get('queued', 0)} queued", *filter(None, [self.left()])])

    def left(self) -> str | None:
        """The time until all have ended, by the pace of those that ended and those that run; None: not known.

        Runs that wait take the places of those that run; where none does, only the sum of what they take is known.
        """
        pace, found = self.pace(), self.by_state()
        running, waiting = (
            [run.seconds_left(pace, state) for state in states for run in found.get(state, [])]
            for states in (("running",), ("interrupted", "queued"))
        )
        if None in running + waiting or not running + waiting:
            return None
        known = [[seconds for seconds in some if seconds is not None] for some in (running, waiting)]
        return f"about {duration(makespan(*known))} left" if running else f"{duration(sum(known[1]))} of computing left"

    def pace(self) -> dict[str | None, float]:
        """FLOPs per second of one process by cell, and over all under None."""
        return rates([sample for run in self.runs if (sample := run.sample())])

    def table(self, width: int, height: int) -> Group:
        """The running runs as a table that fits a terminal, above the counts."""
        running = self.by_state().get("running", [])
        return Group(*running_table(running, self.pace(), width, height), Text(self.counts()))


def running_table(running: list[Watched], pace: dict[str | None, float], width: int, height: int) -> list[Table | Text]:
    """Runs as a table that fits a terminal, and a line about those that do not."""
    held = any(run.holder for run in running)
    names = [name for name, least in COLUMNS.items() if width >= least and (held or name != "where")]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:  # only the first column may shrink
        table.add_column(name, justify="left" if name in ("run", "where") else "right", no_wrap=name != "run")
    for run in running[: max(1, height - 6)]:
        cells = dict(zip(COLUMNS, _cells(run, pace), strict=True))
        table.add_row(*(Text(printable(cells[name]), no_wrap=True, overflow="ellipsis") for name in names))
    hidden = len(running) - table.row_count
    return [table, Text(f"and {hidden} more running")] if hidden else [table]


@contextlib.contextmanager
def follow(results: Path, study: str, paths: list[str]) -> Iterator[None]:
    """Show how the runs at `paths` go on, from a thread of its own, until the context ends.

    Enter it before the runs begin.  Raises what `read_manifest` raises; nothing that happens to the view later.
    """
    view, stop = View(watched(results, read_manifest(results, study), paths)), threading.Event()
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
    console = Console(file=screen())
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


def whereabouts(holder: dict[str, Any]) -> str:
    """A lease's host, process and device."""
    host = str(holder.get("host", "?")).partition(".")[0]
    return f"{host}:{holder.get('pid', '?')} {holder.get('device') or ''}".rstrip()


def _cells(run: Watched, rates: dict[str | None, float]) -> tuple[str, ...]:
    pace, holder = run.pace, run.holder
    seconds = run.seconds_left(rates)
    left = "" if seconds is None else duration(seconds)
    speed = f"{pace.tokens_per_second:,.0f}" if pace.tokens_per_second else ""
    return (
        run.name,
        f"{pace.step}/{run.steps}",
        pace.train,
        pace.val,
        speed,
        left,
        whereabouts(holder) if holder else "",
    )
