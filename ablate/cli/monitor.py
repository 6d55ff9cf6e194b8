"""The progress of runs in a terminal: a table of those that run, and lines."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.formatting import duration
from ablate.formatting.streams import say, screen
from ablate.results.manifest import read_manifest
from ablate.results.progress import Runs, runs_of

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
        cells = dict(zip(COLUMNS, map(printable, run.row(rates)), strict=True))
        bar = [ProgressBar(run.steps, run.pace.step, width=20)] * bars
        shown.add_row(*(Text(cells[name]) for name in names), *bar)
    hidden = len(running) - shown.row_count
    return Group(shown, *[Text(f"and {hidden} more running")] * bool(hidden))


def counts(runs: Runs) -> str:
    """The progress of a sweep in one line."""
    number = {state: len(found) for state, found in runs.by_state().items()}
    parts = [f"{runs.ended()}/{len(runs)} ended"]
    parts += [f"{number.get(state, 0)} {state}" for state in ("diverged", "failed", "running")]
    parts += [f"{number['interrupted']} interrupted"] if "interrupted" in number else []
    return ", ".join([*parts, f"{number.get('queued', 0)} queued", *filter(None, [runs.left()])])


def endings(runs: Runs) -> list[tuple[str, str]]:
    """Poll all runs; returns status and a line for each that has ended since the last poll."""
    fresh, lines = runs.poll(), list[tuple[str, str]]()
    for i, run in enumerate(fresh, runs.ended() - len(fresh) + 1):
        assert run.result
        count = f"[{i:{len(str(len(runs)))}}/{len(runs)}]"
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
