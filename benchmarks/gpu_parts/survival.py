"""Killed and resumed, out of memory, tested at another length: what must give the numbers of a run in one go."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from gpu_parts.given import Findings, Given, command, environment, losses, of_task, on, one_cell, results, trainer

RUN = [
    "norm=ln",
    "model.dropout=0.1",
    "train.average=ema",
    "seeds=1",
    "train.checkpoint_seconds=0",
    "train.log_every=5",
]
NEAR = 0.02  # of a test loss: sums by atomic additions come in another order in each run
PATIENCE = 90  # seconds for a run to write its first checkpoint


def resume(given: Given, found: Findings) -> None:
    """A run is killed after its first checkpoint, and the same command continues it; its weights are tested at another
    length."""
    size = given.pick(
        ["train.steps=120"], ["scale=small", "train.steps=200", "train.eval_every=100", "optim.warmup=50"]
    )
    whole = given.words(*size, *RUN, f"results_dir={given.folder / 'whole'}")
    cut = given.words(*size, *RUN, f"results_dir={given.folder / 'cut'}")
    seconds, done = command(whole)
    found.expect(done.returncode == 0, f"the run in one go ended with {done.returncode}: {done.stderr[-400:]}")
    killed = kill_after_a_checkpoint(cut, given.folder / "cut")
    found.expect(killed, "it ended before it could be killed")
    _, done = command(cut)
    found.expect(done.returncode == 0, f"the same command ended with {done.returncode}: {done.stderr[-400:]}")
    [one], [other] = results(given.folder / "whole").values(), results(given.folder / "cut").values()
    first, second = one["final"]["test/loss"], other["final"]["test/loss"]
    found.tell(
        seconds=round(seconds, 1), resumed=other["resumed"], whole=first, continued=second, equal=first == second
    )
    found.expect(other["resumed"] >= 1 or not killed, "it started again instead of continuing")
    found.expect(abs(first - second) < NEAR, f"test losses differ: {first} in one go, {second} continued")
    _, done = command([*cut, "eval.lengths=[16]"])
    found.expect(done.returncode == 0, f"eval.lengths=[16]: {(done.stdout + done.stderr)[-400:]}")


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
    alive = sweep.poll() is None
    if alive:
        os.killpg(sweep.pid, signal.SIGKILL)  # its workers see that and end
    sweep.wait()
    return alive


def out_of_memory(given: Given, found: Findings) -> None:
    """A batch that does not fit is taken by parts to the same losses; BatchNorm says why it cannot be."""
    from ablate.training.devices import TooLarge

    size = given.pick([], ["scale=base", "train.batch_size=128"])
    config = on(one_cell(given.words(*size, "model.dropout=0.1")).config, given.device, "fp32")
    whole = trainer(given, "whole", config)
    expected = losses(whole, 2)
    peak = torch.cuda.max_memory_allocated() if given.device == "cuda" else 0
    del whole
    made = trainer(given, "parts", config)
    limit_memory(given, made, 0.7 * peak)
    got = losses(made, 2)
    found.tell(peak=peak, parts=made.gradients.parts, whole=expected, by_parts=got)
    found.expect(made.gradients.parts > 1, "with less memory than the batch takes nothing was split")
    apart = max(abs(a - b) for a, b in zip(got, expected, strict=True))
    found.expect(apart < 1e-3, f"losses by parts {got}, of whole batches {expected}")
    del made
    batch_norm = on(one_cell(given.words(*size, "norm=bn", "model.dropout=0.1")).config, given.device, "fp32")
    limit_memory(given, None, 0)
    made = trainer(given, "bn", batch_norm)
    limit_memory(given, made, 0.4 * peak)
    try:
        losses(made, 1)
        found.expect(False, "BatchNorm trained with less than half of the memory")
    except TooLarge as error:
        found.tell(batch_norm=str(error))


def limit_memory(given: Given, made: Any, size: float) -> None:
    """Leave this process so many bytes of the GPU, all with 0; on the CPU have the model refuse more than 2 rows."""
    if given.device == "cuda":
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, size / total) if size else 1.0)
    elif size or made is not None:
        made.model.register_forward_pre_hook(few, with_kwargs=True)


def few(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Be out of memory with more than two rows."""
    if len(next(iter([*args, *kwargs.values()]))) > 2:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def processes(given: Given, found: Findings) -> None:
    """One process against several on one GPU: equal losses, and seconds a run, start included; names of
    GPUs that are not there."""
    size = given.pick([], ["scale=small", "train.steps=1000"])
    table, a_run = dict[str, Any](), dict[str, float]()
    ways: list[tuple[str, int, list[str]]] = [
        ("one, loop", 1, ["train.parallel=1", "train.capture=false"]),
        ("one", 1, ["train.parallel=1"]),
        ("auto", given.pick(1, 10), []),
    ]
    for number, (name, seeds, more) in enumerate(ways):
        folder = given.folder / f"w{number}"
        words = given.words(*size, f"seeds={seeds}", f"results_dir={folder}", *more)
        seconds, done = command(["-m", "norm=ln,rms", *words])
        found.expect(done.returncode == 0, f"{name} ended with {done.returncode}: {done.stderr[-400:]}")
        rows = results(folder)
        found.expect(len(rows) == 2 * seeds, f"{name}: {len(rows)} of {2 * seeds} runs have a result")
        table[name] = {path: row["final"].get("test/loss") for path, row in rows.items()}
        a_run[name] = seconds / max(len(rows), 1)
        found.tell(**{name: {"runs": len(rows), "seconds": round(seconds, 1), "a_run": round(a_run[name], 2)}})
    found.tell(times_as_fast={name: round(a_run["one, loop"] / seconds, 1) for name, seconds in a_run.items()})
    several = list(table.values())[-1]
    apart = [abs(of[path] - several[path]) for of in table.values() for path in of.keys() & several.keys()]
    found.expect(max(apart, default=1) < NEAR, f"losses depend on the number of processes: {json.dumps(table)}")
    found.tell(worst_difference=max(apart, default=None))
    folder = given.folder / "listed"
    listed = {"CUDA_VISIBLE_DEVICES": "0,-1"} if given.device == "cuda" else {}
    _, done = command(["-m", "norm=ln,rms", *given.words(*size, "seeds=1", f"results_dir={folder}")], **listed)
    found.expect(done.returncode == 0, f"CUDA_VISIBLE_DEVICES=0,-1 ended with {done.returncode}: {done.stderr[-400:]}")
    found.expect(len(results(folder)) == 2, "not every run of CUDA_VISIBLE_DEVICES=0,-1 ended")


def checkpoints(given: Given, found: Findings) -> None:
    """How long a step of GPT-2 124M waits for a checkpoint, and the share of time that this takes if the next comes
    when it is due."""
    from ablate.training import checkpoint
    from gpu_parts.speed import WARM, gpt2_cell

    cell, task, _ = gpt2_cell(given)
    with of_task(task):
        made = trainer(given, "run", on(cell.config, given.device, "bf16"))
        losses(made, WARM)
        waits = []
        for _ in range(2):
            made.save()
            waits.append(made.checkpointer.last_seconds)
    size = made.run.checkpoint_file.stat().st_size
    found.tell(bytes=size, waits=waits, seconds_between=round(waits[-1] / checkpoint.SHARE, 1))
