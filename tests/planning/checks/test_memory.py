"""The memory that a cell needs: counted without computing, the same when computed, refused where it is not there."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from composed import composed
from conftest import latest

from ablate.model.build import build_model
from ablate.planning.checks import memory
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.plan import PlanError


def checked(small: list[str], *overrides: str) -> Checked:
    """A cell that has passed its own checks; nothing of it is tried out."""
    words = latest(*small, *overrides)
    [cell], problems = Validator().validate([composed(*words)])
    assert not problems
    return cell


def really_saved(cell: Checked, rows: int) -> int:
    """Bytes that autograd saves of a batch computed on the CPU, with the CPU's own kernels."""
    saved: dict[int, torch.Tensor] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        saved.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    model = build_model(cell.config, cell.task)
    inputs = {name: x.expand(rows, *x.shape[1:]).clone() for name, x in cell.task.blank().items()}
    lasting = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *model.buffers(), *inputs.values())}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        logits = model(**inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), torch.zeros(logits.shape[:-1], dtype=torch.long).flatten())
    assert loss.isfinite()
    return sum(x.untyped_storage().nbytes() for place, x in saved.items() if place not in lasting)


@pytest.mark.parametrize("overrides", ["norm=ln", "ffn=swiglu residual=sandwich norm=bn model.dropout=0.1"])
def test_what_backward_saves_is_what_it_would_save(overrides, small):
    cell = checked(small, "model.layers=2", *overrides.split())
    saved = memory.count_memory(cell.config, cell.task, 8)["saved"]
    assert saved == pytest.approx(really_saved(cell, 8), rel=0.15)


def test_the_estimate_has_all_its_parts(small, monkeypatch):
    cell = checked(small)
    params = 10**9
    monkeypatch.setattr(memory, "once", lambda *_: {"saved": 10**9, "logits": 10**8, "trained": params})
    cell = cell._replace(budget=dataclasses.replace(cell.budget, params=params))

    def in_use(config):
        return (memory.needed(cell._replace(config=config)) - memory.PROCESS["cpu"]) / memory.HEAP["cpu"]

    assert in_use(cell.config) == pytest.approx(16 * params + 10**9 + 2 * 10**8), "weights, gradients, Adam's moments"
    averaged = cell.config.with_value("train.average", "ema").with_value("train.precision", "bf16")
    assert in_use(averaged) == pytest.approx(20 * params + memory.HALF * 10**9 + 2 * 10**8)


@pytest.mark.parametrize("words", ["norm=ln", "attention=window position=alibi", "ffn=swiglu norm=bn"])
def test_no_cell_needs_more_than_its_bound(words, small):
    """Below which nothing is counted."""
    for size in ((), ("data.context=64", "model.dim=64", "train.batch_size=256")):
        cell = checked(small, *words.split(), *size)
        assert 0 < memory.needed(cell) < memory.at_most(cell)


def test_a_cell_that_cannot_fit_is_named(plan, monkeypatch):
    monkeypatch.setattr(memory, "memory_of", lambda device: 2e9)
    with pytest.raises(PlanError) as error:
        plan("ffn=mlp,swiglu", "train.parallel=2", "train.batch_size=40000")
    lines = str(error.value).splitlines()
    assert len(lines) == 2 and all("of the 1.0 GB that each process on this machine can have" in line for line in lines)
    assert lines[0].startswith("mlp needs about ")
    assert plan("ffn=mlp,swiglu", "train.parallel=2").manifest.cells
