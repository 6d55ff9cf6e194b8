"""Progress of a study, read only from the results on disk, whichever host or launcher trains it; the live view.

    ablate status [STUDY] [--watch] [--results-dir DIR]

Exit codes: 0 shown; 2 no such study; 130 Ctrl-C.
"""

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.config.errors import first_line
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import duration
from ablate.formatting.streams import echo, say
from ablate.runs import progress
from ablate.runs.manifest import read_manifest, readable, studies
from ablate.runs.progress import Round, Runs, base_of, find, polls, rounds_of, runs_of, together

WIDTH = 160  # width of the table without a terminal
NAMED = 4  # the most failed and damaged runs that are listed
Show = Callable[[Runs, threading.Event], None]  # shows runs until the event is set
TICK = 0.5  # seconds between polls
HEARTBEAT = 30.0  # seconds without output after which a plain line reports progress
# The columns of the table, each with the least terminal width at which it is shown.
COLUMNS = {"run": 0, "step": 20, "train/loss": 36, "val/loss": 48, "tokens/s": 60, "left": 72, "where": 96}
BAR = 110  # the same for progress bars


def main(arguments: list[str] | None = None) -> int:
    """Show a study; returns the exit code."""
    parser = Parser("ablate status", "Where a study stands: what has ended, runs, waits or failed.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name, or how it begins; without one the newest")
    parser.add_argument("--watch", action="store_true", help="repeat every 2 s until all runs have ended")
    options = parser.parse_args(arguments)
    if options.json and options.watch:
        parser.error("--json shows once where a study stands; leave out --watch")
    show = watch if options.watch else show_one
    return conclude(parser.prog, options.json, lambda: Outcome(0, show(options.results_dir, options.study)))


def show_one(results: Path, name: str | None) -> list[dict[str, object]]:
    """Print the progress of a study; returns its runs by round."""
    rounds = rounds_of(results, study_called(results, name))
    is_wide = not sys.stdout.isatty()
    page = io.StringIO()
    console = Console(file=page, width=WIDTH if is_wide else None, highlight=False)
    console.print(report(rounds, console.width), soft_wrap=is_wide)
    echo("\n".join(line.rstrip() for line in page.getvalue().splitlines()))
    return states(rounds)


def study_called(results: Path, name: str | None) -> str:
    """The study of this name, or the only one whose name begins so; without a name the newest.  Raises Refused."""
    if name and name not in studies(results):
        manifests = [readable(results, study) for study in studies(results)]
        bases = {base_of(manifest) for manifest in manifests if manifest}
        matches = [base for base in bases if base.startswith(name)]
        if len(matches) == 1:
            return matches[0]
    return find(results, name)


def states(rounds: list[Round]) -> list[dict[str, object]]:
    """The state of each run of a study, and its last logged step if it is running, for `--json`."""
    entries: list[dict[str, object]] = []
    for one_round in rounds:
        for run in one_round.runs:
            entry: dict[str, object] = {"study": one_round.manifest.study, "round": one_round.kind}
            entry |= {"path": run.run.path, "name": run.name, "state": run.state()}
            entries.append(entry | {"step": run.pace.step, "steps": run.steps})
    return entries


def watch(results: Path, name: str | None) -> None:
    """Show the progress of a study until all runs have ended: a live view on a terminal, else lines."""
    if (results.is_dir() or not results.exists()) and not studies(results):  # its command may not have planned it yet
        echo(f"no study in {results} yet; waiting for one (Ctrl-C ends)")
        while not studies(results):
            time.sleep(progress.TICK)
    base = study_called(results, name)
    if not is_terminal():
        watch_as_lines(results, base)
        return
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for rounds in polls(results, base):
            live.update(report(rounds, *console.size), refresh=True)


def watch_as_lines(results: Path, base: str) -> None:
    """Print a line for each run that ends, and one on the study now and then, until all have ended."""
    shown: dict[str, str] | None = None
    last_line = ""
    last_time = -HEARTBEAT
    for rounds in polls(results, base):
        ended = {run.run.path: f"{run.name} {run.ending()}" for run in together(rounds) if run.result}
        lines = []
        if shown is not None:  # what ended before is not listed
            lines = [line for path, line in ended.items() if shown.get(path) != line]
        shown = ended
        line = f"{base}: {round_line(rounds)}"
        is_news = bool(lines) or (progress.is_over(rounds) and line != last_line)
        if is_news or time.monotonic() - last_time >= HEARTBEAT:
            lines.append(line)
            last_line = line
            last_time = time.monotonic()
        for text in lines:
            echo(printable(text))


def round_line(rounds: list[Round]) -> str:
    """The progress of a study in one line."""
    text = progress.progress(together(rounds))
    return text if progress.is_planned(rounds) else f"{rounds[-1].kind}, {text}"


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """The progress of a study for a terminal of this size."""
    runs = together(rounds)
    failures = []
    for run in runs:
        if run.result and run.result.status == "failed":
            failures.append(f"failed: {run.name}: {first_line(run.error())} · {run.run.result_file}")
    above = progress.standing(rounds)
    below = [*first_lines(failures, "failed"), *first_lines(progress.damage(runs), "damaged")]
    if progress.idle(rounds):
        below.append(progress.idle(rounds))
    parts: list[RenderableType] = [Text(printable(line)) for line in above]
    if "running" in runs.by_state():
        parts.append(table(runs, width, height - len(above) - len(below), bars=False))
    parts += [Text(printable(line)) for line in below]
    return Group(*parts)


def first_lines(lines: list[str], kind: str) -> list[str]:
    """The first of some lines, and how many more there are of their kind."""
    if len(lines) <= NAMED:
        return lines
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more {kind}"]


def table(runs: Runs, width: int, height: int, bars: bool = True) -> Group:
    """A table of running runs that fits a terminal, and the number of those left out."""
    running = runs.by_state().get("running", [])
    expected = runs.expected_seconds()
    names = [name for name, least_width in COLUMNS.items() if width >= least_width]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.show_header = True
    for name in names:
        least = None if name == "run" else len(name)  # only this column may shrink
        side: Literal["left", "right"] = "left" if name in ("run", "where") else "right"
        grid.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", min_width=least)
    for run in running[: max(1, height - 6)]:
        texts = dict(zip(COLUMNS, map(printable, run.row(expected)), strict=True))
        cells: list[RenderableType] = [Text(texts[name]) for name in names]
        if bars and width >= BAR:
            cells.append(ProgressBar(run.steps, run.pace.step, width=20))
        grid.add_row(*cells)
    hidden = len(running) - grid.row_count
    return Group(grid, Text(f"and {hidden} more running")) if hidden else Group(grid)


def counts(runs: Runs) -> str:
    """The progress of a sweep in one line."""
    by_state = runs.by_state()
    parts = [f"{runs.ended()}/{len(runs)} ended"]
    for state in ("diverged", "failed", "running", "interrupted", "queued"):
        count = len(by_state.get(state, []))
        if count or state != "interrupted":
            parts.append(f"{count} {state}")
    if runs.left():
        parts.append(runs.left())
    return ", ".join(parts)


def endings(runs: Runs) -> list[tuple[str, str]]:
    """Poll all runs; returns status and a line for each that has ended since the last poll."""
    ended = runs.poll()
    lines: list[tuple[str, str]] = []
    for number, run in enumerate(ended, runs.ended() - len(ended) + 1):
        assert run.result
        digits = len(str(len(runs)))
        line = f"[{number:{digits}}/{len(runs)}] {run.name} {run.ending()}"
        seconds = (run.result.seconds or {}).get("total")
        if seconds is not None:
            line += f"  {duration(seconds)}"
        if run.result.resumed:
            line += "  resumed"
        lines.append((run.result.status, printable(line)))
    return lines


@contextlib.contextmanager
def follow(results: Path, study: str, paths: list[str], show: Show | None = None) -> Iterator[None]:
    """Show the progress of the runs at `paths` from a thread until the context ends; `show` defaults to the live view.
    Enter it before the runs begin.  Raises what `read_manifest` raises; later errors only end the view."""
    runs = runs_of(results, read_manifest(results, study), paths)
    stop = threading.Event()
    thread = threading.Thread(target=show or live_view, args=(runs, stop), daemon=True)
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


def live_view(runs: Runs, stop: threading.Event) -> None:
    """Show runs until the event is set: as a table on a terminal, else as lines."""
    try:
        if is_terminal():
            show_table(runs, stop)
        else:
            show_lines(runs, stop)
    except BrokenPipeError:
        return  # nobody reads it; the sweep goes on
    except Exception as error:
        say(f"the live view stopped ({type(error).__name__}: {error})")


def show_table(runs: Runs, stop: threading.Event) -> None:
    """A table of what is running, above which runs that did not succeed are listed."""
    console = Console()
    is_last = False
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        while not is_last:
            is_last = stop.wait(TICK)
            for status, line in endings(runs):
                if status != "done":
                    console.print(Text(line))
            live.update(Group(table(runs, *console.size), Text(counts(runs))), refresh=True)


def show_lines(runs: Runs, stop: threading.Event) -> None:
    """A line for each run that ends, or on all of them where none has ended for a while."""
    last_time = time.monotonic()
    is_last = False
    while not is_last:
        is_last = stop.wait(TICK)
        lines = [line for _, line in endings(runs)]
        if not lines and not is_last and time.monotonic() - last_time >= HEARTBEAT:
            lines = [counts(runs)]
        for line in lines:
            echo(line)
            last_time = time.monotonic()
