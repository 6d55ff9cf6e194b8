"""One run on disk: its files, lock, logged metrics and result, and checks that its files are undamaged and its own."""

import contextlib
import datetime
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from ablate.config.errors import Corrupt
from ablate.config.files import read_regular, unreadable
from ablate.runs.files import Sum, file_digest, finite, no_link, read_record, write_json
from ablate.runs.lock import Holder, Lease, holder, locked
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
        self.key = self.folder.name
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
        self.check_key(self.result_file, result.key)
        for file in (self.config_file, self.provenance_file, self.metrics_file):
            verify(result, file)
        # Weights are large, so their checksum is verified when they are used.  Removed weights are no damage.
        weights = self.weights_file
        is_lost = written_sum(result, weights) and not weights.exists()
        if is_lost and any(self.folder.glob(f"{weights.name}.corrupt*")):
            raise Corrupt(f"{weights} was damaged and has been set aside")
        return result

    def evaluation(self, versions: Evaluation | None = None) -> Metrics:
        """Metrics added later, such as those at other lengths; with `versions`, only those that were computed with the
        same torch and data.  Raises `Corrupt`."""
        try:
            evaluation = read_record(Evaluation, self.evaluation_file)
        except FileNotFoundError:
            return {}
        self.check_key(self.evaluation_file, evaluation.key)
        # Only these names: metrics from training are in the checksummed result, and no other file may replace them.
        if not all("@" in name for name in evaluation.metrics):
            raise Corrupt(f"{self.evaluation_file} holds other things than metrics at lengths, such as test/loss@8")
        if versions and evaluation.versions != versions.versions:
            return {}
        return evaluation.metrics

    def provenance(self) -> Provenance | None:
        """The run's provenance, or None if it has no such file.  Raises `Corrupt`."""
        try:
            provenance = read_record(Provenance, self.provenance_file)
        except FileNotFoundError:
            return None
        if provenance.key:
            self.check_key(self.provenance_file, provenance.key)
        return provenance

    def metrics(self) -> tuple[list[Row], int]:
        """The logged steps in order, and how many torn lines were skipped.  Raises `Corrupt`."""
        try:
            lines = read_regular(self.metrics_file).split(b"\n")
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise unreadable(self.metrics_file, error) from None
        rows, torn = parse_lines(lines)
        if rows:
            self.check_key(self.metrics_file, rows[0].pop("key", None))
        return rows, torn

    def check_key(self, file: Path, key: object) -> None:
        """Raise `Corrupt` if a file has the key of another run, or none although the run's provenance has one: files of
        runs from before keys were written have none."""
        if key is None:
            provenance = self.provenance()
            if provenance and provenance.key:
                raise Corrupt(f"{file} has no key, so it is not of this run", file)
        elif key != self.key:
            raise Corrupt(f"{file} is of another run, {key}", file)

    def write(self, file: Path, record: Result | Evaluation | Provenance) -> Sum:
        """Write one of the run's records with the run's key; returns the file's size and digest.  Raises LeaseLost."""
        return write_json(file, record.as_json() | {"key": self.key}, self.check)

    def holder(self) -> Holder | None:
        """The process that trains the run now, or None."""
        return holder(self.lease_file)

    @contextlib.contextmanager
    def lock(self, wait: Callable[[], bool], device: str = "cpu") -> Iterator[bool]:
        """Lock the run, retrying while `wait()` is true; yields False if another process has it."""
        with locked(self.folder / "lock", wait) as file:
            lease = Lease(self.lease_file, device)
            if file is None or not lease.acquire(file, wait):
                yield False
                return
            self.lease = lease
            try:
                for temporary in self.folder.glob(".*.tmp"):  # of a process killed while writing
                    if not temporary.name.startswith(".ranks."):  # where processes of another job wait for this one
                        temporary.unlink(missing_ok=True)
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
    written = written_sum(result, file)
    if written:
        verify_sum(file, written, "the run is damaged")


def verify_sum(file: Path, written: Sum, without: str) -> None:
    """Raise `Corrupt` unless a file is as it was written; `without` describes what its absence means."""
    try:
        size = file.stat().st_size
        if size == written.bytes and file_digest(file) == written.sha256:
            return
    except FileNotFoundError:
        raise Corrupt(f"{file} is gone: {without}") from None
    except OSError as error:
        raise unreadable(file, error) from None
    raise Corrupt(f"{file} is damaged: it was changed after it was written ({written.bytes:,} bytes)", file)


def written_sum(result: Result, file: Path) -> Sum | None:
    """Size and digest of a file when its run ended; None if the result does not list it."""
    return (result.files or {}).get(file.name)


def lacking(run: Run, lengths: list[int]) -> list[int]:
    """The lengths that a run has not been tested at; all of them if its evaluation file is corrupt."""
    tested, _ = noted(run.evaluation)
    return [length for length in lengths if f"test/loss@{length}" not in (tested or {})]


def untested(results: Path, manifest: Manifest, statuses: dict[str, str]) -> dict[str, list[int]]:
    """For each finished run, by path, the lengths in its cell's eval.lengths that it has not been tested at, if any."""
    lengths = {cell.id: cell.config.eval.lengths for cell in manifest.cells if cell.config}
    found = {}
    for planned in manifest.runs:
        wanted = lengths.get(planned.cell)
        if wanted and statuses.get(planned.path) == "done":
            missing = lacking(Run(results, planned.path), wanted)
            if missing:
                found[planned.path] = missing
    return found


class MetricsWriter:
    """Appends one JSON object per logged step to a run's metrics.jsonl, unbuffered; first truncates it to `offset`
    bytes.  The first row also has the run's key."""

    def __init__(self, run: Run, offset: int = 0):
        run.check()  # a process that lost the run during setup must not truncate its successor's log
        self.run = run
        path = run.metrics_file
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = "r+b" if path.exists() else "w+b"
        # Unbuffered: a write that failed on a full disk must not be retried when the file is closed.
        self.file: IO[bytes] = open(path, mode, buffering=0, opener=no_link)  # noqa: SIM115
        self.file.truncate(offset)
        self.bytes = offset  # updated by `write`, like the digest
        self.sum = hashlib.sha256(self.file.read(offset))
        self.file.seek(offset)

    def write(self, row: Row) -> None:
        """Append one row.  Raises LeaseLost."""
        self.run.check()
        content = finite(row)
        if self.bytes == 0:
            content = {"key": self.run.key} | content
        left = json.dumps(content, allow_nan=False).encode() + b"\n"
        while left:
            count = self.file.write(left)
            self.sum.update(left[:count])
            self.bytes += count
            left = left[count:]

    def written(self) -> Sum:
        """Size and digest of the file, for checkpoints and the result."""
        return Sum(bytes=self.bytes, sha256=self.sum.hexdigest())

    def close(self) -> None:
        """Close the file."""
        self.file.close()
