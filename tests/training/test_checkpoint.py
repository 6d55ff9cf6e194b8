"""Checkpoints: which damage is found, and what the time of writing them is."""

import zipfile
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ablate.runs.folder import MetricsWriter, Run
from ablate.training import checkpoint
from ablate.training.checkpoint import Checkpointer, DamagedCheckpoint, Progress

CPU = torch.device("cpu")


class Part:
    """A part of a run whose state is one tensor."""

    def __init__(self, values: torch.Tensor):
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state["values"]


@pytest.fixture
def saved(tmp_path) -> Run:
    """A run with a logged row and a checkpoint."""
    run = Run(tmp_path, "cell/s0-key")
    run.folder.mkdir(parents=True)
    metrics = MetricsWriter(run)
    metrics.write({"step": 1, "train/loss": 2.0})
    Checkpointer(run, {"part": Part(torch.arange(64.0))}, 0).save(Progress(step=1, first_loss=2.0), metrics)
    metrics.close()
    return run


def loaded(run: Run) -> tuple[Progress, torch.Tensor]:
    part = Part(torch.zeros(0))
    return Checkpointer(run, {"part": part}, 0).load(CPU), part.values


def test_a_checkpoint_is_loaded_as_it_was_saved(saved):
    progress, values = loaded(saved)
    assert values.equal(torch.arange(64.0))
    assert (progress.step, progress.resumed, progress.offset) == (1, 1, saved.metrics_file.stat().st_size)


def test_no_flipped_bit_is_loaded(saved):
    """Bytes between the parts of the archive mean nothing; all others are under a checksum."""
    content = saved.checkpoint_file.read_bytes()
    expected_progress, expected_values = loaded(saved)
    refused = 0
    for position in range(0, len(content), 5):
        flipped = bytearray(content)
        flipped[position] ^= 4
        saved.checkpoint_file.write_bytes(flipped)
        try:
            progress, values = loaded(saved)
        except DamagedCheckpoint:
            refused += 1
        else:
            assert progress == expected_progress and values.equal(expected_values), position
    assert refused > 50


@pytest.mark.parametrize("content", [b"", b"x", b"PK" * 100], ids=repr)
def test_what_is_no_archive_is_set_aside(content, saved):
    saved.checkpoint_file.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match=r"it is damaged.*set aside as checkpoint.pt.corrupt, trained again"):
        loaded(saved)
    assert not saved.checkpoint_file.exists() and saved.checkpoint_file.with_name("checkpoint.pt.corrupt").exists()


def test_an_archive_that_unpacks_to_more_than_it_holds_is_set_aside(saved):
    with zipfile.ZipFile(saved.checkpoint_file, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data/0", bytes(2**22))
    with pytest.raises(DamagedCheckpoint, match="it unpacks to more than it holds"):
        loaded(saved)


@pytest.mark.parametrize(
    ("interval", "cost", "steps"), [(0, 0, range(1, 30)), (25, 0.5, range(3, 30, 3)), (0, 3, (1, 20)), (1e9, 0, ())]
)
def test_a_checkpoint_is_written_once_its_time_has_come(interval, cost, steps, tmp_path, monkeypatch):
    """Steps take 10 s, writing a checkpoint `cost`, which may be 3 % of the time."""
    now = 0.0
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: now))
    run = Run(tmp_path, "cell/s0-key")
    run.folder.mkdir(parents=True)
    metrics = MetricsWriter(run)
    checkpointer = Checkpointer(run, {}, interval)

    def write(*arguments):
        nonlocal now
        now += cost

    monkeypatch.setattr(checkpoint, "write_atomic", write)
    saved = []
    for step in range(1, 30):
        now += 10
        if checkpointer.is_due():
            checkpointer.save(Progress(step=step), metrics)
            saved.append(step)
    assert saved == [*steps]
