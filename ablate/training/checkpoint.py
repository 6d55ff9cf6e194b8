"""Checkpoints, written atomically with a digest of the metrics logged so far, which must match when a run resumes."""

import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ablate.config.files import regular
from ablate.results.atomic import digest, sealed_archive, set_aside, unsealed_archive, write_atomic
from ablate.results.run import MetricsWriter, Run


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


def save(run: Run, progress: Progress, metrics: MetricsWriter, parts: Mapping[str, Any]) -> None:
    """Write a run's checkpoint atomically, with the `state_dict` of each part."""
    progress.offset, progress.logged = metrics.offset(), metrics.written().sha256
    buffer = io.BytesIO()
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save(states | {"progress": dataclasses.asdict(progress)}, buffer)
    write_atomic(run.checkpoint_file, sealed_archive(buffer.getvalue()), run.check)


def restore(run: Run, device: torch.device, parts: Mapping[str, Any]) -> Progress:
    """Load the run's checkpoint, if it has one, into its parts.  Raises DamagedCheckpoint after setting it aside."""
    path = run.checkpoint_file
    if not path.exists():
        return Progress()
    try:
        with open(path, "rb", opener=regular) as file:
            archive = io.BytesIO(unsealed_archive(file.read()))
        state = torch.load(archive, map_location=device, weights_only=True)
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
