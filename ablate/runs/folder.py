"""One run on disk: its files, lock, logged metrics and result, and checks that its files are undamaged."""

import contextlib
import datetime
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from ablate.config.errors import Corrupt
from ablate.config.files import read_regular, unreadable
from ablate.runs.files import Sum, file_digest, finite, no_link, read_record
from ablate.runs.lock import Holder, Lease, holder, take
from ablate.runs.records import Evaluation, Manifest, Metrics, Provenance, Result
from ablate.runs.tables import parse_lines

Row = dict[str, float]  # a logged step: step, tokens, seconds, and metrics
V = TypeVar("V")


def now() -> str:
    """The current UTC time in ISO format, as manifests and results store it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Run:
    """One run on disk: a cell trained with one seed.  `path` is `<cell>/<key>` below `results/runs`."""

    def __init__(self, results: Path, path: str):
        self.path = path
        self.folder = Path(results) / "runs" / path
        self.config_file = self.folder / "config.yaml"
        self.provenance_file = self.folder / "provenance.json"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.result_file = self.folder / "result.json"
        self.evaluation_file = self.folder / "evaluation.json"
        self.checkpoint_file = self.folder / "checkpoint.pt"
        self.weights_file = self.folder / "weights.safetensors"
        self.lease_file = self.folder / "lease.json"
        self.lease: Lease | None = None  # set while this process holds the run

    def result(self) -> Result | None:
        """The run's result, or None if it has not ended.  Raises `Corrupt` if it or a file that it lists is damaged."""
        try:
            result = read_record(Result, self.result_file)
        except FileNotFoundError:
            return None
        for file in (self.config_file, self.metrics_file):
            verify(result, file)
        # Weights are large, so their checksum is verified when they are used.  Removed weights are no damage.
        weights = self.weights_file
        if _written(result, weights) and not weights.exists() and any(weights.parent.glob(f"{weights.name}.corrupt*")):
            raise Corrupt(f"{weights} was damaged and has been set aside")
        return result

    def evaluation(self, whose: Evaluation | None = None) -> Metrics:
        """Metrics added later, such as those at other lengths, with torch and data of `whose`.  Raises `Corrupt`."""
        try:
            evaluation = read_record(Evaluation, self.evaluation_file)
        except FileNotFoundError:
            return {}
        # Only these names: metrics from training are in the checksummed result, and no other file may replace them.
        if not all("@" in name for name in evaluation.metrics):
            raise Corrupt(f"{self.evaluation_file} holds other things than metrics at lengths, such as test/loss@8")
        ours = whose is None or (evaluation.torch, evaluation.data_fingerprint) == (whose.torch, whose.data_fingerprint)
        return evaluation.metrics if ours else {}

    def provenance(self) -> Provenance | None:
        """The run's provenance, or None if it has no such file.  Raises `Corrupt`."""
        with contextlib.suppress(FileNotFoundError):
            return read_record(Provenance, self.provenance_file)
        return None

    def metrics(self) -> tuple[list[Row], int]:
        """The logged steps in order, and how many torn lines were skipped.  Raises `Corrupt`."""
        try:
            return parse_lines(read_regular(self.metrics_file).split(b"\n"))
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise unreadable(self.metrics_file, error) from None

    def holder(self) -> Holder | None:
        """The process that trains the run now, or None."""
        return holder(self.lease_file)

    @contextlib.contextmanager
    def lock(self, wait: Callable[[], bool], device: str = "cpu") -> Iterator[bool]:
        """Lock the run, retrying while `wait()` is true; yields False if another process has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w", opener=no_link) as file:
            locked = take(file, wait)  # excludes processes of this host, the lease those of other hosts
            lease = Lease(self.lease_file, device)
            if locked is False or not lease.acquire(wait, alone=locked is True):
                yield False
                return
            self.lease = lease
            try:
                for left in self.folder.glob(".*.tmp"):  # of a process killed while writing
                    if not left.name.startswith(".ranks."):  # where processes of another job meet, which wait for it
                        left.unlink(missing_ok=True)
                yield True
            finally:
                self.lease = None
                lease.release()

    def check(self) -> None:
        """Raise LeaseLost if another process has taken over the run."""
        if self.lease:
            self.lease.check()


def stamp(file: Path) -> tuple[int, int] | None:
    """A file's modification time and size, which show whether it has changed; None if it is missing."""
    with contextlib.suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size
    return None


def noted(read: Callable[[], V | None]) -> tuple[V | None, list[str]]:
    """The value that `read` returns, or None and a note if the file is corrupt."""
    try:
        return read(), []
    except Corrupt as error:
        return None, [str(error)]


def verify(result: Result, file: Path) -> None:
    """Raise `Corrupt` if the result lists a checksum for a file that the file does not have."""
    if written := _written(result, file):
        verify_sum(file, written, "the run is damaged")


def verify_sum(file: Path, written: Sum, without: str) -> None:
    """Raise `Corrupt` unless a file is as it was written; `without` describes what its absence means."""
    try:
        status = file.stat()
        if status.st_size != written.bytes:
            how = f"it has {status.st_size:,} bytes, and {written.bytes:,} were written"
        elif file_digest(file, status.st_mtime_ns, status.st_size, status.st_ino) != written.sha256:
            how = "its checksum does not fit: it was changed after it was written"
        else:
            return
    except FileNotFoundError:
        raise Corrupt(f"{file} is gone: {without}") from None
    except OSError as error:
        raise unreadable(file, error) from None
    raise Corrupt(f"{file} is damaged: {how}", file)


def why_without(result: Result | None, file: Path) -> str:
    """Why a run has no weights, in a few words."""
    if not result or result.status != "done":
        return f"{result.status}, which keeps none" if result else "not ended"
    removed = "removed since, by ablate clean --weights or by hand"
    return removed if _written(result, file) else "trained with keep=none"


def _written(result: Result, file: Path) -> Sum | None:
    return (result.files or {}).get(file.name)


def lacking(run: Run, lengths: list[int]) -> list[int]:
    """The lengths that a run has not been tested at; all of them if its evaluation file is corrupt."""
    known = noted(run.evaluation)[0] or {}
    return [length for length in lengths if f"test/loss@{length}" not in known]


def untested(results: Path, manifest: Manifest, statuses: dict[str, str]) -> dict[str, list[int]]:
    """For each finished run, by path, the lengths in its cell's eval.lengths that it has not been tested at, if any."""
    lengths = {cell.id: cell.planned_config.eval.lengths for cell in manifest.cells}
    done = [run for run in manifest.runs if statuses.get(run.path) == "done" and lengths[run.cell]]
    found = {run.path: lacking(Run(results, run.path), lengths[run.cell]) for run in done}
    return {path: lacks for path, lacks in found.items() if lacks}


class MetricsWriter:
    """Appends one JSON object per logged step, unbuffered; first truncates the file to `offset` bytes."""

    def __init__(self, path: Path, offset: int = 0, check: Callable[[], None] = lambda: None):
        check()  # a process that lost the run during setup must not truncate its successor's log
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a write that failed on a full disk must not be retried when the file is closed.
        self.file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b", buffering=0, opener=no_link)  # noqa: SIM115
        self.check = check
        self.file.truncate(offset)
        self.bytes, self.sum = offset, hashlib.sha256(self.file.read(offset))  # updated by `write`
        self.file.seek(offset)

    def write(self, row: Row) -> None:
        """Append one row.  Raises what `check` raises."""
        self.check()
        left = json.dumps(finite(row), allow_nan=False).encode() + b"\n"
        while left:
            taken = self.file.write(left)
            self.sum.update(left[:taken])
            self.bytes += taken
            left = left[taken:]

    def written(self) -> Sum:
        """Size and digest of the file, for checkpoints and the result."""
        return Sum(bytes=self.bytes, sha256=self.sum.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self.file.close()
