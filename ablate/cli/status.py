"""Progress of a study, read only from the results on disk, whichever host or launcher trains it; the live view.

    ablate status [STUDY] [--watch] [--results-dir DIR]

Exit codes: 0 shown; 2 no such study; 130 Ctrl-C.
"""

import contextlib
import io
import os
import shlex
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

from ablate.config.depth import names_of, variant_of
from ablate.config.errors import first_line
from ablate.config.groups import groups
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import duration
from ablate.formatting.streams import echo, say
from ablate.runs import progress
from ablate.runs.manifest import read_manifest, studies
from ablate.runs.progress import Round, Runs, find, polls, rounds_of, runs_of, together
from ablate.runs.records import Manifest

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
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; without one the newest")
    parser.add_argument("--watch", action="store_true", help="repeat every 2 s until all runs have ended")
    given = parser.parse_args(arguments)
    if given.json and given.watch:
        parser.error("--json shows once where a study stands; leave out --watch")
    show = watch if given.watch else show_one
    return conclude(parser.prog, given.json, lambda: Outcome(0, show(given.results_dir, given.study)))


def show_one(results: Path, name: str | None) -> list[dict[str, object]]:
    """Print the progress of a study; returns its runs by round."""
    rounds = rounds_of(results, find(results, name))
    terminal = sys.stdout.isatty()
    page = io.StringIO()
    console = Console(file=page, width=None if terminal else WIDTH, highlight=False)
    console.print(report(rounds, console.width), soft_wrap=not terminal)
    echo("\n".join(line.rstrip() for line in page.getvalue().splitlines()))
    return list(progress_of_runs(rounds))


def progress_of_runs(rounds: list[Round]) -> Iterator[dict[str, object]]:
    """The state of each run of a study, and its last logged step if it is running, for `--json`."""
    for one in rounds:
        for run in one.runs:
            of = {"study": one.manifest.study, "round": one.kind, "path": run.run.path, "name": run.name}
            yield of | {"state": run.state(), "step": run.pace.step, "steps": run.steps}


def watch(results: Path, name: str | None) -> None:
    """Show the progress of a study until all runs have ended: a live view on a terminal, else lines."""
    if (results.is_dir() or not results.exists()) and not studies(results):  # its command may not have planned it yet
        echo(f"no study in {results} yet; waiting for one (Ctrl-C ends)")
        while not studies(results):
            time.sleep(progress.TICK)
    base = find(results, name)
    if is_terminal():
        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            for rounds in polls(results, base):
                live.update(report(rounds, *console.size), refresh=True)
        return
    shown: dict[str, str] | None = None
    printed, last = -HEARTBEAT, ""
    for rounds in polls(results, base):
        ended = {run.run.path: f"{run.name} {run.ending()}" for run in together(rounds) if run.result}
        lines = [] if shown is None else [line for path, line in ended.items() if shown.get(path) != line]
        shown, line = ended, f"{base}: {_line(rounds)}"
        if lines or (progress.is_over(rounds) and line != last) or time.monotonic() - printed >= HEARTBEAT:
            lines.append(line)
            printed, last = time.monotonic(), line
        for line in lines:
            echo(printable(line))


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """The progress of a study for a terminal of this size."""
    everything, above = together(rounds), progress.standing(rounds)
    failed = [run for run in everything if run.result and run.result.status == "failed"]
    why = [f"failed: {run.name}: {first_line(run.error())} · {run.run.result_file}" for run in failed]
    below = [*_first(why, "failed"), *_first(progress.damage(everything), "damaged")]
    below += filter(None, [progress.idle(rounds), not_compared(rounds[-1].manifest)])
    lines: list[RenderableType] = [Text(printable(line)) for line in above]
    if "running" in everything.by_state():
        lines.append(table(everything, width, height - len(above) - len(below), bars=False))
    return Group(*lines, *(Text(printable(line)) for line in below))


def not_compared(manifest: Manifest) -> str:
    """For each component factor, the variants on disk (built-in and the user's) that the study does not compare."""
    folder = None
    with contextlib.suppress(ValueError):  # no --config-dir, or an unclosed quotation
        words = shlex.split(manifest.command)
        folder = words[words.index("--config-dir", 0, -1) + 1]
    known, parts = groups(folder), []
    for factor in manifest.components:
        found, levels = known.get(factor, {}), map(str, manifest.factors.get(factor, ()))
        compared = {variant_of(name) for level in levels for name in names_of(level, found)}
        missing = [variant for variant in found if variant not in compared]
        parts += [f"{factor}: {', '.join(missing)}"] if missing else []
    return f"not compared: {'; '.join(parts)}" if parts else ""


def _first(lines: list[str], kind: str) -> list[str]:
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more {kind}"] if len(lines) > NAMED else lines


def _line(rounds: list[Round]) -> str:
    before = "" if progress.is_planned(rounds) else f"{rounds[-1].kind}, "
    return before + progress.progress(together(rounds))


def table(runs: Runs, width: int, height: int, bars: bool = True) -> Group:
    """A table of running runs that fits a terminal, and the number of those left out."""
    running, expected = runs.by_state().get("running", []), runs.expected_seconds()
    names, bars = [name for name, least in COLUMNS.items() if width >= least], bars and width >= BAR
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.show_header = True
    for name in names:
        least = None if name == "run" else len(name)  # only this column may shrink
        side: Literal["left", "right"] = "left" if name in ("run", "where") else "right"
        shown.add_column(name, justify=side, no_wrap=True, overflow="ellipsis", min_width=least)
    for run in running[: max(1, height - 6)]:
        cells = dict(zip(COLUMNS, map(printable, run.row(expected)), strict=True))
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
    except BrokenPipeError:
        return  # nobody reads it; the sweep goes on
    except Exception as error:
        say(f"the live view stopped ({type(error).__name__}: {error})")


def _show_table(runs: Runs, stop: threading.Event) -> None:
    console = Console()
    last = False
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
            echo(line)
            printed = time.monotonic()
