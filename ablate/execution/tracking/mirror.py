"""Replays the runs of one study on disk to its tracking service, each once:

    ablate sync [STUDY] [--results-dir DIR]

With `user=[my_package]` where the tracking service is one's own: what lies in results allows none.

`ablate.execution.tracking.process` does the same beside a sweep.  `mirror.jsonl` of the study remembers which ended
runs were replayed.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from ablate.config.errors import Corrupt
from ablate.config.regular_files import read_regular
from ablate.config.targets import BadTarget, allowed, is_sink, locate
from ablate.execution.tracking.run_card import Card, card_of
from ablate.results.atomic import no_link
from ablate.results.lease import take
from ablate.results.manifest import read_manifest, study_folder
from ablate.results.records import Cell, Manifest, PlannedRun
from ablate.results.result import Result
from ablate.results.run import Run, noted, stamp
from ablate.results.tables import as_planned, parse_lines


class Sink(Protocol):
    """A tracking service.  One of your own is a class with these members and a YAML in `conf/track/`.

    `mode` is `online` (a run is shown while it goes on), `offline` (when it has ended) or `disabled` (never).
    """

    name: str
    mode: str

    def log(self, card: Card, rows: list[dict[str, Any]]) -> None:
        """Show a run that goes on; `rows` are all so far, those of earlier calls included."""

    def finish(self, card: Card, rows: list[dict[str, Any]], status: str, summary: dict[str, Any]) -> None:
        """Show a run that has ended."""

    def close(self) -> None:
        """Let go of the runs that have not ended."""


class Mirror:
    """Replays one study.  Reads nothing but files of results and writes nothing but `mirror.jsonl`.

    An error of the tracking service is said once and passes over the run; nothing is raised but by the results
    folder itself (OSError).
    """

    def __init__(self, results: Path, study: str, user: Iterable[str] = ()):
        self.results, self.study = Path(results).resolve(), study
        self.file = study_folder(self.results, study) / "mirror.jsonl"
        self.user = list(user)
        self.sinks: dict[str, Sink | None] = {}
        self.replayed: set[tuple[str, ...]] = set()
        self.looked: dict[str, Any] = {}
        self.said: set[str] = set()

    @contextlib.contextmanager
    def lock(self) -> Iterator[IO[str]]:
        """The open lock file of the study; `take` locks it, and leaving the context lets go."""
        with open(self.file.with_name("mirror.lock"), "w", opener=no_link) as file:
            yield file

    def take(self, lock: IO[str], wait: bool) -> bool:
        """Become the only mirror of the study on this host; without `wait`, False where there is another."""
        if take(lock, lambda: wait) is False:  # on a file system without locks nobody can tell
            return False
        self.replayed = {_mark(line, line.get("mode")) for line in _json_lines(self.file)}
        return True

    def replay(self) -> int:
        """Replay what is new on disk; returns how many runs were replayed to their end."""
        try:
            manifest = read_manifest(self.results, self.study)
        except (FileNotFoundError, Corrupt):
            return 0  # it is not written yet, or whoever reads the study next names the damage
        cells = {cell.id: cell for cell in manifest.cells}
        return sum(self._replay_run(manifest, cells[planned.cell], planned) for planned in manifest.runs)

    def close(self) -> None:
        """Let go of the runs that have not ended."""
        for sink in filter(None, self.sinks.values()):
            sink.close()

    def _replay_run(self, manifest: Manifest, cell: Cell, planned: PlannedRun) -> bool:
        run = Run(self.results, planned.path)
        state = stamp(run.result_file), stamp(run.metrics_file)
        if self.looked.get(run.path) == state:
            return False
        self.looked[run.path] = state
        try:
            if (sink := self._sink(cell.config.track)) is None:
                return False
            result = run.result()
            return self._show(
                sink, run, card_of(self.results, manifest, as_planned(cell, planned), planned, result), result
            )
        except Corrupt as error:
            self._say_once(f"{error}; not replayed, and trained again by its study's command")
            return False
        except Exception as error:  # whatever a tracking service raises, the other runs go on
            self._say_once(f"tracking failed ({one_line(error)}); nothing is lost, `ablate sync` tries again")
            return False

    def _show(self, sink: Sink, run: Run, card: Card, result: Result | None) -> bool:
        if result is None:
            rows = run.metrics()[0] if sink.mode == "online" else []
            if rows:
                sink.log(card, rows)
            return False
        line = {"path": run.path, "status": result.status, "ended": result.ended, "sink": sink.name}
        if sink.mode == "disabled" or self.replayed & {_mark(line, sink.mode), _mark(line, "online")}:
            return False
        error = {"error": result.error.message} if result.error else {}
        more = noted(run.evaluation)[0] or {}
        sink.finish(card, run.metrics()[0], result.status, result.final | more | error)
        self._remember(line | {"mode": sink.mode})
        return True

    def _remember(self, line: dict[str, Any]) -> None:
        with open(self.file, "a+b", opener=no_link) as file:
            file.seek(max(0, file.tell() - 1))
            torn = file.read(1) not in (b"", b"\n")  # by a kill: the next line must not be lost with it
            file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
        self.replayed.add(_mark(line, line["mode"]))

    def _sink(self, track: Any) -> Sink | None:
        key = json.dumps(track, sort_keys=True)
        if key not in self.sinks:
            self.sinks[key] = None  # it stays so where making one raises
            self.sinks[key] = make_sink(track, self.user)
        return self.sinks[key]

    def _say_once(self, text: str) -> None:
        if text not in self.said:
            self.said.add(text)
            say(text)


def make_sink(track: dict[str, Any] | None, user: Iterable[str] = ()) -> Sink | None:
    """The tracking service of a cell's `track`, or None.  Raises ValueError, and what its constructor raises."""
    if not track:
        return None
    target = track.get("_target_")
    found = locate(target, allowed("ablate.execution.tracking.wandb", user))
    if not is_sink(found):
        raise BadTarget(f"{target!r} is no tracking service: a class with log, finish and close")
    sink: Sink = found(**{key: value for key, value in track.items() if key != "_target_"})
    return sink


def one_line(error: Exception) -> str:
    """An exception as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def say(text: str) -> None:
    """Write one line about tracking itself."""
    print(f"ablate: {text}", file=sys.stderr, flush=True)


def _mark(line: dict[str, Any], mode: str | None) -> tuple[str, ...]:
    return tuple(str((line | {"mode": mode}).get(name)) for name in ("path", "status", "ended", "sink", "mode"))


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    yield from parse_lines(read_regular(file).split(b"\n") if file.exists() else [])[0]
