"""How fast: synchronisations of a step; tokens/s and MFU of GPT-2, eager, compiled, captured and in a plain loop."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gpu_parts.setup import Report, Setup, compiler, losses, on, one_cell, seconds_of, trainer_of

WARM = 5  # steps before the clock starts: the first compiles, the third is captured


def synchronisations(setup: Setup, report: Report) -> None:
    """Of each of 20 steps without logging: none, or the GPU waits for the CPU."""
    cell = one_cell(setup.words(*setup.pick([], ["scale=small"]), "train.average=ema", "model.dropout=0.1"))
    trainer = trainer_of(setup, "run", on(cell.config, setup.device, "bf16"))
    losses(trainer, WARM)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if setup.device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        for _ in range(20):
            trainer.train_step(trainer.progress.step)
            trainer.progress.step += 1
        if setup.device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    places = []
    for warning in caught:
        if "called a synchronizing" in str(warning.message):  # not torch's note on this mode itself
            places.append(f"{os.path.basename(warning.filename)}:{warning.lineno}")
    report.expect(not places, f"{len(places)} synchronisations in 20 steps, at {sorted(set(places))}")


def gpt2(setup: Setup, report: Report) -> None:
    """GPT-2 124M in shape and vocabulary, 32 × 1024 tokens a step."""
    cell = gpt2_cell(setup)
    for name, compiled, capture in (("compiled", True, False), ("captured", True, True), ("eager", False, False)):
        config = on(cell.config, setup.device, "bf16", compiled).with_value("train.capture", capture)
        report.add(**{name: time_steps(setup, name, config, cell, setup.pick(2, 20))})


def gpt2_cell(setup: Setup) -> Any:
    """GPT-2 124M on random tokens of its vocabulary; at a toy size a toy."""
    vocabulary = setup.pick(211, 50257)
    folder = setup.folder / "tokens"
    folder.mkdir()
    for name in ("train.bin", "val.bin"):
        tokens = np.random.default_rng(0).integers(vocabulary, size=setup.pick(10_000, 1_000_000), dtype=np.uint16)
        tokens.tofile(folder / name)
    data = ["data=tokens", f"data.path={folder}", f"data.vocab_size={vocabulary}"]
    return one_cell(setup.words(*setup.pick([], ["scale=gpt2", "train.batch_size=32"]), "+preset=gpt2", *data))


def captured(setup: Setup, report: Report) -> None:
    """Small steps as CUDA graphs beside the loop: their times, and equal losses with torch's deterministic kernels.

    With its default ones two loops differ, too.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # which those ask for
    for scale, compiled in (("small", False), ("base", False), ("base", True)):
        cell = one_cell(setup.words(*setup.pick([], [f"scale={scale}"]), "model.dropout=0.1"))
        title = f"{scale}, {'compiled' if compiled else 'eager'}"
        for exact in (False, True):
            torch.use_deterministic_algorithms(exact, warn_only=True)
            rows = {}
            for name, capture in (("loop", False), ("captured", True)):
                config = on(cell.config, setup.device, "bf16", compiled).with_value("train.capture", capture)
                folder = f"{title}, {name}, {exact}"
                rows[name] = time_steps(setup, folder, config, cell, setup.pick(2, 50))
            if exact:
                last = {name: row["last_loss"] for name, row in rows.items()}
                report.expect(last["loop"] == last["captured"], f"{title}: the last losses differ: {last}")
            else:
                report.add(**{title: {name: row["ms_per_step"] for name, row in rows.items()}})
        torch.use_deterministic_algorithms(False)


def time_steps(setup: Setup, name: str, config: Any, cell: Any, steps: int) -> dict[str, Any]:
    """Tokens/s, MFU, memory and milliseconds of a configuration's steps."""
    from ablate.model.cost import count, utilisation
    from ablate.training.devices import device_name

    logged: list[float] = []
    with compiler(setup):
        trainer = trainer_of(setup, name, config)
        warm = seconds_of(setup, lambda: losses(trainer, WARM))
        seconds = seconds_of(setup, lambda: logged.extend(losses(trainer, steps))) / steps
    rate = config.train.batch_size * cell.task.positions / seconds
    flops = count(config, cell.task).flops_per_token
    row = {
        "ms_per_step": round(1000 * seconds, 2),
        "tokens_per_second": round(rate),
        "mfu": utilisation(flops, rate, device_name(setup.torch_device), "bf16"),
        "first_steps_seconds": round(warm, 1),
        "parts": trainer.gradients.parts,
        "last_loss": logged[-1],
    }
    if setup.device == "cuda":
        row["peak_memory"] = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
    return row


def plain(setup: Setup, report: Report) -> None:
    """GPT-2 124M in a loop as one would write it for one experiment, compiled with its loss, in bf16; see `gpt2`."""
    cell = gpt2_cell(setup)
    step = plain_step(setup, cell)
    steps = setup.pick(2, 20)

    def train(steps: int) -> None:
        for number in range(steps):
            step(number)

    train(WARM)
    seconds = seconds_of(setup, lambda: train(steps)) / steps
    rate = cell.config.train.batch_size * cell.task.positions / seconds
    report.add(ms_per_step=round(1000 * seconds, 2), tokens_per_second=round(rate))


def plain_step(setup: Setup, cell: Any) -> Callable[[int], None]:
    """A step of that loop, by its number."""
    from reference_gpt import GPT, Size, loss_of

    sizes = cell.config.model
    device = setup.torch_device
    model = GPT(Size(cell.task.vocab, cell.task.context, sizes.layers, sizes.heads, sizes.dim), "ln", "gelu").to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=setup.device == "cuda")
    loss_function = torch.compile(loss_of, backend=setup.pick("aot_eager", "inductor"))

    def step(number: int) -> None:
        batch = cell.task.batch(0, number, cell.config.train.batch_size)
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_function(model, batch.inputs["tokens"].to(device), batch.targets.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step
