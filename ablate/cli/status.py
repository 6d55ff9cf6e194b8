"""Progress of a study, read only from the results on disk, whichever host or launcher trains it.

    ablate status [STUDY] [--watch] [--all] [--results-dir DIR]

Exit codes: 0 shown; 2 no such study; 130 Ctrl-C.
"""

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ablate.cli.monitor import HEARTBEAT, is_terminal, printable, table
from ablate.config.errors import Refused, first_line
from ablate.config.groups import groups
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import screen
from ablate.results import progress
from ablate.results.manifest import choose_study, readable, studies, study_folder
from ablate.results.progress import Round, find, polls, rounds_of, together
from ablate.results.records import Manifest
from ablate.results.run import stamp

WIDTH = 160  # width of the table without a terminal
NAMED = 4  # the most failed and damaged runs that are listed


class RunProgress(NamedTuple):
    """The progress of a run: its state as in `ablate status`, and its last logged step if it is running."""

    study: str
    round: str
    path: str
    name: str
    state: str
    step: int
    steps: int


def main(arguments: list[str] | None = None) -> int:
    """Show one study, or a line for each; returns the exit code."""
    parser = Parser("ablate status", "Where a study stands: what has ended, runs, waits or failed.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; without one the newest")
    parser.add_argument("--watch", action="store_true", help="repeat every 2 s until all runs have ended")
    parser.add_argument("--all", action="store_true", help="one line for each study")
    given = parser.parse_args(arguments)
    if given.all and (given.study or given.watch):
        parser.error(f"--all shows every study; leave out {given.study or '--watch'}")
    if given.json and given.watch:
        parser.error("--json shows once where a study stands; leave out --watch")
    show = show_all if given.all else watch if given.watch else show_one
    return conclude(parser.prog, given.json, lambda: Outcome(0, show(given.results_dir, given.study)))


def show_one(results: Path, name: str | None) -> list[RunProgress]:
    """Print the progress of a study; returns its runs by round."""
    rounds = rounds_of(results, find(results, name))
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(report(rounds, console.width), soft_wrap=not terminal)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()), file=screen())
    return progress_of_runs(rounds)


def show_all(results: Path, _: str | None) -> list[RunProgress]:
    """Print a line for each study, the newest last; returns the runs of all readable ones."""
    lines = []
    for base, rounds in every(results):
        print(f"{base}: {rounds if isinstance(rounds, Refused) else _line(rounds)}")
        lines += [] if isinstance(rounds, Refused) else progress_of_runs(rounds)
    return lines


def every(results: Path) -> Iterator[tuple[str, list[Round] | Refused]]:
    """Each study on disk with its rounds, or why they cannot be read; the newest last.  Raises Refused."""
    choose_study(results, None)
    newest = sorted(studies(results), key=lambda name: stamp(study_folder(results, name) / "manifest.json") or (0, 0))
    manifests = {name: readable(results, name) for name in newest}
    bases = [progress.base_of(manifest) if manifest else name for name, manifest in manifests.items()]
    for base in reversed(dict.fromkeys(reversed(bases))):
        try:
            yield base, rounds_of(results, base)
        except Refused as error:
            yield base, error


def progress_of_runs(rounds: list[Round]) -> list[RunProgress]:
    """The progress of each run of a study."""
    return [
        RunProgress(one.manifest.study, one.kind, run.run.path, run.name, run.state(), run.pace.step, run.steps)
        for one in rounds
        for run in one.runs.runs
    ]


def watch(results: Path, name: str | None) -> None:
    """Show the progress of a study until all runs have ended: a live view on a terminal, else lines."""
    if (results.is_dir() or not results.exists()) and not studies(results):  # its command may not have planned it yet
        print(f"no study in {results} yet; waiting for one (Ctrl-C ends)", flush=True)
        while not studies(results):
            time.sleep(progress.TICK)
    base = find(results, name)
    if not is_terminal():
        _watch_lines(results, base)
        return
    console = Console(file=screen(), highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for rounds in polls(results, base):
            live.update(report(rounds, *console.size), refresh=True)


def _watch_lines(results: Path, base: str) -> None:
    shown: dict[str, str] | None = None
    printed, last = -HEARTBEAT, ""
    for rounds in polls(results, base):
        ended = {run.run.path: f"{run.name} {run.ending()}" for run in together(rounds).runs if run.result}
        lines = [] if shown is None else [line for path, line in ended.items() if shown.get(path) != line]
        shown, line = ended, f"{base}: {_line(rounds)}"
        if lines or (progress.is_over(rounds) and line != last) or time.monotonic() - printed >= HEARTBEAT:
            lines.append(line)
            printed, last = time.monotonic(), line
        for line in lines:
            print(printable(line), flush=True)


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """The progress of a study for a terminal of this size."""
    everything, above = together(rounds), progress.standing(rounds)
    failed = [run for run in everything.runs if run.result and run.result.status == "failed"]
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
        missing = [variant for variant in known.get(factor, {}) if variant not in manifest.factors.get(factor, [])]
        parts += [f"{factor}: {', '.join(missing)}"] if missing else []
    return f"not compared: {'; '.join(parts)}" if parts else ""


def _first(lines: list[str], kind: str) -> list[str]:
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more {kind}"] if len(lines) > NAMED else lines


def _line(rounds: list[Round]) -> str:
    before = "" if progress.is_planned(rounds) else f"{rounds[-1].kind}, "
    return before + progress.progress(together(rounds))
