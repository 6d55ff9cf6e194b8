"""The loop against one written by hand, bit for bit, and batches and masks that depend on seed and step alone."""

import contextlib
import hashlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from composed import check_study
from conftest import latest
from model_variants import COVER
from reference_config import component
from torch import Tensor, nn

from ablate.config.schema import Config
from ablate.data.task import Batch, build_task
from ablate.execution.train_run import with_facts
from ablate.model.build import initialised_model
from ablate.model.dropout import Dropout
from ablate.runs.folder import Run
from ablate.runs.records import Result
from ablate.training import checkpoint, gradients
from ablate.training import clock as clocks
from ablate.training import trainer as loop
from ablate.training.clock import PHASES, Clock
from ablate.training.devices import peak_memory, reset_peak_memory
from ablate.training.trainer import Interrupted, Trainer

SEED = 3
STEPS = 5
WARMUP = 2
LR = 0.01
FLOOR = 0.2
CLIP = 0.05
DECAY = 0.3
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
    config: Config = check_study(latest(*small, *LOOP, *overrides), None).rows[0].config
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


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW whose matrices decay and whose vectors do not."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
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
    optimiser = two_groups(model)
    tokens = config.train.batch_size * config.data["context"]
    schedule = config.schedule["_target_"].rpartition(".")[2]
    weights = []
    rows = [{"step": 0, "tokens": 0, "val/loss": held_out_loss(model, task, "val")}]
    for step in range(STEPS):
        for site, module in model.named_modules():
            if isinstance(module, Dropout):
                digest = hashlib.sha256(f"dropout/{SEED}/{step}/{site}".encode()).digest()
                module.key.fill_(int.from_bytes(digest[:8], "little", signed=True))
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
def test_five_steps_are_those_of_a_loop_written_by_hand(cell, small, tmp_path):
    config = configured(small, *CELLS[cell])
    weights, rows = by_hand(config)
    trainer = trainer_of(config, tmp_path)
    seen: list[dict[str, Tensor]] = []
    train_step = trainer.train_step

    def watched(step):
        metrics = train_step(step)
        seen.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
        return metrics

    trainer.train_step = watched
    final = trainer.train(lambda: False)
    for step, (ours, expected) in enumerate(zip(seen, weights, strict=True)):
        assert ours.keys() == expected.keys()
        assert [name for name in ours if not torch.equal(ours[name], expected[name])] == [], f"after update {step}"
    logged, _ = trainer.run.metrics()
    assert [{key: value for key, value in row.items() if key in rows[-1]} for row in logged] == rows
    assert final.items() >= {key: value for key, value in rows[-1].items() if "/" in key}.items()


def observed(trainer: Trainer, steps: int) -> tuple[list[dict[str, Tensor]], list[Batch]]:
    """What the model is given in each of the first training steps, and the batches whose gradients are computed."""
    inputs: list[dict[str, Tensor]] = []
    batches: list[Batch] = []
    by_parts = trainer.gradients.by_parts

    def recorded(batch: Batch) -> dict[str, Tensor]:
        batches.append(batch)
        return by_parts(batch)

    trainer.gradients.by_parts = recorded
    trainer.model.register_forward_pre_hook(lambda module, args, tensors: inputs.append(tensors), with_kwargs=True)
    for step in range(steps):
        trainer.train_step(step)
    return inputs, batches


def test_every_variant_sees_the_batches_of_its_seed_and_each_of_them_once(small, tmp_path):
    config = configured(small)
    task = build_task(config)
    expected = [task.batch(SEED, step, config.train.batch_size) for step in range(2)]
    assert not expected[0].targets.equal(expected[1].targets)
    for cell in COVER:
        chosen = config.with_value("model.tie_embeddings", cell["embedding"] != "random")
        for group, variant in cell.items():
            node = component(group, variant)
            node |= {name: 1 for name in ("epochs", "steps") if name in node}  # of training vectors
            chosen = chosen.with_value(group, node)
        inputs, batches = observed(trainer_of(chosen, tmp_path), 2)
        assert len(inputs) == len(batches) == 2
        for step, batch in enumerate(expected):
            assert batches[step].targets.equal(batch.targets), f"{cell} sees other targets"
            assert all(inputs[step][name].equal(tensor) for name, tensor in batch.inputs.items()), f"{cell}"


@pytest.mark.parametrize(("words", "stops", "step"), [((), False, 1), ((), True, 0), (("keep=all",), False, STEPS)])
def test_a_checkpoint_that_cannot_be_written_ends_the_run(words, stops, step, small, tmp_path, monkeypatch):
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


def test_gradients_are_not_clipped_with_null(small, tmp_path):
    assert trainer_of(configured(small, "optim.grad_clip=null"), tmp_path).step_rule.grad_clip == math.inf


def test_each_second_is_that_of_one_phase_and_speed_is_that_of_training_alone(small, tmp_path, monkeypatch):
    rows = check_study(latest(*small, *LOOP, "keep=all"), None).rows
    trainer = trainer_of(rows[0].config, tmp_path)
    now = [0.0]
    trainer.clock = Clock()
    monkeypatch.setattr(clocks, "time", clock(now))
    slow = {"data": (trainer.task, "batch"), "forward_backward": (gradients.Gradients, "by_parts")}
    slow |= {"optimiser": (trainer.average, "update"), "evaluate": (loop, "measure")}
    slow |= {"log": (trainer.metrics, "write"), "checkpoint": (checkpoint, "write_atomic")}

    def taking(seconds, call):
        def slowly(*given):
            now[0] += seconds
            return call(*given)

        return slowly

    for i, (where, name) in enumerate(slow.values()):
        monkeypatch.setattr(where, name, taking(10**i, getattr(where, name)))
    trainer.train(lambda: False)
    times = {"data": 5, "forward_backward": 5, "optimiser": 5, "evaluate": 4, "log": 6, "checkpoint": 1}
    seconds = {phase: count * 10**i for i, (phase, count) in enumerate(times.items())}
    assert trainer.clock.seconds == dict.fromkeys(PHASES, 0) | seconds
    result = with_facts(Result(status="done", final={}), trainer, rows[0])
    assert result.step_seconds == 111 and result.tokens_per_second == pytest.approx(4 * 16 / 111)


def test_speed_is_that_of_the_steps_after_each_process_s_first_ones(small, tmp_path, monkeypatch):
    config = configured(small, "train.steps=40", "train.eval_every=20")
    now = [0.0]
    cell = check_study(latest(*small), None).rows[0]
    slow = dict.fromkeys(range(10), 100.0) | dict.fromkeys(range(24, 34), 50.0)

    def took(asked):
        trainer = trainer_of(config, tmp_path)
        first = trainer.progress.step
        train_step = trainer.train_step

        def slowly(step):
            with trainer.clock.timed("forward_backward"):
                now[0] += slow.get(step, 1.0)
            return train_step(step)

        trainer.train_step = slowly
        with contextlib.suppress(Interrupted):
            trainer.train(lambda: trainer.progress.step == first + asked)
        return with_facts(Result(status="done", final={}), trainer, cell)

    monkeypatch.setattr(clocks, "time", clock(now))
    first = took(24)
    again = took(40)
    assert first.step_seconds == 1, "of the first ten nothing is counted"
    assert again.resumed == 1 and again.step_seconds == 1, "nor of the first ten of the process that went on"
    spent = [result.seconds["forward_backward"] for result in (first, again)]
    assert spent == [10 * 100 + 14, 10 * 100 + 14 + 10 * 50 + 6], "but all seconds are those of both"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone lets a peak of memory begin anew")
def test_the_peak_of_memory_is_that_of_a_run_alone():
    cpu = torch.device("cpu")
    reset_peak_memory(cpu)
    small = peak_memory(cpu)
    torch.zeros(50_000_000).add_(1)
    assert peak_memory(cpu) - small > 150e6
    reset_peak_memory(cpu)
    assert peak_memory(cpu) - small < 100e6


NOISY = """
import torch
from torch import nn


class Noisy(nn.Module):
    def forward(self, x, mask=None):
        return x * (1 + 0.1 * torch.randn_like(x)) if self.training else x
"""


def test_draws_of_torch_s_own_generator_are_those_of_the_seed_and_the_step(small, tmp_path, monkeypatch):
    """In runs with parts from outside, which alone may draw from it."""
    (tmp_path / "noisy.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    config = configured(small, "user=[noisy]", "optim.lr=1e-9").with_value("norm", {"_target_": "noisy.Noisy"})

    def losses(folder, seed, *steps):
        trainer = trainer_of(config, tmp_path / folder, seed)
        torch.rand(len(steps))  # what a process did before does not matter
        return [trainer.train_step(step)[0]["loss"].item() for step in steps]

    with torch.random.fork_rng(devices=[]):
        first = losses("a", 0, 0, 1, 2)
        assert losses("b", 0, 2) == pytest.approx(first[2:], abs=1e-6)
        assert losses("c", 0, 0, 1) == first[:2]
        assert losses("d", 1, 2) != pytest.approx(first[2:], abs=1e-6)
    trainer = trainer_of(configured(small), tmp_path / "e")
    before = torch.get_rng_state()
    trainer.train_step(0)
    assert torch.equal(torch.get_rng_state(), before), "built-in components neither draw from it nor seed it"
