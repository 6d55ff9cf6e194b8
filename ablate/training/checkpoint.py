"""Checkpoints: the state of every part of a run in one file, written atomically and tied to the log of metrics."""

import dataclasses
import io
import math
import os
import pickle
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

from ablate.config.errors import first_line
from ablate.config.files import is_of_reading, regular
from ablate.runs.files import digest, set_aside, write_atomic
from ablate.runs.folder import MetricsWriter, Run
from ablate.training.ranks import Ranks

SHARE = 0.03  # of the time, at most, that checkpoints take


@dataclasses.dataclass
class Progress:
    """How far a run is."""

    step: int = 0
    tokens: int = 0  # positions of the batches so far
    offset: int = 0  # bytes of metrics.jsonl written up to this step
    logged: str = ""  # SHA-256 of those bytes
    first_loss: float = math.nan  # training loss of the first step
    high_loss_count: int = 0  # consecutive logged training losses that were too high
    resumed: int = 0  # how often the run was resumed


class DamagedCheckpoint(Exception):
    """A checkpoint that was read and found damaged; it has been set aside."""


class Checkpointer:
    """Saves and restores the `state_dict` of each part of a run."""

    def __init__(self, run: Run, parts: dict[str, Any], interval: float):
        self.run = run
        self.parts = parts
        self.interval = interval  # least seconds between two checkpoints
        self.started = time.monotonic()
        self.last_started = self.started
        self.last_seconds = 0.0
        self.total_seconds = 0.0

    def is_due(self) -> bool:
        """Whether the interval is over, and one more checkpoint would leave all of them within `SHARE` of the time."""
        now = time.monotonic()
        seconds = self.total_seconds + self.last_seconds
        return now - self.last_started > self.interval and seconds < SHARE * (now - self.started)

    def save(self, progress: Progress, metrics: MetricsWriter) -> None:
        """Replace the checkpoint; the rows logged so far are on disk before it is.  Raises OSError."""
        self.last_started = time.monotonic()
        os.fsync(metrics.file.fileno())
        logged = metrics.written()
        progress.offset = logged.bytes
        progress.logged = logged.sha256
        write_atomic(self.run.checkpoint_file, self.packed(progress), self.run.check)
        self.last_seconds = time.monotonic() - self.last_started
        self.total_seconds += self.last_seconds

    def packed(self, progress: Progress) -> bytes:
        """The checkpoint as bytes."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state["progress"] = dataclasses.asdict(progress)
        state["run"] = self.run.folder.name
        file = io.BytesIO()  # writing to disk, torch.save would hide that the disk is full behind an error of its own
        torch.save(state, file)
        return file.getvalue()

    def load(self, device: torch.device) -> Progress:
        """Restore the run's checkpoint, if it has one.

        Raises DamagedCheckpoint after setting aside one that was read and found damaged.  Any other error, as of full
        memory or a disk that cannot be read now, says nothing about the checkpoint, which stays.
        """
        path = self.run.checkpoint_file
        if not path.exists():
            return Progress()
        damage = find_damage(path)
        if damage:
            raise self.refused(damage, path)
        try:
            with open(path, "rb", opener=regular) as file:
                state = torch.load(file, map_location=device, weights_only=True)
        except pickle.UnpicklingError:
            raise self.refused("it holds more than tensors and numbers", path) from None
        except RuntimeError as error:
            if "PytorchStreamReader" not in str(error):  # full memory is no damage
                raise
            raise self.refused(f"it is damaged: {first_line(error)}", path) from None
        if state.pop("run") != self.run.key:
            raise self.refused("it is of another run", path)
        progress = Progress(**state.pop("progress"))
        log = self.run.metrics_file
        if not log.exists():
            raise self.refused(f"{log.name} is gone", path)
        with open(log, "rb", opener=regular) as file:
            logged = file.read(progress.offset)
        if digest(logged) != progress.logged:
            raise self.refused(f"the first {progress.offset:,} bytes of {log} are not what was logged", path, log)
        self.restore(state)
        progress.resumed += 1
        return progress

    def restore(self, state: dict[str, Any]) -> None:
        """Load the state of each part."""
        for name, part in self.parts.items():
            part.load_state_dict(state[name])

    def refused(self, reason: str, *files: Path) -> DamagedCheckpoint:
        """Set files aside, unless another process has taken over the run; returns the error to raise."""
        self.run.check()
        names = " and ".join(set_aside(file).name for file in files)
        return DamagedCheckpoint(
            f"{self.run.checkpoint_file} cannot be used ({reason}); set aside as {names}, trained again"
        )

    def share(self, progress: Progress, ranks: Ranks, device: torch.device) -> Progress:
        """Give every rank the state and the progress of rank 0, and return that progress."""
        if ranks.count == 1:
            return progress
        content = ranks.from_first(b"" if ranks.rank else self.packed(progress))
        if ranks.rank == 0:
            return progress
        state = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        self.restore(state)
        return Progress(**state["progress"])


def find_damage(path: Path) -> str:
    """What is wrong with a file of `torch.save`, which compares no checksums when it loads; "" if all are right.

    Raises OSError and MemoryError if the file cannot be read now.
    """
    with open(path, "rb", opener=regular) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(part.file_size for part in archive.infolist())
                if unpacked > os.fstat(file.fileno()).st_size:
                    return "it unpacks to more than it holds: no run wrote it"
                damaged_part = archive.testzip()
        except Exception as error:  # zipfile can raise any exception on damaged bytes
            if is_of_reading(error):
                raise
            return f"it is damaged: {error}"
    return f"it is damaged: the checksum of {damaged_part} does not fit" if damaged_part else ""
