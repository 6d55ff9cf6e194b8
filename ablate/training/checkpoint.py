"""Checkpoints, written atomically with a digest of the metrics logged so far, which must match when a run resumes."""

import copy
import dataclasses
import math
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ablate.config.files import is_of_reading, regular
from ablate.results.atomic import digest, open_archive, set_aside, write_atomic
from ablate.results.run import MetricsWriter, Run
from ablate.training.devices import is_out_of_memory
from ablate.training.ranks import Ranks

SHARE = 0.03  # of the time, at most, that checkpoints take


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


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be used; it has been set aside."""


class Saver:
    """Writes a run's checkpoints in a thread; training waits only while its state is copied.

    They are at least `pause` seconds apart, and after the first, one is due only once it and those before take `SHARE`
    of the time.  What counts is the time that training waits and the processor's time of the thread.
    """

    def __init__(self, run: Run, metrics: MetricsWriter, parts: Mapping[str, Any], pause: float):
        self.run, self.metrics, self.parts, self.pause = run, metrics, parts, pause
        self.start = self.began = time.monotonic()  # of the process, and of the last checkpoint
        self.took, self.total, self.thread = 0.0, 0.0, ThreadPoolExecutor(1)
        self.written: Future[None] = self.thread.submit(lambda: None)  # its result waits, and raises the thread's error

    def is_due(self) -> bool:
        """Whether it is time for the next checkpoint.  Raises the error of the last one, if it could not be written."""
        if not self.written.done() or self.written.result():
            return False
        now = time.monotonic()
        return now - self.began > self.pause and SHARE * (now - self.start) > self.total + self.took

    def save(self, progress: Progress) -> None:
        """Copy progress and the `state_dict` of each part, to be written once the checkpoint before is."""
        self.written.result()
        self.began = time.monotonic()
        progress.offset, progress.logged = self.metrics.bytes, self.metrics.written().sha256
        states = {name: part.state_dict() for name, part in self.parts.items()}
        states["progress"] = dataclasses.asdict(progress)
        states = copied(states)
        self.took = time.monotonic() - self.began
        self.written = self.thread.submit(self.write, states)

    def write(self, states: dict[str, Any]) -> None:
        """Write a checkpoint."""
        began = time.thread_time()
        os.fsync(self.metrics.file.fileno())
        write_atomic(self.run.checkpoint_file, partial(torch.save, states), self.run.check)
        self.took += time.thread_time() - began
        self.total += self.took


def copied(states: dict[str, Any]) -> dict[str, Any]:
    """A copy of states in the CPU's memory, in which tensors that share memory do so, too."""
    copies, known = dict[int, torch.UntypedStorage](), dict[int, Any]()
    for x in (leaf for leaf in tree_leaves(states) if isinstance(leaf, torch.Tensor)):
        own, shape = x.untyped_storage(), (x.storage_offset(), x.shape, x.stride())
        if own._cdata not in copies:
            copies[own._cdata] = torch.UntypedStorage(own.nbytes()).copy_(own)
        known[id(x)] = x.new_empty(0, device="cpu").set_(copies[own._cdata], *shape)
    return copy.deepcopy(states, known)


def restore(run: Run, device: torch.device, parts: Mapping[str, Any]) -> Progress:
    """Load the run's checkpoint, if it has one, into its parts.  Raises DamagedCheckpoint after setting it aside, and
    the error of one that cannot be read now."""
    path, damaged = run.checkpoint_file, [run.checkpoint_file]
    if not path.exists():
        return Progress()
    try:
        with open_archive(path) as file:
            state = torch.load(file, map_location=device, weights_only=True)
        progress = Progress(**state["progress"])
        with open(run.metrics_file, "rb", opener=regular) as log:
            if digest(log.read(progress.offset)) != progress.logged:
                damaged.append(run.metrics_file)
                raise ValueError(f"the first {progress.offset:,} bytes of {log.name} are not what was logged")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    except Exception as error:  # torch.load can raise any exception on damaged bytes
        if is_passing(error):
            raise
        run.check()
        aside, why = " and ".join(set_aside(file).name for file in damaged), str(error).split("\n")[0][:200]
        raise DamagedCheckpoint(f"{path} cannot be used ({why}); set aside as {aside}, trained again") from None
    progress.resumed += 1
    return progress


def is_passing(error: Exception) -> bool:
    """Whether an error of loading says nothing about a checkpoint: memory is full, or the disk cannot be read now."""
    return is_of_reading(error) or is_out_of_memory(error) or "can't allocate memory" in str(error)


def share(progress: Progress, parts: Mapping[str, Any], ranks: Ranks) -> Progress:
    """Give all ranks of a run the state of rank 0; returns its progress."""
    if ranks.count > 1:
        states = {} if ranks.rank else copied({name: part.state_dict() for name, part in parts.items()})
        progress, states = ranks.from_first((progress, states))
        for name, state in states.items() if ranks.rank else ():
            parts[name].load_state_dict(state)
    return progress
