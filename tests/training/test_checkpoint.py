"""Checkpoints: which damage is found, and what the time of writing them is."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.runs.folder import MetricsWriter, Run
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
def saved(tmp_path: Path) -> Run:
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


def test_a_checkpoint_is_loaded_as_it_was_saved(saved: Run) -> None:
    progress, values = loaded(saved)
    assert values.equal(torch.arange(64.0))
    assert (progress.step, progress.resumed, progress.offset) == (1, 1, saved.metrics_file.stat().st_size)


def test_no_flipped_bit_is_loaded(saved: Run) -> None:
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
def test_what_is_no_archive_is_set_aside(content: bytes, saved: Run) -> None:
    saved.checkpoint_file.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match=r"it is damaged.*set aside as checkpoint.pt.corrupt, trained again"):
        loaded(saved)
    assert not saved.checkpoint_file.exists() and saved.checkpoint_file.with_name("checkpoint.pt.corrupt").exists()


def test_an_archive_that_unpacks_to_more_than_it_holds_is_set_aside(saved: Run) -> None:
    with zipfile.ZipFile(saved.checkpoint_file, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data/0", bytes(2**22))
    with pytest.raises(DamagedCheckpoint, match="it unpacks to more than it holds"):
        loaded(saved)


def test_an_archive_of_more_than_tensors_is_set_aside(saved: Run) -> None:
    torch.save({"run": Path("/")}, saved.checkpoint_file)
    with pytest.raises(DamagedCheckpoint, match="more than tensors"):
        loaded(saved)
