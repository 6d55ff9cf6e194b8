"""The memory that a cell needs: counted without computing, the same when computed, refused where it is not there."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from composed import composed
from conftest import ROOT, latest

from ablate.model.build import build_model
from ablate.planning.checks import memory
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.plan import PlanError

# Trains two steps of a cell, and prints what that takes beyond the process itself: as estimated, and its peak in /proc.
MEASURE = """
import json, sys
import torch
import torch.nn.functional as F
from ablate.model.build import initialised_model
from ablate.planning.checks.memory import PROCESS, needed
from ablate.planning.checks.validate import Validator
from ablate.planning.plan import check_cell
from ablate.training.optim import adamw

def resident(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name)]
    return 1024 * int(line.split()[1])

torch.set_num_threads(1)
[cell], _ = Validator().validate([check_cell(sys.argv[1:])])
estimated = needed(cell) - PROCESS["cpu"]
# What a first batch, product, backward pass and optimiser load is no memory of the cell's.
cell.task.batch(0, 0, 1)
loose = torch.nn.Linear(64, 64)
first = adamw(loose, 1e-3, [0.9, 0.99], 0.1)
F.cross_entropy(loose(torch.randn(64, 64)), torch.zeros(64, dtype=torch.long)).backward()
first.step()
open("/proc/self/clear_refs", "w").write("5")  # the peak so far is forgotten
before = resident("VmRSS")
model = initialised_model(cell.config, cell.task, 0)
optimiser = adamw(model, 1e-3, [0.9, 0.99], 0.1)
for step in range(2):
    batch = cell.task.batch(0, step, cell.config.train.batch_size)
    logits = model(**batch.inputs)
    F.cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten()).backward()
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
print(json.dumps([estimated, resident("VmHWM") - before]))
"""


def checked(small: list[str], *overrides: str) -> Checked:
    """A cell that has passed its own checks; nothing of it is tried out."""
    words = latest(*small, *overrides)
    [cell], problems = Validator().validate([composed(*words).config])
    assert not problems
    return cell


def really_kept(cell: Checked, batch: int) -> int:
    """Bytes that autograd keeps of a batch computed on the CPU, with the CPU's own kernels."""
    kept: dict[int, torch.Tensor] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    model = build_model(cell.config, cell.task)
    inputs = {name: x.expand(batch, *x.shape[1:]).clone() for name, x in cell.task.blank().items()}
    own = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *model.buffers(), *inputs.values())}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        logits = model(**inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), torch.zeros(logits.shape[:-1], dtype=torch.long).flatten())
    assert loss.isfinite()
    return sum(x.untyped_storage().nbytes() for key, x in kept.items() if key not in own)


@pytest.mark.parametrize(
    "overrides",
    [
        "norm=ln position=alibi",
        "position=t5 norm=rms attention=window attention.window=5",
        "ffn=swiglu residual=sandwich norm=bn model.dropout=0.1",
        "attention=gated attention.kv_heads=1 model.share_layers=true",
    ],
)
def test_what_backward_keeps_is_what_it_would_keep(overrides, small):
    cell = checked(small, "model.layers=2", *overrides.split())
    saved = memory.count_memory(cell.config, cell.task, 8)["saved"]
    assert saved == pytest.approx(really_kept(cell, 8), rel=0.002)


def test_the_estimate_has_all_its_parts(small, monkeypatch):
    cell = checked(small)
    params = 10**9
    facts = {"saved": 10**9, "largest": 10**8, "trained": params}
    monkeypatch.setattr(memory, "once", lambda *_: facts)
    cell = cell._replace(budget=dataclasses.replace(cell.budget, params=params))

    def in_use(config):
        return (memory.needed(cell._replace(config=config)) - memory.PROCESS["cpu"]) / memory.HEAP["cpu"]

    assert in_use(cell.config) == pytest.approx(16 * params + 10**9 + 2 * 10**8), "weights, gradients, Adam's moments"
    averaged = cell.config.with_value("train.average", "ema").with_value("train.precision", "bf16")
    assert in_use(averaged) == pytest.approx(20 * params + memory.HALF * 10**9 + 2 * 10**8)


def test_parts_hold_the_activations_of_one(small):
    one = checked(small, "train.batch_size=8")
    eight = checked(small, "train.parts=8", "train.batch_size=8")
    saved = [memory.count_memory(cell.config, cell.task, cell.config.train.part_rows)["saved"] for cell in (one, eight)]
    assert saved[0] == pytest.approx(8 * saved[1], rel=0.05)


def test_a_frozen_table_has_neither_gradient_nor_moments(small):
    """Its numbers count once, those of a trained one four times: with the gradient, and Adam's two moments."""
    rows, width = 256, 2**15
    sizes = ("model.tie_embeddings=false", f"embedding.width={width}")
    cells = [checked(small, *sizes, f"embedding={name}") for name in ("learned", "random")]
    trained, frozen = map(memory.needed, cells)
    assert cells[0].budget.params == cells[1].budget.params > rows * width
    assert trained - frozen == pytest.approx(memory.HEAP["cpu"] * 12 * rows * width, rel=0.01)


@pytest.mark.parametrize(
    ("words", "numbers"), [("optim=adamw", 2), ("optim=lion", 1), ("optim=sgd", 1), ("optim=adafactor", 0)]
)
def test_an_optimiser_holds_so_many_numbers_for_each_parameter(words, numbers, small):
    """AdamW two moments; Lion and SGD one."""
    cell = checked(small, words)
    assert memory.moments_of(cell.config) == numbers
    free = dataclasses.replace(cell.config, optim=dataclasses.replace(cell.config.optim, _target_="mine.Adafactor"))
    assert memory.moments_of(free) == 2, "of a user's optimiser nothing is known"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells a process's peak anew")
@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_the_estimate_is_near_what_a_process_takes(scale, tmp_path):
    words = [f"scale={scale}", "train.batch_size=64", "track=none", f"results_dir={tmp_path}", "seeds=1"]
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    estimated, measured = json.loads(ended.stdout)
    assert 0.6 < estimated / measured < 1.6


@pytest.mark.parametrize("words", ["norm=ln", "attention=window position=alibi", "ffn=swiglu norm=bn"])
def test_no_cell_needs_more_than_its_bound(words, small):
    """Below which nothing is counted."""
    for size in ((), ("data.context=64", "model.dim=64", "train.batch_size=256")):
        cell = checked(small, *words.split(), *size)
        assert memory.needed(cell) < memory.at_most(cell)


def test_a_cell_that_cannot_fit_is_named(plan, monkeypatch):
    monkeypatch.setattr(memory, "memory_of", lambda device: 2e9)
    with pytest.raises(PlanError) as error:
        plan("ffn=mlp,swiglu", "train.parallel=2", "train.batch_size=40000")
    lines = str(error.value).splitlines()
    assert len(lines) == 2 and all("of the 1.0 GB that each process on this machine can have" in line for line in lines)
    assert lines[0].startswith("mlp needs about ") and lines[0].endswith(
        "; write a smaller train.batch_size or model.dim"
    )
    with pytest.raises(PlanError, match=r"train\.parallel=") as error:
        plan("ffn=mlp", "train.parallel=8", "train.batch_size=8000")
    fewer = str(error.value).rpartition(", or ")[2]
    assert plan("ffn=mlp", fewer, "train.batch_size=8000").manifest.cells, "what the message says to write"
    assert plan("ffn=mlp,swiglu", "train.parallel=2").manifest.cells


def test_of_a_gpu_that_is_not_here_the_memory_that_is_named_is_checked(plan, refused, monkeypatch):
    monkeypatch.setattr(memory, "environments", lambda *_: [])
    words = ("train.device=cuda", "train.batch_size=20000", "seeds=1")
    assert memory.UNASKED in plan(*words).notes
    [line] = refused(*words, "train.memory=1GB")
    assert "of the 1.0 GB that each process on a GPU can have" in line
    assert any(note.startswith("memory: about ") for note in plan(*words, "train.memory=80GB").notes)


def test_cells_share_a_gpu_as_the_largest_step_allows(plan, monkeypatch):
    asked: list[float] = []
    monkeypatch.setattr(memory, "environments", lambda *given: asked.append(given[-1]) or [{}])
    cells = plan("ffn=mlp,swiglu").manifest.cells
    assert asked == [max(cell.flops_per_step for cell in cells)] * 2 and len({c.flops_per_step for c in cells}) == 2


def test_processes_that_share_a_memory():
    two = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    assert memory.sharing(two, 10) == (1, 2) and memory.sharing(two * 3, 10) == (3, 2)
    assert memory.sharing([{}] * 4, 10) == (4, 1) and memory.sharing([{}] * 4, 1) == (1, 1)
