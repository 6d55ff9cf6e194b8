"""Progress of a study, read only from the results on disk, whichever host or launcher trains it.

    ablate status [STUDY] [--watch] [--all] [--results-dir DIR]

Exit codes: 0 shown; 2 no such study; 130 Ctrl-C.
"""

import contextlib
import math
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ablate.cli.monitor import HEARTBEAT, STATES, Runs, is_terminal, printable, runs_of, table
from ablate.config.errors import Refused, first_line
from ablate.config.groups import groups
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting import counted
from ablate.formatting.streams import screen
from ablate.results.manifest import choose_study, manifest_of, readable, refusing, studies, study_folder
from ablate.results.records import Manifest
from ablate.results.run import stamp

TICK = 2.0  # seconds between polls
PLANNING = 30.0  # seconds to wait for a command with seeds=auto to plan further runs
WIDTH = 160  # width of the table without a terminal
NAMED = 4  # the most failed and damaged runs that are listed
# Rounds other than the study itself, by the key of their manifest that names the study.
ROUNDS = {"tunes": "tuning", "placebo_of": "placebos", "exchange_of": "exchange runs"}


class RunProgress(NamedTuple):
    """The progress of a run: its state as in `ablate status`, and its last logged step if it is running."""

    study: str
    round: str
    path: str
    name: str
    state: str
    step: int
    steps: int


class Round(NamedTuple):
    """A study on disk and its role for the requested one: tuning, placebos, exchange runs, or the study itself."""

    kind: str
    manifest: Manifest
    runs: Runs


def base_of(manifest: Manifest) -> str:
    """The study that a manifest is a round of, for example the one that it tunes; else itself."""
    return next(filter(None, (getattr(manifest, key) for key in ROUNDS)), manifest.study)


def rounds_of(results: Path, base: str) -> list[Round]:
    """The rounds of a study on disk, in order of training.  Raises Refused."""
    found = []
    for name in studies(results):
        if not name.startswith(base):  # a round's name begins with its study's
            continue
        manifest = manifest_of(results, name) if name == base else readable(results, name)
        if manifest and base_of(manifest) == base:
            kind = next((words for key, words in ROUNDS.items() if getattr(manifest, key)), "study")
            with refusing(study_folder(results, name)):
                found.append(Round(kind, manifest, runs_of(results, manifest)))
    return sorted(found, key=lambda one: [*ROUNDS.values(), "study"].index(one.kind))


def together(rounds: list[Round]) -> Runs:
    """The runs of all rounds."""
    return Runs([run for one in rounds for run in one.runs.runs])


def is_planned(rounds: list[Round]) -> bool:
    """Whether the study itself is on disk, not only earlier rounds."""
    return bool(rounds) and rounds[-1].kind == "study"


def is_over(rounds: list[Round]) -> bool:
    """Whether the study is planned and all runs of all rounds have ended."""
    return is_planned(rounds) and all(run.result for one in rounds for run in one.runs.runs)


def unsettled(rounds: list[Round]) -> bool:
    """Whether its command may add runs after all have ended: further looks of seeds=auto, or exchange runs."""
    manifest = rounds[-1].manifest
    more = len(manifest.seeds) < max(manifest.sequential.looks if manifest.sequential else (), default=0)
    there = [one.manifest.seeds for one in rounds if one.manifest.exchange_of == manifest.study]
    requested = manifest.cells[0].config.step_equivalents  # by the last command, not an earlier one
    return more or (bool(requested and manifest.exchange) and manifest.seeds not in there)


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


def find(results: Path, name: str | None) -> str:
    """The study of this name, or of the round of this name; without a name the newest.  Raises Refused."""
    bases: set[str] = set()
    if name is not None and name not in studies(results):  # perhaps only its tuning is on disk
        bases = {base_of(manifest) for one in studies(results) if (manifest := readable(results, one))}
    chosen = choose_study(results, name, bases)
    return chosen if chosen in bases else base_of(manifest_of(results, chosen))


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
    bases = [base_of(manifest) if manifest else name for name, manifest in manifests.items()]
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
            time.sleep(TICK)
    base = find(results, name)
    if not is_terminal():
        _watch_lines(results, base)
        return
    console = Console(file=screen(), highlight=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for rounds in polls(results, base):
            live.update(report(rounds, *console.size), refresh=True)


def polls(results: Path, base: str) -> Iterator[list[Round]]:
    """The rounds of a study, polled every TICK seconds until it is over."""
    seen, rounds, since = None, rounds_of(results, base), math.inf
    while True:
        found = {file: stamp(file) for file in sorted((results / "studies").glob("*/manifest.json"))}
        if found != seen:
            seen, rounds = found, rounds_of(results, base)
        else:
            for one in rounds:
                one.runs.poll()
        yield rounds
        since = min(since, time.monotonic()) if is_over(rounds) else math.inf
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
        if lines or (is_over(rounds) and line != last) or time.monotonic() - printed >= HEARTBEAT:
            lines.append(line)
            printed, last = time.monotonic(), line
        for line in lines:
            print(printable(line), flush=True)


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """The progress of a study for a terminal of this size."""
    everything, manifest = together(rounds), rounds[-1].manifest
    factors = " ".join(f"{key}={','.join(map(str, levels))}" for key, levels in manifest.factors.items())
    size = f"{counted(len(manifest.cells), 'cell')} × {counted(len(manifest.seeds), 'seed')}"
    looks = manifest.sequential.looks if manifest.sequential else []
    auto = f"looks at {', '.join(map(str, looks))} seeds" * bool(looks)
    tasks = ", ".join(dict.fromkeys(task.title or key for key, task in manifest.tasks.items()))
    above = ["; ".join(filter(None, [f"{base_of(manifest)}: {factors}".rstrip(": "), size, auto, tasks]))]
    if len(rounds) > 1 or not is_planned(rounds):
        above += [f"{one.kind} ({one.manifest.study}): {progress(one.runs)}" for one in rounds]
    above += [] if is_planned(rounds) else ["the study itself is planned when this has ended"]
    above.append(progress(everything))
    failed = [run for run in everything.runs if run.result and run.result.status == "failed"]
    why = [f"failed: {run.name}: {first_line(run.error())} · {run.run.result_file}" for run in failed]
    damaged = [f"damaged: {note}; the run is trained again" for run in everything.runs for note in run.damage]
    below = [*_first(why, "failed"), *_first(damaged, "damaged")]
    running = "running" in everything.by_state()
    if not running and not is_over(rounds):
        below.append(f"nothing is running; if no job waits in a launcher's queue, go on with: {manifest.command}")
    below += filter(None, [not_compared(manifest)])
    lines: list[RenderableType] = [Text(printable(line)) for line in above]
    if running:
        lines.append(table(everything, width, height - len(above) - len(below), bars=False))
    return Group(*lines, *(Text(printable(line)) for line in below))


def progress(runs: Runs) -> str:
    """The number of runs in each state and the time left, in one line."""
    number = {state: len(runs) for state, runs in runs.by_state().items()}
    parts = [f"{number.get(state, 0)} {state}" for state in STATES if state in number or state == "done"]
    left = "" if runs.ended() == len(runs.runs) else f", {runs.left() or 'time left unknown'}"
    return f"{counted(len(runs.runs), 'run')}: {', '.join(parts)}{left}"


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
    before = "" if is_planned(rounds) else f"{rounds[-1].kind}, "
    return before + progress(together(rounds))
