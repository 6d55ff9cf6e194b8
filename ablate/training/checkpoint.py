"""Checkpoints, written atomically with a digest of the metrics logged so far, which must match when a run resumes."""

import copy
import dataclasses
import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ablate.config.files import regular
from ablate.results.atomic import digest, open_archive, set_aside, write_atomic
from ablate.results.run import MetricsWriter, Run
from ablate.training.ranks import Ranks

SHARE = 0.03  # of the time, at most, in which checkpoints are written


@dataclasses.dataclass
class Progress:
    """The progress of a run, saved in its checkpoint together with the state of each part."""

    step: int = 0
    tokens: int = 0  # positions of the batches so far
    offset: int = 0  # bytes of metrics.jsonl written up to this step
    logged: str = ""  # SHA-256 of those bytes
    first_loss: float = math.nan  # training loss of the first step
    high_loss_count: int = 0  # consecutive logged training losses that were too high
    resumed: int = 0  # how often the run was resumed


class DamagedLog(Exception):
    """The metrics logged before a checkpoint have changed since it was written."""


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be used; it has been set aside."""


class Saver:
    """Writes a run's checkpoints in a thread; training waits only while its state is copied.

    They are at least `least` seconds apart, or more if the last one took long: they may take `SHARE` of the time.
    """

    def __init__(self, run: Run, metrics: MetricsWriter, parts: Mapping[str, Any], least: float):
        self.run, self.metrics, self.parts, self.least = run, metrics, parts, least
        self.began, self.took, self.thread = time.monotonic(), 0.0, ThreadPoolExecutor(1)
        self.written: Future[None] = self.thread.submit(lambda: None)  # its result waits, and raises the thread's error

    def is_due(self) -> bool:
        """Whether it is time for the next checkpoint.  Raises the error of the last one, if it could not be written."""
        pause = max(self.least, self.took / SHARE)
        return self.written.done() and not self.written.result() and time.monotonic() - self.began > pause

    def save(self, progress: Progress) -> None:
        """Copy progress and the `state_dict` of each part, to be written once the checkpoint before is."""
        self.written.result()
        self.began = time.monotonic()
        progress.offset, progress.logged = self.metrics.bytes, self.metrics.written().sha256
        states = {name: part.state_dict() for name, part in self.parts.items()}
        states["progress"] = dataclasses.asdict(progress)
        self.written = self.thread.submit(self.write, copied(states))

    def write(self, states: dict[str, Any]) -> None:
        """Write a checkpoint."""
        self.metrics.sync()
        write_atomic(self.run.checkpoint_file, partial(torch.save, states), self.run.check)
        self.took = time.monotonic() - self.began


def copied(states: dict[str, Any]) -> dict[str, Any]:
    """A copy of states in the CPU's memory, in which tensors that share memory do so, too."""
    copies, known = dict[int, torch.UntypedStorage](), dict[int, Any]()
    for x in (leaf for leaf in tree_leaves(states) if isinstance(leaf, torch.Tensor)):
        storage = x.untyped_storage()
        if storage._cdata not in copies:
            copies[storage._cdata] = torch.UntypedStorage(storage.nbytes()).copy_(storage)
        known[id(x)] = x.new_empty(0, device="cpu").set_(
            copies[storage._cdata], x.storage_offset(), x.shape, x.stride()
        )
    return copy.deepcopy(states, known)


def restore(run: Run, device: torch.device, parts: Mapping[str, Any]) -> Progress:
    """Load the run's checkpoint, if it has one, into its parts.  Raises DamagedCheckpoint after setting it aside."""
    path = run.checkpoint_file
    if not path.exists():
        return Progress()
    try:
        with open_archive(path) as file:
            state = torch.load(file, map_location=device, weights_only=True)
        progress = Progress(**state["progress"])
        check_logged(run.metrics_file, progress)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except Exception as error:  # torch.load can raise any exception on damaged bytes
        run.check()
        damaged = [path, *([run.metrics_file] if isinstance(error, DamagedLog) else [])]
        aside, why = " and ".join(set_aside(file).name for file in damaged), str(error).split("\n")[0][:200]
        raise DamagedCheckpoint(f"{path} cannot be used ({why}); set aside as {aside}, trained again") from None
    progress.resumed += 1
    return progress


def share(progress: Progress, parts: Mapping[str, Any], ranks: Ranks) -> Progress:
    """Give all ranks of a run the state of rank 0; returns its progress."""
    if ranks.count > 1:
        states = {} if ranks.rank else copied({name: part.state_dict() for name, part in parts.items()})
        progress, states = ranks.from_first((progress, states))
        for name, state in states.items() if ranks.rank else ():
            parts[name].load_state_dict(state)
    return progress


def check_logged(metrics: Path, progress: Progress) -> None:
    """Raise ValueError if the metrics logged before a checkpoint are missing, DamagedLog if they have changed."""
    if not metrics.exists():
        raise ValueError(f"{metrics.name} is gone")
    with open(metrics, "rb", opener=regular) as file:
        found = file.read(progress.offset)
    if len(found) < progress.offset:
        raise DamagedLog(f"{metrics.name} has been cut: it is shorter than when the checkpoint was written")
    if digest(found) != progress.logged:
        raise DamagedLog(f"{metrics.name} is damaged: its first {progress.offset:,} bytes are not what was logged")
