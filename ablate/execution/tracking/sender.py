"""Sends the runs of a study from disk to its tracking services.

`tracking` starts a process that does this while a sweep trains; `ablate sync` does it at any time.  Training calls no
service, so none can block it or lose a step.  The study's `tracked.json` lists the ended runs that have been sent.
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, whole_line
from ablate.config.import_path import program
from ablate.config.schema import STUDY_KEYS, VARIED
from ablate.config.typed_json import Record
from ablate.execution.signals import received
from ablate.formatting.streams import prepare, say
from ablate.runs.files import no_link, read_record, write_json
from ablate.runs.folder import Run, noted, stamp
from ablate.runs.lock import take
from ablate.runs.manifest import read_manifest, study_folder
from ablate.runs.naming import tracked_id
from ablate.runs.records import Cell, Manifest, PlannedRun, Result
from ablate.runs.tables import class_name

POLL = 1.0  # seconds between looks at the results
PATIENCE = 30.0  # seconds that the errors of a service may take until this process stops trying it
GRACE_SECONDS = 45.0  # seconds that the sender has for the rest once its sweep has ended
DRAIN = 60.0  # seconds that the sweep waits for the sender
HURRY = 1.0  # the same after an interruption

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TrackedRun:
    """What a service is told of a run besides its metrics."""

    results: Path  # a folder where the service may write files
    id: str
    study: str
    cell: str
    seed: int
    levels: Row
    config: Row
    status: str | None  # done, diverged or failed; None while it trains
    seconds: float | None  # its duration; None while it trains


class Tracker(Protocol):
    """A tracking service: a class with these members and a YAML in `track/` of `ablate/conf/` or of the user's folder.
    `mode` is `online` (gets runs while they train, too), `offline` (gets ended runs) or `disabled` (gets none)."""

    name: str
    mode: str

    def log(self, run: TrackedRun, rows: list[Row]) -> None:
        """Send a run that trains; `rows` are all its logged rows so far, also those of earlier calls."""

    def finish(self, run: TrackedRun, rows: list[Row], summary: Row) -> None:
        """Send a run that has ended, with its final metrics and, where it failed, its error."""

    def close(self) -> None:
        """Release the runs that have not ended."""


class Tracked(Record):
    """`tracked.json`: for each service, by its settings, the ended runs that it has, by path: when each ended (and what
    was measured later), and the service's mode then."""

    services: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)


class Sender:
    """Sends one study.  An error of a service becomes one line, and skips that run at that service alone."""

    def __init__(self, results: Path, study: str, user: Iterable[str] = ()):
        self.results = Path(results).resolve()
        self.study = study
        self.user = list(user)
        self.file = study_folder(self.results, study) / "tracked.json"
        self.lock_file: IO[str] | None = None
        self.sent: dict[str, dict[str, list[str]]] = {}  # as in `tracked.json`
        self.count: Counter[str] = Counter()  # runs sent to each service by this process
        self.trackers: dict[str, Tracker] = {}
        self.stamps: dict[str, Any] = {}  # the state of each run's files when it was last sent
        self.wasted: dict[str, float] = {}  # seconds that ended in an error of each service
        self.reported: set[str] = set()

    def lock(self, wait: Callable[[], bool] = lambda: False) -> bool:
        """Become the study's only sender on this host; False if another stays it while `wait()` is true."""
        self.lock_file = self.lock_file or open(self.file.with_name("tracking.lock"), "w", opener=no_link)  # noqa: SIM115
        if not take(self.lock_file, wait):
            return False
        with contextlib.suppress(FileNotFoundError, Corrupt):  # a run that is sent again is there once all the same
            self.sent = read_record(Tracked, self.file).services
        return True

    def send_all(self) -> None:
        """Send what has changed on disk since the last call."""
        try:
            manifest = read_manifest(self.results, self.study)
        except (FileNotFoundError, Corrupt):
            return  # not written yet; or damaged, which the next command that reads the study reports
        cells = {cell.id: cell for cell in manifest.cells}
        for planned in manifest.runs:
            run = Run(self.results, planned.path)
            stamps = [stamp(file) for file in (run.result_file, run.metrics_file, run.evaluation_file)]
            if self.stamps.get(run.path) == stamps:
                continue
            self.stamps[run.path] = stamps
            cell = cells[planned.cell]
            services = manifest.track if cell.config is None else variants_of(cell.config.track)
            for service in services:
                if service:
                    self._try_to_send(service, manifest, cell, planned)

    def close(self) -> None:
        """Release the runs that have not ended, and the study."""
        for key, tracker in self.trackers.items():
            try:
                tracker.close()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._report(key, f"tracking failed ({tracker.name}: {whole_line(error)})")
        if self.lock_file:
            self.lock_file.close()

    def _try_to_send(self, service: Row, manifest: Manifest, cell: Cell, planned: PlannedRun) -> None:
        key = json.dumps(service, sort_keys=True)
        if self.wasted.get(key, 0.0) > PATIENCE:
            return
        started = time.monotonic()
        try:
            self._send(key, service, manifest, cell, planned)
        except Corrupt as error:
            self._report(planned.path, f"{error}; not uploaded, and trained again by its study's command")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a service may raise anything, which must not affect other services and runs
            self.wasted[key] = self.wasted.get(key, 0.0) + time.monotonic() - started
            name = class_name(service.get("_target_")) if isinstance(service, dict) else "track"
            why = f"tracking failed ({name}: {whole_line(error)})"
            self._report(key, f"{why}; nothing is lost, `ablate sync {self.study}` sends the rest")

    def _send(self, key: str, service: Row, manifest: Manifest, cell: Cell, planned: PlannedRun) -> None:
        if key not in self.trackers:
            self.trackers[key] = make_tracker(service, self.user)
        tracker = self.trackers[key]
        run = Run(self.results, planned.path)
        result = run.result()
        tracked = describe(self.results, manifest, cell, planned, result)
        rows, _ = run.metrics()
        rows = [row for row in rows if "step" in row]  # a program may log others
        if result is None:
            if rows and tracker.mode == "online":
                tracker.log(tracked, rows)
            return
        added, _ = noted(run.evaluation)  # metrics at other lengths, which a later command adds
        added = added or {}
        ended = ", ".join([str(result.ended), *sorted(added)])
        sent = self.sent.setdefault(key, {})
        if tracker.mode == "disabled" or sent.get(run.path) in ([ended, tracker.mode], [ended, "online"]):
            return
        summary: Row = {**result.final, **added}
        if result.error:
            summary["error"] = result.error.message
        tracker.finish(tracked, rows, summary)
        sent[run.path] = [ended, tracker.mode]
        write_json(self.file, Tracked(services=self.sent).as_json())
        self.count[key] += 1

    def _report(self, about: str, text: str) -> None:
        if about not in self.reported:
            self.reported.add(about)
            say(text)


def make_tracker(service: Row, user: Iterable[str] = ()) -> Tracker:
    """The service of an entry of `track`.  Raises BadComponent, and any error of its constructor."""
    settings = {name: value for name, value in service.items() if name != "_target_"}
    tracker: Tracker = resolve("track", service.get("_target_", ""), user)(**settings)
    return tracker


def describe(results: Path, manifest: Manifest, cell: Cell, planned: PlannedRun, result: Result | None) -> TrackedRun:
    """A planned run as services show it; `result` is its result if it has ended."""
    planned_config = cell.config.as_json() if cell.config else {}
    study = {"name": manifest.study, "command": manifest.command}
    for name in STUDY_KEYS:
        if name != "study" and name in planned_config:
            study[name] = planned_config[name]
    settings = named_settings(cell) if cell.config else {"cell": cell.label, **cell.levels}
    config = settings | {"seed": planned.seed, "study": study, "versions": manifest.versions}
    config["ablate"] = {  # what `ablate analyse --wandb` reads
        "levels": cell.levels,
        "reference": cell.reference,
        "batches": cell.batches,
        "params": cell.params,
    }
    ended = result.as_json() if result else {}
    for name in ("device", "host", "versions", "git"):
        if ended.get(name):
            config[name] = ended[name]
    return TrackedRun(
        results=results,
        id=tracked_id(manifest.study, planned.path),
        study=manifest.study,
        cell=cell.label,
        seed=planned.seed,
        levels=cell.levels,
        config=config,
        status=result.status if result else None,
        seconds=(result.seconds or {}).get("total", 0.0) if result else None,
    )


def named_settings(cell: Cell) -> Row:
    """A cell's configuration with levels by name; the settings of variants are under `components`."""
    config = cell.planned_config.as_json()
    settings = {name: value for name, value in config.items() if name not in (*VARIED, *STUDY_KEYS, "seed")}
    for name, seed in config["seed"].items():
        if seed is not None:
            settings[f"seed_{name}"] = seed
    settings["cell"] = cell.label
    settings["components"] = {group: config[group] for group in VARIED}
    settings["budget"] = {
        "params": cell.params,
        "flops_per_token": cell.flops_per_token,
        "params_vs_reference": cell.params_vs_reference,
        "shared_draws": cell.shared_draws,
    }
    for name, level in cell.levels.items():
        if isinstance(settings.get(name), dict):  # model, data and optim have settings besides their variant
            settings[name] = settings[name] | {"variant": level}
        else:
            settings[name] = level
    return settings


@contextlib.contextmanager
def tracking(results: Path, study: str, user: Sequence[str], remark: Callable[[str], None]) -> Iterator[None]:
    """Send a study's runs from a process of its own inside the `with` block; its messages are remarks at the end."""
    command = [*program(__name__), str(results), study, *user]
    messages = tempfile.TemporaryFile()  # noqa: SIM115 (not the terminal, which has the live view)
    # In a session of its own nothing can prompt, and Ctrl-C reaches the sweep only, which then ends this process.  It
    # ends by itself where the sweep is killed, because only the sweep holds the other end of its standard input.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages, start_new_session=True
    )
    try:
        yield
    finally:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=HURRY if received else DRAIN)  # closes its standard input
        finally:  # after a request to stop, too
            process.kill()  # does nothing if it has ended
        if process.returncode != 0:
            remark(f"tracking has not finished; to upload the rest: ablate sync {study}")
        messages.seek(0)
        for line in messages.read().decode(errors="replace").splitlines():
            remark(line.removeprefix("ablate: "))
        messages.close()


def main() -> None:
    """Send the runs of a study, named with its results and the user's packages, until standard input ends."""
    results, study, *user = sys.argv[1:]
    prepare()
    os.nice(5)  # training goes first
    sweep_ended = threading.Event()
    threading.Thread(target=watch_sweep, args=(sweep_ended, study), daemon=True).start()
    try:
        follow(Sender(Path(results), study, user), sweep_ended)
    except BaseException as error:  # W&B may raise KeyboardInterrupt, too
        say(f"tracking stopped ({whole_line(error)}); `ablate sync {study}` sends the rest")


def watch_sweep(sweep_ended: threading.Event, study: str) -> None:
    """Wait for the end of standard input, then end this process after `GRACE_SECONDS`, even if a service blocks."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    sweep_ended.set()
    time.sleep(GRACE_SECONDS)
    say(f"tracking is not finished; `ablate sync {study}` sends the rest")
    os._exit(0)


def follow(sender: Sender, sweep_ended: threading.Event) -> None:
    """Send what is new on disk until the sweep ends, then the rest."""
    if not sender.lock(wait=lambda: not sweep_ended.is_set()):
        say(f"another process sends the runs of {sender.study}; `ablate sync {sender.study}` sends what it may miss")
        return
    while not sweep_ended.wait(POLL):
        sender.send_all()
    sender.send_all()
    sender.close()
