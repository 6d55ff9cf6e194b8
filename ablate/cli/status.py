"""Where a study stands, read from the results on disk alone, whatever trains it and wherever.

    ablate status [STUDY] [--watch] [--all] [--results-dir DIR]

Exit codes: 0 shown; 2 there is no such study; 130 Ctrl-C.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.live import Live

from ablate.cli.monitor.rounds import (
    Round,
    base_of,
    over,
    planned,
    progress,
    readable,
    report,
    rounds_of,
    together,
    unsettled,
)
from ablate.cli.monitor.view import HEARTBEAT, is_terminal, printable
from ablate.config.errors import Refused
from ablate.config.json_output import Outcome
from ablate.config.subcommands import Parser, conclude
from ablate.formatting.streams import screen
from ablate.results.choose import choose_study, manifest_of, studies
from ablate.results.manifest import study_folder
from ablate.results.run import stamp

TICK = 2.0  # seconds between polls
PLANNING = 30.0  # seconds that a command with seeds=auto may take to decide whether it goes on
WIDTH = 160  # of the table where there is no terminal


class Standing(NamedTuple):
    """Where a run stands: its state as `ablate status` counts them, and its last logged step where it is running."""

    study: str
    round: str
    path: str
    name: str
    state: str
    step: int
    steps: int


def main(arguments: list[str] | None = None) -> int:
    """Show one study, or a line about each; the exit code."""
    parser = Parser("ablate status", "Where a study stands: what has ended, runs, waits or failed.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; without one the newest")
    parser.add_argument("--watch", action="store_true", help="look again every 2 s until all runs have ended")
    parser.add_argument("--all", action="store_true", help="one line for each study")
    given = parser.parse_args(arguments)
    if given.all and (given.study or given.watch):
        parser.error(f"--all shows every study; leave out {given.study or '--watch'}")
    if given.json and given.watch:
        parser.error("--json tells once where a study stands; leave out --watch")
    show = show_all if given.all else watch if given.watch else show_one
    return conclude(parser.prog, given.json, lambda: Outcome(0, show(given.results_dir, given.study)))


def find(results: Path, name: str | None) -> str:
    """The study that is meant: the newest one without a name; the one that a round belongs to.  Raises Refused."""
    bases: set[str] = set()
    if name is not None and name not in studies(results):  # perhaps only its tuning is on disk
        bases = {base_of(manifest) for one in studies(results) if (manifest := readable(results, one))}
    chosen = choose_study(results, name, bases)
    return chosen if chosen in bases else base_of(manifest_of(results, chosen))


def show_one(results: Path, name: str | None) -> list[Standing]:
    """Print where a study stands; its runs, round by round."""
    rounds = rounds_of(results, find(results, name))
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(report(rounds, console.width), soft_wrap=not terminal)
    print("\n".join(line.rstrip() for line in capture.get().splitlines()), file=screen())
    return standings(rounds)


def show_all(results: Path, _: str | None) -> list[Standing]:
    """Print a line for each study, the newest last; the runs of all that can be read."""
    lines = []
    choose_study(results, None)
    newest = sorted(studies(results), key=lambda name: stamp(study_folder(results, name) / "manifest.json") or (0, 0))
    manifests = {name: readable(results, name) for name in newest}
    bases = [base_of(manifest) if manifest else name for name, manifest in manifests.items()]
    for base in reversed(dict.fromkeys(reversed(bases))):
        try:
            rounds = rounds_of(results, base)
            print(f"{base}: {_line(rounds)}")
            lines += standings(rounds)
        except Refused as error:
            print(f"{base}: {error}")
    return lines


def standings(rounds: list[Round]) -> list[Standing]:
    """Where each run of a study stands."""
    now = time.monotonic()
    return [
        Standing(one.manifest.study, one.kind, run.run.path, run.name, run.state(now), run.pace.step, run.steps)
        for one in rounds
        for run in one.runs.runs
    ]


def watch(results: Path, name: str | None) -> None:
    """Show where a study stands until all of its runs have ended: a picture on a terminal, lines elsewhere."""
    wait_for_a_study(results)
    base = find(results, name)
    if not is_terminal():
        _watch_lines(results, base)
        return
    console = Console(file=screen(), highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for rounds in polls(results, base):
            live.update(report(rounds, *console.size), refresh=True)


def wait_for_a_study(results: Path) -> None:
    """Wait until there is any study: the command that makes the first one may not have planned it yet."""
    if (results.is_dir() or not results.exists()) and not studies(results):
        print(f"no study in {results} yet; waiting for one (Ctrl-C ends)", flush=True)
        while not studies(results):
            time.sleep(TICK)


def polls(results: Path, base: str) -> Iterator[list[Round]]:
    """The rounds of a study, looked at every TICK seconds until there is nothing left to wait for."""
    seen, rounds, since = None, rounds_of(results, base), math.inf
    while True:
        found = {file: stamp(file) for file in sorted((results / "studies").glob("*/manifest.json"))}
        if found != seen:
            seen, rounds = found, rounds_of(results, base)
        else:
            for one in rounds:
                one.runs.poll()
        yield rounds
        since = min(since, time.monotonic()) if over(rounds) else math.inf
        if time.monotonic() - since >= (PLANNING if unsettled(rounds) else 0):
            return
        time.sleep(TICK)


def _watch_lines(results: Path, base: str) -> None:
    shown: dict[str, str] | None = None
    printed, last = -HEARTBEAT, ""
    for rounds in polls(results, base):
        ended = {run.run.path: f"{run.name} {run.ending()}" for run in together(rounds).runs if run.result}
        lines = [] if shown is None else [line for path, line in ended.items() if shown.get(path) != line]
        shown, line = ended, f"{base}: {_line(rounds)}"
        if lines or (over(rounds) and line != last) or time.monotonic() - printed >= HEARTBEAT:
            lines.append(line)
            printed, last = time.monotonic(), line
        for line in lines:
            print(printable(line), flush=True)


def _line(rounds: list[Round]) -> str:
    before = "" if planned(rounds) else f"{rounds[-1].kind}, "
    return before + progress(together(rounds))
