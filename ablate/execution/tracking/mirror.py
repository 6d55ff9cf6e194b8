"""Replays the runs of a study from disk to its tracking services, each once, as `ablate sync` does.

`mirrored` starts a process that does the same while a sweep trains.  Training never calls it, so it can neither block
training nor lose a step.  It runs until its standard input ends, whose other end the sweep's process holds.
The study's `mirror.jsonl` records which ended runs were replayed.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, whole_line
from ablate.config.files import read_regular
from ablate.config.groups import default_settings, defaults
from ablate.config.import_path import program
from ablate.config.schema import NAMED, STUDY_KEYS, VARIED
from ablate.execution.signals import received
from ablate.formatting import show
from ablate.formatting.streams import prepare, say
from ablate.results.atomic import no_link
from ablate.results.lease import take
from ablate.results.manifest import read_manifest, study_folder
from ablate.results.naming import tracked_id
from ablate.results.records import Cell, Manifest, PlannedRun, Result
from ablate.results.run import Run, noted, stamp
from ablate.results.tables import class_name, parse_lines

UNNAMED = (*(name for name in VARIED if name not in NAMED), "model", "data", "optim")  # not in every cell's name
BUDGET = ("params", "flops_per_token", "params_vs_reference", "shared_draws")
ORIGIN = ("device", "host", "versions", "git")  # fields of a result, if it has them
TAG = 64  # maximal length; W&B rejects longer tags

Row = dict[str, Any]


class Card(NamedTuple):
    """The data of a run for a tracking service besides its metrics; `results` is a folder where it may write files.
    `seconds` is the duration of the run, None while it is running."""

    results: Path
    id: str
    group: str
    job_type: str
    name: str
    tags: list[str]
    config: Row
    seconds: float | None


class Sink(Protocol):
    """A tracking service: a class with these members and a YAML in `conf/track/`, built-in or the user's.  `mode` is
    `online` (shows runs during training), `offline` (shows runs that have ended) or `disabled`."""

    name: str
    mode: str

    def log(self, card: Card, rows: list[Row]) -> None:
        """Show a running run; `rows` are all logged rows so far, including those of earlier calls."""

    def finish(self, card: Card, rows: list[Row], status: str, summary: Row) -> None:
        """Show a run that has ended."""

    def close(self) -> None:
        """Release the runs that have not ended."""


class Mark(NamedTuple):
    """A line of `mirror.jsonl`: which end of a run a service was given, in which mode."""

    path: str
    status: str
    ended: str
    sink: str
    mode: str


class Mirror:
    """Replays one study.  Reads only result files and writes only `mirror.jsonl`.  An error of a tracking service is
    printed once and skips the run there alone; only errors of the results folder raise OSError."""

    def __init__(self, results: Path, study: str, user: Iterable[str] = ()):
        self.results, self.study = Path(results).resolve(), study
        self.file = study_folder(self.results, study) / "mirror.jsonl"
        self.user = list(user)
        self.sinks: dict[str, Sink | None] = {}
        self.replayed: set[Mark] = set()
        self.stamps: Row = {}  # state of each run's files when last read
        self.reported: set[str] = set()
        self.locked: IO[str] | None = None

    def take(self, wait: bool) -> bool:
        """Become the only mirror of the study on this host; without `wait`, returns False if there is another."""
        self.locked = self.locked or open(self.file.with_name("mirror.lock"), "w", opener=no_link)  # noqa: SIM115
        if take(self.locked, lambda: wait) is False:  # None on a file system without locks
            return False
        lines = read_regular(self.file).split(b"\n") if self.file.exists() else []
        self.replayed = {Mark(*(str(row.get(name)) for name in Mark._fields)) for row in parse_lines(lines)[0]}
        return True

    def replay(self) -> int:
        """Replay new data on disk; returns how often a run was replayed to its end, counted for each service."""
        try:
            manifest = read_manifest(self.results, self.study)
        except (FileNotFoundError, Corrupt):
            return 0  # not written yet; or damaged, which the next command that reads the study reports
        cells, count = {cell.id: cell for cell in manifest.cells}, 0
        for planned in manifest.runs:
            run, cell = Run(self.results, planned.path), cells[planned.cell]
            now = [stamp(file) for file in (run.result_file, run.metrics_file, run.evaluation_file)]
            if self.stamps.get(run.path) != now:
                self.stamps[run.path] = now
                services = variants_of(cell.planned_config.track)
                count += sum(self._replay_to(service, manifest, cell, planned, run) for service in services)
        return count

    def close(self) -> None:
        """Release the runs that have not ended, and the study."""
        for sink in filter(None, self.sinks.values()):
            try:
                sink.close()
            except (Exception, SystemExit) as error:
                self._report_failure(sink.name, error)
        if self.locked:
            self.locked.close()

    def _replay_to(self, service: Row, manifest: Manifest, cell: Cell, planned: PlannedRun, run: Run) -> bool:
        try:
            key = json.dumps(service, sort_keys=True)
            if key not in self.sinks:
                self.sinks[key] = None  # stays None if the constructor raises
                self.sinks[key] = make_sink(service, self.user)
            if (sink := self.sinks[key]) is None:
                return False
            result = run.result()
            card = card_of(self.results, manifest, cell, planned, result)
            return self._show(sink, run, card, result)
        except Corrupt as error:
            self._report_once(f"{error}; not uploaded, and trained again by its study's command")
        except (Exception, SystemExit) as error:  # an error of a service must not affect other services and runs
            self._report_failure(class_name(service.get("_target_")) if isinstance(service, dict) else "track", error)
        return False

    def _show(self, sink: Sink, run: Run, card: Card, result: Result | None) -> bool:
        if result is None:
            rows = run.metrics()[0] if sink.mode == "online" else []
            if rows:
                sink.log(card, rows)
            return False
        more = noted(run.evaluation)[0] or {}  # metrics at other lengths, which may be new
        mark = Mark(run.path, result.status, ", ".join([str(result.ended), *sorted(more)]), sink.name, sink.mode)
        if sink.mode == "disabled" or self.replayed & {mark, mark._replace(mode="online")}:
            return False
        error = {"error": result.error.message} if result.error else {}
        sink.finish(card, run.metrics()[0], result.status, result.final | more | error)
        mark = mark._replace(mode=sink.mode)  # offline from here, if the service was not reached
        with open(self.file, "a+b", opener=no_link) as file:
            file.seek(max(0, file.tell() - 1))
            torn = file.read(1) not in (b"", b"\n")  # an incomplete line after a kill; do not append to it
            file.write(b"\n" * torn + json.dumps(mark._asdict()).encode() + b"\n")
        self.replayed.add(mark)
        return True

    def _report_failure(self, name: str, error: BaseException) -> None:
        self._report_once(
            f"tracking failed ({name}: {whole_line(error)}); nothing is lost, `ablate sync {self.study}` tries again"
        )

    def _report_once(self, text: str) -> None:
        if text not in self.reported:
            self.reported.add(text)
            say(text)


def card_of(results: Path, manifest: Manifest, cell: Cell, planned: PlannedRun, result: Result | None) -> Card:
    """The card of a planned run; `result` is its result, if it has ended."""
    status, config = result.status if result else "done", cell.planned_config.as_json()
    study = {"name": manifest.study, "command": manifest.command}  # and the settings that are not part of a run's key
    study |= {name: config[name] for name in STUDY_KEYS if name != "study" and name in config}
    ended = result.as_json() if result else {}
    origin = {"versions": manifest.versions} | {name: ended[name] for name in ORIGIN if ended.get(name)}
    tags = [f"{factor}={show(level)}"[:TAG] for factor, level in cell.levels.items()]
    read_back = {name: getattr(cell, name) for name in ("levels", "reference", "batches", "params")}  # by the analysis
    return Card(
        results=results,
        id=tracked_id(manifest.study, planned.path),
        group=manifest.study,
        job_type=cell.label,
        name=f"{cell.label}/s{planned.seed}",
        tags=tags + [status] * (status != "done"),
        config=settings(cell) | {"seed": planned.seed, "study": study, "ablate": read_back} | origin,
        seconds=(result.seconds or {}).get("total", 0.0) if result else None,
    )


def settings(cell: Cell) -> Row:
    """A cell's settings: variants and factor levels by name, the settings of variants under `components`."""
    config = cell.planned_config.as_json()
    own = {name: value for name, value in config.items() if name not in (*VARIED, *STUDY_KEYS, "seed")}
    held = {f"seed_{half}": value for half, value in config["seed"].items() if value is not None}
    found = own | held | {"cell": cell.label, "components": {name: config[name] for name in VARIED}}
    found["budget"] = {name: getattr(cell, name) for name in BUDGET}
    targets = {name: own.get("_target_") for name in UNNAMED if isinstance(own := config[name], dict)}
    usual = {name: defaults()[name] for name in targets if targets[name] == default_settings(name).get("_target_")}
    for name, level in (usual | variants(cell.name) | cell.levels).items():
        found[name] = found[name] | {"variant": level} if isinstance(found.get(name), dict) else level
    return found


def variants(name: str) -> Row:
    """The variant of each component, parsed from a cell's name; empty if a variant's name contains a dash."""
    first, others = name.split("-")[: len(NAMED)], name.split("-")[len(NAMED) :]
    chosen = {group: part for part in others for group in VARIED if part.startswith(f"{group}_")}
    if len(first) < len(NAMED) or len(chosen) < len(others):
        return {}
    found = {group: part.removeprefix(f"{group}_") for group, part in chosen.items()}
    return dict(zip(NAMED, first, strict=True)) | found


def make_sink(track: dict[str, Any] | None, user: Iterable[str] = ()) -> Sink | None:
    """The tracking service of an entry of `track`, or None.  Raises ValueError, and any error of its constructor."""
    if not track:
        return None
    found = resolve("track", track.get("_target_", ""), user)
    return found(**{key: value for key, value in track.items() if key != "_target_"})


POLL = 0.25, 2.0  # seconds between checks for new data: while runs end, and at most
GRACE = 45.0  # seconds for the mirror to finish after its sweep has ended
DRAIN = 60.0  # seconds that the sweep waits for the mirror to finish
HURRY = 1.0  # the same after an interruption


@contextlib.contextmanager
def mirrored(results: Path, study: str, user: Sequence[str], remark: Callable[[str], None]) -> Iterator[None]:
    """Mirror a study inside the `with` block; training never waits for it.  Its messages become remarks at the end."""
    command = [*program(__name__), study, str(results), *user]
    output = tempfile.TemporaryFile()  # noqa: SIM115 (its messages must not disturb the live view)
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": output}
    # In a separate session nothing can prompt, and Ctrl-C reaches the sweep only, which then ends this process.
    process = subprocess.Popen(command, **streams, start_new_session=True)
    try:
        yield
    finally:
        assert process.stdin
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HURRY if received else DRAIN)
        finally:  # after a request to stop, too
            process.kill()  # nothing if it has ended
        if process.returncode != 0:  # killed here, or by others
            remark(f"tracking has not finished; to upload the rest: ablate sync {study}")
        output.seek(0)
        for line in output.read().decode(errors="replace").splitlines():
            remark(line.removeprefix("ablate: "))
        output.close()


def follow(mirror: Mirror) -> None:
    """Replay new data on disk until standard input ends, then all that is left, for at most `GRACE` seconds."""
    ended, pause, taken = threading.Event(), POLL[0], False

    def wait_for_end() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        ended.set()
        time.sleep(GRACE)
        say(f"tracking is not finished; `ablate sync {mirror.study}` mirrors the rest")
        os._exit(0)  # even if the tracking service or its exit handlers block

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not ended.wait(pause):
        taken = taken or mirror.take(wait=False)
        pause = POLL[0] if taken and mirror.replay() else min(1.5 * pause, POLL[1])
    if taken or mirror.take(wait=True):
        mirror.replay()
    mirror.close()


def main() -> None:
    """Mirror a study, named with its results and the user's packages, until standard input ends."""
    study, results, *user = sys.argv[1:]
    prepare()
    os.nice(5)  # training goes first
    try:
        follow(Mirror(Path(results), study, user))
    except OSError as error:
        say(f"tracking stopped ({whole_line(error)})")
