"""The loop against one written by hand, bit for bit, and batches and masks that depend on seed and step alone."""

import contextlib
import hashlib
import math
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import ROOT, latest
from model_variants import COVER
from reference_config import component
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ablate.config.schema import Config
from ablate.data.task import Batch, build_task
from ablate.execution.train_run import with_facts
from ablate.model.build import initialised_model
from ablate.model.dropout import Dropout
from ablate.planning.plan import check_study
from ablate.runs.folder import Run
from ablate.runs.records import Result
from ablate.training import checkpoint, gradients
from ablate.training import clock as clocks
from ablate.training import trainer as loop
from ablate.training.clock import PHASES, Clock
from ablate.training.divergence import Diverged
from ablate.training.trainer import Interrupted, Trainer

SEED, STEPS, WARMUP, LR, FLOOR, CLIP, DECAY = 3, 5, 2, 0.01, 0.2, 0.05, 0.3
LOOP = [f"train.steps={STEPS}", "train.log_every=1", "train.eval_every=2", f"optim.warmup={WARMUP}", f"optim.lr={LR}"]
LOOP += [f"optim.min_lr_ratio={FLOOR}", f"optim.grad_clip={CLIP}", f"optim.weight_decay={DECAY}"]
LOOP += ["optim.betas=[0.8,0.95]", "model.dropout=0.2", "model.layers=2"]
CELLS = {
    "reference": [],
    "other": ["norm=rms", "ffn=swiglu", "residual=post", "position=learned", "attention=qk_norm", "init=gpt2"],
    "linear": ["schedule=linear", "norm=bn", "model.tie_embeddings=true"],
}
pytestmark = pytest.mark.usefixtures("untried", "checks_here")


def configured(small: list[str], *overrides: str) -> dict[str, Any]:
    """The resolved configuration of one cell."""
    config: Config = check_study(latest(*small, *LOOP, *overrides), None).cells.rows[0].config
    return config


def trainer_of(config: Config, folder: Path, seed: int = SEED) -> Trainer:
    (folder / "runs" / "a" / "b").mkdir(parents=True, exist_ok=True)
    return Trainer(Run(folder, "a/b"), config, seed)


def clock(now: list[float]) -> SimpleNamespace:
    """The module `time`, at a second that the test sets."""
    return SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: 0, process_time=lambda: 0)


def rate(step: int, schedule: str) -> float:
    """The learning rate of update 0 … 4: two of warm-up, then from the peak to the floor at the last."""
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - 1 - WARMUP)
    left = {"Cosine": (1 + math.cos(math.pi * done)) / 2, "Linear": 1 - done}[schedule]
    return LR * (FLOOR + (1 - FLOOR) * left)


def key_of(site: str, seed: int, step: int) -> int:
    """The key of a dropout site's mask in one step."""
    return int.from_bytes(hashlib.sha256(f"dropout/{seed}/{step}/{site}".encode()).digest()[:8], "little", signed=True)


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW whose matrices decay and whose vectors do not."""
    matrices, vectors = ([p for p in model.parameters() if (p.ndim > 1) == decays] for decays in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.8, 0.95), fused=True)


def held_out_loss(model: nn.Module, task: Any, split: str) -> float:
    """Mean loss of the held-out targets, without dropout."""
    held_out = task.held_out(split, 256)
    model.eval()
    with torch.no_grad():
        logits = model(**held_out.inputs).flatten(0, -2)
    model.train()
    losses = F.cross_entropy(logits, held_out.targets.flatten(), reduction="none")
    return float(losses.double().numpy().mean())


def by_hand(config: Config) -> tuple[list[dict[str, Tensor]], list[dict[str, float]]]:
    """The weights after each of five steps, and what is logged before the first and after each."""
    task = build_task(config)
    model = initialised_model(config, task, SEED)
    optimiser, tokens = two_groups(model), config.train.batch_size * config.data["context"]
    schedule = config.schedule["_target_"].rpartition(".")[2]
    weights, rows = [], [{"step": 0, "tokens": 0, "val/loss": held_out_loss(model, task, "val")}]
    for step in range(STEPS):
        for site, module in model.named_modules():
            if isinstance(module, Dropout):
                module.key.fill_(key_of(site, SEED, step))
        batch = task.batch(SEED, step, config.train.batch_size)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(**batch.inputs).flatten(0, -2), batch.targets.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        assert norm > CLIP, "it is clipped in every step"
        for group in optimiser.param_groups:
            group["lr"] = rate(step, schedule)
        optimiser.step()
        weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        row = {"step": step + 1, "tokens": (step + 1) * tokens, "train/loss": loss.item(), "grad_norm": norm.item()}
        row["lr"] = rate(step, schedule)
        if (step + 1) % 2 == 0 or step + 1 == STEPS:
            row["val/loss"] = held_out_loss(model, task, "val")
        if step + 1 == STEPS:
            row["test/loss"] = held_out_loss(model, task, "test")
        rows.append(row)
    return weights, rows


@pytest.mark.parametrize("cell", CELLS)
def test_five_steps_are_those_of_a_loop_written_by_hand(cell: str, small: list[str], tmp_path: Path) -> None:
    config = configured(small, *CELLS[cell])
    weights, rows = by_hand(config)
    trainer, seen = trainer_of(config, tmp_path), list[dict[str, Tensor]]()
    assert len(trainer.optimiser.param_groups) == 2
    train_step = trainer.train_step

    def watched(step: int) -> Any:
        found = train_step(step)
        seen.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
        return found

    trainer.train_step = watched  # type: ignore[method-assign]
    final = trainer.train(lambda: False)
    assert len(seen) == STEPS
    for step, (ours, theirs) in enumerate(zip(seen, weights, strict=True)):
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == [], f"after update {step}"
    logged, _ = trainer.run.metrics()
    known = ("step", "tokens", "train/loss", "lr", "grad_norm", "val/loss", "test/loss")
    assert [{key: value for key, value in row.items() if key in known} for row in logged] == rows
    assert {key: final[key] for key in known if "/" in key} == {key: rows[-1][key] for key in known if "/" in key}


def fed(trainer: Trainer, steps: int) -> list[tuple[dict[str, Tensor], Tensor]]:
    """The inputs that the model is given in each training step, and the targets that the task gave with them."""
    inputs: list[dict[str, Tensor]] = []
    targets: list[Tensor] = []
    real = trainer.task.batch

    def batch(seed: int, step: int, size: int) -> Batch:
        found = real(seed, step, size)
        targets.append(found.targets.clone())
        return found

    def note(module: nn.Module, args: Any, given: dict[str, Tensor]) -> None:
        inputs.append({name: tensor.clone() for name, tensor in given.items()})

    trainer.task.batch = batch  # type: ignore[method-assign]
    handle = trainer.model.register_forward_pre_hook(note, with_kwargs=True)
    for step in range(steps):
        trainer.train_step(step)
    handle.remove()
    return list(zip(inputs, targets, strict=True))


def same(first: tuple[dict[str, Tensor], Tensor], second: tuple[dict[str, Tensor], Tensor]) -> bool:
    return all(torch.equal(first[0][name], second[0][name]) for name in first[0]) and torch.equal(first[1], second[1])


def test_every_variant_sees_the_batches_of_its_seed_and_each_of_them_once(small: list[str], tmp_path: Path) -> None:
    config = configured(small)
    task = build_task(config)
    batches = [task.batch(SEED, step, config.train.batch_size) for step in range(2)]
    expected = [(batch.inputs, batch.targets) for batch in batches]
    assert not same(*expected)
    for cell in COVER:
        chosen = config.with_value("model.tie_embeddings", cell["embedding"] != "random")
        for group, variant in cell.items():
            node = component(group, variant)
            node |= {name: 1 for name in ("epochs", "steps") if name in node}  # of training vectors
            chosen = chosen.with_value(group, node)
        seen = fed(trainer_of(chosen, tmp_path), 2)
        assert len(seen) == 2 and all(map(same, seen, expected)), f"{cell} sees other batches"


@pytest.mark.parametrize(
    ("interval", "cost", "steps"), [(0, 0, range(1, 30)), (25, 0.5, range(3, 30, 3)), (0, 3, (1, 20)), (1e9, 0, ())]
)
def test_a_checkpoint_is_written_once_its_time_has_come(interval, cost, steps, small, tmp_path, monkeypatch) -> None:
    """Steps take 10 s, writing a checkpoint `cost`, which may be 3 % of the time."""
    config = configured(small, f"train.checkpoint_seconds={interval}", "train.steps=30", "train.eval_every=30")
    now = [0.0]
    saved: list[int] = []
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: now[0]))
    trainer = trainer_of(config, tmp_path)
    train_step = trainer.train_step
    write_atomic = checkpoint.write_atomic

    def slow_step(step: int) -> Any:
        now[0] += 10
        return train_step(step)

    def slow_write(*arguments: Any) -> None:
        now[0] += cost
        saved.append(trainer.progress.step)
        write_atomic(*arguments)

    monkeypatch.setattr(trainer, "train_step", slow_step)
    monkeypatch.setattr(checkpoint, "write_atomic", slow_write)
    trainer.train(lambda: False)
    assert saved == [*steps] and trainer.run.checkpoint_file.exists() == bool(saved)


def test_a_checkpoint_restores_the_state_of_every_part(small, tmp_path) -> None:
    words = ["norm=bn", "train.average=ema", "model.tie_embeddings=true", "optim=muon"]
    trainer = trainer_of(configured(small, *words), tmp_path)
    for step in range(2):
        trainer.train_step(step)
    trainer.progress.step = 2
    trainer.save()
    restored = trainer_of(configured(small, *words), tmp_path)
    assert restored.progress.step == 2
    before, after = (
        tree_flatten({name: part.state_dict() for name, part in one.checkpointer.parts.items() if name != "clock"})
        for one in (trainer, restored)
    )
    assert before[1] == after[1] and len(before[0]) > 50
    assert all(a.equal(b) if isinstance(a, Tensor) else a == b for a, b in zip(before[0], after[0], strict=True))
    stored = [name for name in zipfile.ZipFile(trainer.run.checkpoint_file).namelist() if "/data/" in name]
    assert len(stored) == len({x.data_ptr() for x in before[0] if isinstance(x, Tensor)}), "what is tied is stored once"


@pytest.mark.parametrize(("words", "stops", "step"), [((), False, 1), ((), True, 0), (("keep=all",), False, STEPS)])
def test_a_checkpoint_that_cannot_be_written_ends_the_run(words, stops, step, small, tmp_path, monkeypatch) -> None:
    """One between two steps, at a stop, or of the last step; the log is closed."""
    interval = "train.checkpoint_seconds=0" if not words else "train.checkpoint_seconds=1000"
    trainer = trainer_of(configured(small, interval, *words), tmp_path)
    monkeypatch.setattr(checkpoint, "write_atomic", raising(OSError(5, "no such luck")))
    with pytest.raises(OSError, match="no such luck"):
        trainer.train(lambda: stops)
    assert trainer.progress.step == step and trainer.metrics.file.closed


def raising(error: Exception) -> Any:
    """A function that fails."""

    def fail(*_: Any) -> None:
        raise error

    return fail


def test_an_error_of_the_run_is_reported_where_no_checkpoint_can_be_written(small, tmp_path, monkeypatch) -> None:
    trainer = trainer_of(configured(small, "train.checkpoint_seconds=0", "keep=all"), tmp_path)
    monkeypatch.setattr(checkpoint, "write_atomic", raising(OSError(5, "no such luck")))
    monkeypatch.setattr(trainer, "train_step", raising(Diverged("the loss is not finite")))
    with pytest.raises(Diverged):
        trainer.train(lambda: False)
    assert trainer.metrics.file.closed


def test_each_second_is_that_of_one_phase_and_speed_is_that_of_training_alone(small, tmp_path, monkeypatch) -> None:
    cells = check_study(latest(*small, *LOOP, "keep=all"), None).cells
    trainer, now = trainer_of(cells.rows[0].config, tmp_path), [0.0]
    trainer.clock = Clock()
    monkeypatch.setattr(clocks, "time", clock(now))
    slow = {"data": (trainer.task, "batch"), "forward_backward": (gradients.Gradients, "by_parts")}
    slow |= {"optimiser": (trainer.average, "update"), "evaluate": (loop, "measure")}
    slow |= {"log": (trainer.metrics, "write"), "checkpoint": (checkpoint, "write_atomic")}

    def taking(seconds: int, call: Any) -> Any:
        def slowly(*given: Any) -> Any:
            now[0] += seconds
            return call(*given)

        return slowly

    for i, (where, name) in enumerate(slow.values()):
        monkeypatch.setattr(where, name, taking(10**i, getattr(where, name)))
    trainer.train(lambda: False)
    times = {"data": 5, "forward_backward": 5, "optimiser": 5, "evaluate": 4, "log": 6, "checkpoint": 1}
    seconds = {phase: count * 10**i for i, (phase, count) in enumerate(times.items())}
    assert trainer.clock.seconds == dict.fromkeys(PHASES, 0) | seconds
    result = with_facts(Result(status="done", final={}), trainer, cells.rows[0])
    assert result.step_seconds == 111 and result.tokens_per_second == pytest.approx(4 * 16 / 111)


def test_speed_is_that_of_the_steps_after_each_process_s_first_ones(small, tmp_path, monkeypatch) -> None:
    config, now = configured(small, "train.steps=40", "train.eval_every=20"), [0.0]
    cell = check_study(latest(*small), None).cells.rows[0]
    slow = dict.fromkeys(range(10), 100.0) | dict.fromkeys(range(24, 34), 50.0)

    def took(asked: int) -> Result:
        trainer = trainer_of(config, tmp_path)
        first = trainer.progress.step
        train_step = trainer.train_step

        def slowly(step: int) -> Any:
            with trainer.clock.timed("forward_backward"):
                now[0] += slow.get(step, 1.0)
            return train_step(step)

        trainer.train_step = slowly  # type: ignore[method-assign]
        with contextlib.suppress(Interrupted):
            trainer.train(lambda: trainer.progress.step == first + asked)
        return with_facts(Result(status="done", final={}), trainer, cell)

    monkeypatch.setattr(clocks, "time", clock(now))
    first, again = took(24), took(40)
    assert first.step_seconds == 1, "of the first ten nothing is counted"
    assert again.resumed == 1 and again.step_seconds == 1, "nor of the first ten of the process that went on"
    spent = [result.seconds["forward_backward"] for result in (first, again)]
    assert spent == [10 * 100 + 14, 10 * 100 + 14 + 10 * 50 + 6], "but all seconds are those of both"


@pytest.mark.slow  # an interpreter that loads torch
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone lets a peak of memory begin anew")
def test_the_peak_of_memory_is_that_of_a_run_alone() -> None:
    code = """
import torch
from ablate.training.devices import configure_torch, peak_memory, reset_peak_memory
configure_torch()
cpu = torch.device("cpu")
reset_peak_memory(cpu)
small = peak_memory(cpu)
torch.zeros(25_000_000).add_(1)
large = peak_memory(cpu)
reset_peak_memory(cpu)
print(large - small > 80e6, peak_memory(cpu) - small < 40e6)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_each_group_of_an_optimiser_keeps_its_own_rate_in_the_schedule(small, tmp_path, monkeypatch) -> None:
    (tmp_path / "two_rates.py").write_text(
        "import torch\n\n\ndef two_rates(model, lr, betas, weight_decay):\n"
        "    vectors = [p for p in model.parameters() if p.ndim < 2]\n"
        "    matrices = [p for p in model.parameters() if p.ndim > 1]\n"
        "    groups = [{'params': matrices, 'lr': 0.25 * lr}, {'params': vectors}]\n"
        "    return torch.optim.AdamW(groups, lr=lr, betas=tuple(betas), weight_decay=weight_decay)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = configured(small, "user=[two_rates]", "optim._target_=two_rates.two_rates")
    trainer = trainer_of(config, tmp_path)
    for step in range(STEPS):
        lr = rate(step, "Cosine")
        assert trainer.train_step(step)[2] == pytest.approx(lr)
        assert [group["lr"] for group in trainer.optimiser.param_groups] == pytest.approx([0.25 * lr, lr])


NOISY = """
import torch
from torch import nn


class Noisy(nn.Module):
    def forward(self, x, mask=None):
        return x * (1 + 0.1 * torch.randn_like(x)) if self.training else x
"""


def test_draws_of_torch_s_own_generator_are_those_of_the_seed_and_the_step(small, tmp_path, monkeypatch) -> None:
    """In runs with parts from outside, which alone may draw from it."""
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    own = configured(small, "user=[noisy]", "optim.lr=1e-9").with_value("norm", {"_target_": "noisy.Noisy"})

    def losses(folder: str, seed: int, steps: list[int]) -> list[float]:
        trainer = trainer_of(own, tmp_path / folder, seed)
        torch.rand(len(steps))  # what a process did before is of no matter
        return [trainer.train_step(step)[0]["loss"].item() for step in steps]

    with torch.random.fork_rng(devices=[]):
        whole, rest = losses("a", 0, [0, 1, 2]), losses("b", 0, [2])
        assert rest[0] == pytest.approx(whole[2], abs=1e-6) and losses("c", 0, [0, 1]) == whole[:2]
        assert losses("d", 1, [2])[0] != pytest.approx(whole[2], abs=1e-6)
    trainer, before = trainer_of(configured(small), tmp_path / "e"), torch.get_rng_state()
    trainer.train_step(0)
    assert torch.equal(torch.get_rng_state(), before), "nothing of ours draws from it, or seeds it"


def test_gradients_are_not_clipped_with_null(small, tmp_path):
    configs = [check_study([*small, f"optim.grad_clip={clip}"]).cells.rows[0].config for clip in ("null", "1e9")]
    unclipped = trainer_of(configs[0], tmp_path / "null")
    wide = trainer_of(configs[1], tmp_path / "wide")
    for step in range(2):
        unclipped.train_step(step)
        wide.train_step(step)
    pairs = zip(unclipped.model.parameters(), wide.model.parameters(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
