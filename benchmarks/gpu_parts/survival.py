"""Killed and resumed, out of memory, one process and several: what must give the numbers of a run in one go."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gpu_parts.setup import Report, Setup, environment, losses, on, one_cell, results, run_command, trainer_of

RUN = ["norm=ln", "model.dropout=0.1", "train.average=ema", "seeds=1", "train.checkpoint_seconds=0"]
NEAR = 0.02  # of a test loss: sums by atomic additions come in another order in each run
PATIENCE = 90  # seconds for a run to write its first checkpoint


def resume(setup: Setup, report: Report) -> None:
    """A run is killed after its first checkpoint, and the same command continues it; its weights are tested at another
    length."""
    long = ["scale=small", "train.steps=200", "train.eval_every=100", "optim.warmup=50"]
    words = [*setup.pick(["train.steps=120"], long), *RUN]
    whole = setup.words(*words, f"results_dir={setup.folder / 'whole'}")
    cut = setup.words(*words, f"results_dir={setup.folder / 'cut'}")
    run_command(report, whole)
    report.expect(kill_after_a_checkpoint(cut, setup.folder / "cut"), "it ended before it could be killed")
    run_command(report, cut)
    [expected] = results(setup.folder / "whole").values()
    [continued] = results(setup.folder / "cut").values()
    loss = continued["final"]["test/loss"]
    difference = loss - expected["final"]["test/loss"]
    report.add(test_loss=loss, difference=difference, resumed=continued["resumed"])
    report.expect(continued["resumed"] >= 1, "it started again instead of continuing")
    report.expect(abs(difference) < NEAR, f"test losses differ by {difference}")
    run_command(report, [*cut, "eval.lengths=[16]"])


def kill_after_a_checkpoint(words: list[str], folder: Path) -> bool:
    """Start a sweep and kill its processes once a checkpoint is there; whether that was before its end."""
    sweep = subprocess.Popen(
        [sys.executable, "-m", "ablate", *words],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    limit = time.monotonic() + PATIENCE
    while sweep.poll() is None and time.monotonic() < limit and not list(folder.glob("runs/*/*/checkpoint.pt")):
        time.sleep(0.02)
    is_running = sweep.poll() is None
    if is_running:
        os.killpg(sweep.pid, signal.SIGKILL)  # its workers see that and end
    sweep.wait()
    return is_running


def out_of_memory(setup: Setup, report: Report) -> None:
    """A batch that does not fit is taken by parts to the same losses; BatchNorm says why it cannot be."""
    from ablate.training.devices import TooLarge

    words = [*setup.pick([], ["scale=base", "train.batch_size=128"]), "model.dropout=0.1"]
    config = on(one_cell(setup.words(*words)).config, setup.device, "fp32")
    trainer = trainer_of(setup, "whole", config)
    expected = losses(trainer, 2)
    peak = torch.cuda.max_memory_allocated() if setup.device == "cuda" else 0
    del trainer
    trainer = trainer_of(setup, "parts", config)
    limit_memory(setup, trainer, 0.7 * peak)
    by_parts = losses(trainer, 2)
    report.add(peak=peak, parts=trainer.gradients.parts)
    report.expect(trainer.gradients.parts > 1, "with less memory than the batch takes nothing was split")
    difference = max(abs(a - b) for a, b in zip(by_parts, expected, strict=True))
    report.expect(difference < 1e-3, f"losses by parts {by_parts}, of whole batches {expected}")
    del trainer
    if setup.device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
    batch_norm = one_cell(setup.words(*words, "norm=bn")).config
    trainer = trainer_of(setup, "bn", on(batch_norm, setup.device, "fp32"))
    limit_memory(setup, trainer, 0.4 * peak)
    try:
        losses(trainer, 1)
        report.expect(False, "BatchNorm trained with less than half of the memory")
    except TooLarge as error:
        report.add(batch_norm=str(error))


def limit_memory(setup: Setup, trainer: Any, size: float) -> None:
    """Leave this process so many bytes of the GPU; on the CPU have the model refuse more than two rows."""
    if setup.device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / total))
    else:
        trainer.model.register_forward_pre_hook(refuse_rows, with_kwargs=True)


def refuse_rows(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Be out of memory with more than two rows."""
    inputs = [*args, *kwargs.values()]
    if len(inputs[0]) > 2:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def processes(setup: Setup, report: Report) -> None:
    """One process against several on one GPU: near losses, and seconds a run, start included; and a GPU in
    CUDA_VISIBLE_DEVICES that does not exist."""
    words = [*setup.pick([], ["scale=small", "train.steps=1000"]), "norm=ln,rms"]
    alone = sweep(setup, report, "one", [*words, "train.parallel=1"], 1)
    several = sweep(setup, report, "several", words, setup.pick(1, 10))
    for run, loss in alone.items():
        difference = loss - several.get(run, float("inf"))
        report.expect(abs(difference) < NEAR, f"the test losses of {run} differ by {difference}")
    devices = {"CUDA_VISIBLE_DEVICES": "0,-1"} if setup.device == "cuda" else {}
    sweep(setup, report, "listed", words, 1, **devices)


def sweep(
    setup: Setup, report: Report, name: str, words: list[str], seeds: int, **environment: str
) -> dict[str, float]:
    """The test losses of a sweep of two cells, by run."""
    folder = setup.folder / name
    command = ["-m", *setup.words(*words, f"seeds={seeds}", f"results_dir={folder}")]
    seconds = run_command(report, command, **environment)
    rows = results(folder)
    report.add(**{f"{name}, seconds a run": round(seconds / max(len(rows), 1), 2)})
    report.expect(len(rows) == 2 * seeds, f"{name}: {len(rows)} of {2 * seeds} runs have a result")
    return {run: row["final"]["test/loss"] for run, row in rows.items() if row["status"] == "done"}
