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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ablate.config.errors import first_line
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import duration, visible
from ablate.formatting.streams import echo, say
from ablate.program.order import OUTPUT
from ablate.runs.manifest import read_manifest
from ablate.runs.progress import (
    Round,
    Runs,
    damage,
    find,
    idle,
    polls,
    progress,
    rounds_of,
    runs_of,
    standing,
    together,
)

WIDTH = 160  # width of the table without a terminal
NAMED = 4  # the most failed and damaged runs that are listed
TICK = 0.5  # seconds between polls
HEARTBEAT = 30.0  # seconds without output after which a plain line reports progress
COLUMNS = ("run", "step", "train/loss", "val/loss", "tokens/s", "left", "where")  # of the table

Poll = tuple[Runs, list[str]]  # the present state of runs, and lines to show above them


def main(arguments: list[str] | None = None) -> int:
    """Show a study; returns the exit code."""
    parser = Parser("ablate status", "Where a study stands: what has ended, runs, waits or failed.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; without one the newest")
    parser.add_argument("--watch", action="store_true", help="follow it until all runs have ended")
    options = parser.parse_args(arguments)
    if options.json and options.watch:
        parser.error("--json shows once where a study stands; leave out --watch")

    def act() -> Outcome:
        name = find(options.results_dir, options.study)
        if options.watch:
            live_view((together(rounds), lines_above(rounds)) for rounds in polls(options.results_dir, name))
        rounds = rounds_of(options.results_dir, name)
        show(rounds)
        return Outcome(0, states(rounds))

    return conclude(parser.prog, options.json, act)


def show(rounds: list[Round]) -> None:
    """Print the progress of a study."""
    is_wide = not sys.stdout.isatty()
    text = io.StringIO()
    console = Console(file=text, width=WIDTH if is_wide else None, highlight=False)
    console.print(page(together(rounds), lines_above(rounds)), soft_wrap=is_wide)
    echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def states(rounds: list[Round]) -> list[dict[str, object]]:
    """The state of each run of a study, and its last logged step if it is running, for `--json`."""
    entries: list[dict[str, object]] = []
    for one_round in rounds:
        for run in one_round.runs:
            entry: dict[str, object] = {"study": one_round.manifest.study, "round": one_round.kind}
            entry |= {"path": run.run.path, "name": run.name, "state": run.state()}
            entries.append(entry | {"step": run.step, "steps": run.steps})
    return entries


def lines_above(rounds: list[Round]) -> list[str]:
    """What a study compares, its runs in each state, and how to go on if nothing is running."""
    lines = standing(rounds)
    if idle(rounds):
        lines.append(idle(rounds))
    return lines


def page(runs: Runs, above: list[str], height: int = 1000) -> Group:
    """Lines, the table of running runs, and those that failed or are damaged, for a terminal of this size."""
    failures = []
    for run in runs:
        if run.result and run.result.status == "failed":
            file = run.run.folder / OUTPUT if run.cell.config is None else run.run.result_file
            failures.append(f"failed: {run.name}: {first_line(run.error())} · {file}")
    below = [*first_lines(failures, "failed"), *first_lines(damage(runs), "damaged")]
    parts: list[RenderableType] = [Text(one_line(line)) for line in above]
    if "running" in runs.by_state():
        parts.append(table(runs, height - len(above) - len(below)))
    parts += [Text(one_line(line)) for line in below]
    return Group(*parts)


def first_lines(lines: list[str], kind: str) -> list[str]:
    """The first of some lines, and how many more there are of their kind."""
    if len(lines) <= NAMED:
        return lines
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more {kind}"]


def table(runs: Runs, height: int) -> Group:
    """A table of running runs that fits a terminal, and the number of those left out."""
    running = runs.by_state().get("running", [])
    expected = runs.expected_seconds()
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.show_header = True
    for name in COLUMNS:
        grid.add_column(name, justify="left" if name in ("run", "where") else "right", no_wrap=True)
    for run in running[: max(1, height - 2)]:
        grid.add_row(*(Text(one_line(text), overflow="ellipsis") for text in run.row(expected)))
    hidden = len(running) - grid.row_count
    return Group(grid, Text(f"and {hidden} more running")) if hidden else Group(grid)


def one_line(text: str) -> str:
    """A text in one line, with control characters escaped."""
    return visible(text.replace("\n", " "))


@contextlib.contextmanager
def follow(
    results: Path, study: str, paths: list[str], view: Callable[[Iterable[Poll]], None] | None = None
) -> Iterator[None]:
    """Show the runs at `paths` from a thread until the context ends; `view` defaults to the live view.  Enter it before
    the runs begin.  Raises what `read_manifest` raises; later errors only end the view."""
    runs = runs_of(results, read_manifest(results, study), paths)
    stop = threading.Event()

    def watch_until_stop() -> None:
        try:
            (view or live_view)(polls_until(stop, runs))
        except BrokenPipeError:
            return  # nobody reads it; the sweep goes on
        except Exception as error:
            say(f"the live view stopped ({type(error).__name__}: {error})")

    thread = threading.Thread(target=watch_until_stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def polls_until(stop: threading.Event, runs: Runs) -> Iterator[Poll]:
    """Runs in their present state, and once more when the event is set."""
    is_last = False
    yield runs, [progress(runs)]
    while not is_last:
        is_last = stop.wait(TICK)
        runs.poll()
        yield runs, [progress(runs)]


def live_view(states_of_runs: Iterable[Poll]) -> None:
    """Show runs: on a terminal a page that goes away at the end, else lines."""
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not is_terminal:
        show_lines(states_of_runs)
        return
    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        for runs, above in states_of_runs:
            live.update(page(runs, above, console.height), refresh=True)


def show_lines(states_of_runs: Iterable[Poll]) -> None:
    """Print a line for each run that ends, or on all of them where none has ended for a while."""
    listed: dict[tuple[str, object], str] | None = None
    last_time = time.monotonic()
    for runs, _ in states_of_runs:
        endings = endings_of(runs)
        lines = []
        if listed is not None:  # what has ended before is no news
            number = sum(ending in listed for ending in endings)
            for ending, text in endings.items():
                if ending not in listed:
                    number += 1
                    lines.append(f"[{number:{len(str(len(runs)))}}/{len(runs)}] {text}")
        listed = endings
        if not lines and time.monotonic() - last_time >= HEARTBEAT:
            lines = [progress(runs)]
        for line in lines:
            echo(one_line(line))
            last_time = time.monotonic()


def endings_of(runs: Runs) -> dict[tuple[str, object], str]:
    """A line on each run that has ended, in order of time, by its path and when it ended."""
    ended = [(str(run.result.ended), run) for run in runs if run.result]
    ended.sort(key=lambda pair: pair[0])
    lines: dict[tuple[str, object], str] = {}
    for when, run in ended:
        assert run.result
        seconds = (run.result.seconds or {}).get("total")
        time_taken = "" if seconds is None else f"  {duration(seconds)}"
        lines[run.run.path, when] = f"{run.name} {run.ending()}{time_taken}"
    return lines
