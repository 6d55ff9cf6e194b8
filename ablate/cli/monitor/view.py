"""A sweep while it is trained: a table on a terminal, plain lines elsewhere."""

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

from ablate.cli.monitor.state import Runs, runs_of
from ablate.formatting import duration
from ablate.formatting.streams import screen
from ablate.results.manifest import read_manifest

Show = Callable[[Runs, threading.Event], None]  # until the event is set
TICK = 0.5  # seconds between polls
HEARTBEAT = 30.0  # seconds without a plain line after which one reports progress
# The columns of the table, each with the width of a terminal from which on it is shown.
COLUMNS = {"run": 0, "step": 20, "train/loss": 36, "val/loss": 48, "tokens/s": 60, "left": 72, "where": 96}
BAR = 110  # likewise, of the bars


def table(runs: Runs, width: int, height: int, bars: bool = True) -> Group:
    """The runs that are being trained, as many as fit a terminal, and how many more there are."""
    running, rates = runs.by_state().get("running", []), runs.rates()
    held, bars = any(run.holder for run in running), bars and width >= BAR
    names = [name for name, least in COLUMNS.items() if width >= least and (held or name != "where")]
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.show_header = True
    for name in names:
        least = None if name == "run" else len(name)  # which alone may shrink
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
    """How far a sweep is, in one line."""
    number = {state: len(found) for state, found in runs.by_state().items()}
    parts = [f"{runs.ended()}/{len(runs.runs)} ended"]
    parts += [f"{number.get(state, 0)} {state}" for state in ("diverged", "failed", "running")]
    parts += [f"{number['interrupted']} interrupted"] if "interrupted" in number else []
    return ", ".join([*parts, f"{number.get('queued', 0)} queued", *filter(None, [runs.left()])])


def endings(runs: Runs) -> list[tuple[str, str]]:
    """Poll all runs; the status of each that has ended since the last poll, and a line about it."""
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
    """Show from a thread how the runs at `paths` proceed, until the context ends; `show` is by default the live view.

    Enter it before the runs begin.  Raises what `read_manifest` raises; later errors end the view alone.
    """
    runs, stop = runs_of(results, read_manifest(results, study), paths), threading.Event()
    thread = threading.Thread(target=show or _show, args=(runs, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def is_terminal() -> bool:
    """Whether what is printed can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def printable(text: str) -> str:
    """A text in one line without what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _show(runs: Runs, stop: threading.Event) -> None:
    try:
        (_show_table if is_terminal() else _show_lines)(runs, stop)
    except Exception as error:  # a closed pipe, an odd file: the sweep must go on without its view
        with contextlib.suppress(OSError):
            print(f"ablate: the live view stopped ({type(error).__name__}: {error})", file=sys.stderr)


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
