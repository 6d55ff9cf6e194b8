"""How fast: synchronisations of a step, tokens/s and MFU of scale=base and GPT-2, eager and compiled, and a sweep."""

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from gpu_parts.given import (
    Findings,
    Given,
    command,
    compiler,
    losses,
    of_task,
    on,
    one_cell,
    results,
    timed_steps,
    trainer,
    wait,
)

WARM = 5  # steps before the clock starts: the first compiles, the third is captured


def synchronisations(given: Given, found: Findings) -> None:
    """Of each of 20 steps without logging: none, or the GPU waits for the CPU."""
    size = given.pick([], ["scale=small"])
    cell = one_cell(given.words(*size, "train.average=ema", "model.dropout=0.1"))
    config = on(cell.config, given.device, "bf16")
    made = trainer(given, "run", config)
    losses(made, WARM)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if given.device == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        for _ in range(20):
            made.train_step(made.progress.step)
            made.progress.step += 1
        if given.device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
    waited = [w for w in caught if "called a synchronizing" in str(w.message)]  # not torch's note on this mode itself
    where = [f"{w.filename.rpartition('/')[2]}:{w.lineno}" for w in waited]
    found.tell(steps=20, synchronisations=len(where), where=sorted(set(where)))
    found.expect(not where, f"{len(where)} synchronisations in 20 steps, at {sorted(set(where))}")


def base(given: Given, found: Findings) -> None:
    """scale=base, the reference and what else there is to attention."""
    size, steps = given.pick([], ["scale=base"]), given.pick(2, 30)
    for name, words, compiled in (
        ("eager", [], False),
        ("compiled", [], True),
        ("alibi, compiled", ["position=alibi"], True),
        ("dropout, eager", ["model.dropout=0.1"], False),
    ):
        found.tell(**{name: timed(given, name, one_cell(given.words(*size, *words)), steps, compiled)})


def gpt2(given: Given, found: Findings) -> None:
    """GPT-2 124M, in shape and vocabulary, 32 × 1024 tokens a step; at a toy size in vocabulary alone."""
    cell, task, steps = gpt2_cell(given)
    for name, compiled, capture in (("compiled", True, False), ("captured", True, True), ("eager", False, False)):
        row = timed(given, name, cell, steps, compiled, task, capture, profiled=capture)
        if listed := row.pop("kernels", ""):
            found.tell(kernels=listed)
        found.tell(**{name: row})


def gpt2_cell(given: Given) -> tuple[Any, Any, int]:
    """The cell, its task, and the number of timed steps."""
    size = given.pick([], ["scale=gpt2", "train.batch_size=32"])
    cell = one_cell(given.words(*size, "+preset=gpt2"))
    return cell, Vocabulary(cell.task, given.pick(211, 50257)), given.pick(2, 20)


def captured(given: Given, found: Findings) -> None:
    """Small steps as CUDA graphs beside the loop: seconds of each, and equal losses with torch's deterministic kernels;
    with its default ones two loops differ, too."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # which those ask for
    for scale, compiled in (("small", False), ("base", False), ("base", True)):
        cell = one_cell(given.words(*given.pick([], [f"scale={scale}"]), "model.dropout=0.1"))
        name, table = f"{scale}, {'compiled' if compiled else 'eager'}", dict[str, Any]()
        for how, capture, exact in (
            ("loop", False, False),
            ("captured", True, False),
            ("loop, exact", False, True),
            ("captured, exact", True, True),
        ):
            torch.use_deterministic_algorithms(exact, warn_only=True)
            table[how] = timed(given, f"{name}, {how}", cell, given.pick(2, 50), compiled, None, capture)
        torch.use_deterministic_algorithms(False)
        found.tell(**{name: {how: (row["ms_per_step"], row["last_loss"]) for how, row in table.items()}})
        one, other = table["loop, exact"]["last_loss"], table["captured, exact"]["last_loss"]
        found.expect(one == other, f"{name}: a loss of {one} in the loop, {other} captured")


def plain(given: Given, found: Findings) -> None:
    """GPT-2 124M in a loop as one would write it for one experiment, compiled with its loss, in bf16; see `gpt2`."""
    cell, task, steps = gpt2_cell(given)
    step = plain_step(given, cell, task)
    for number in range(WARM):
        step(number)
    seconds = timed_steps(given, lambda number: step(WARM + number), steps)
    rate = round(cell.config.train.batch_size * task.positions / seconds)
    found.tell(ms_per_step=round(1000 * seconds, 2), tokens_per_second=rate)
    found.tell(kernels=kernels(given, lambda: step(WARM + steps)))


def plain_step(given: Given, cell: Any, task: Any) -> Callable[[int], None]:
    """A step of that loop, by its number."""
    from reference_gpt import GPT, Size, loss_of

    config, shape, device = cell.config, cell.config.model, given.torch_device
    size = Size(task.vocab, config.data["context"], shape.layers, shape.heads, shape.dim)
    model = GPT(size, "ln", "gelu").to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=given.device == "cuda")
    loss = torch.compile(loss_of, backend=given.pick("aot_eager", "inductor"))

    def step(number: int) -> None:
        batch = task.batch(0, number, config.train.batch_size)
        [tokens], targets = batch.inputs.values(), batch.targets
        with torch.autocast(device.type, torch.bfloat16):
            mean = loss(model, tokens.to(device), targets.to(device))
        mean.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def kernels(given: Given, step: Callable[[], Any], count: int = 3) -> str:
    """The kernels that take most of a step: milliseconds, launches and name; and all kernels together."""
    activities = [getattr(torch.profiler.ProfilerActivity, given.device.upper())]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(count):
            step()
        wait(given)
    own = "self_device_time_total" if given.device == "cuda" else "self_cpu_time_total"
    rows = [(getattr(row, own) / 1000 / count, row.count / count, row.key) for row in profile.key_averages()]
    rows.append((sum(ms for ms, _, _ in rows), sum(launches for _, launches, _ in rows), "all"))
    return "\n".join(f"{ms:8.3f} {launches:6.1f} {name[:90]}" for ms, launches, name in sorted(rows, reverse=True)[:30])


class Vocabulary:
    """A task with a larger vocabulary: the same bytes, spread over all ids."""

    def __init__(self, task: Any, vocab: int):
        self.task, self.vocab, self.outputs = task, vocab, vocab

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def batch(self, seed: int, step: int, size: int) -> Any:
        """The batch of the task with other ids."""
        found = self.task.batch(seed, step, size)
        spread = {name: x * 197 % self.vocab for name, x in found.inputs.items()}
        return found._replace(inputs=spread, targets=found.targets * 197 % self.vocab)


def timed(
    given: Given,
    name: str,
    cell: Any,
    steps: int,
    compiled: bool,
    task: Any = None,
    capture: bool = False,
    profiled: bool = False,
) -> dict[str, Any]:
    """Tokens/s, MFU and seconds of a cell's steps, of batches that grow no smaller for want of memory."""
    from ablate.model.cost import count, utilisation
    from ablate.training.devices import device_name

    task = task or cell.task
    config = on(cell.config, given.device, "bf16", compiled).with_value("train.capture", capture)
    with compiler(given), of_task(task):
        made = trainer(given, name, config)
        start = time.perf_counter()
        losses(made, WARM)
        wait(given)
        warm = time.perf_counter() - start
        start = time.perf_counter()
        last = losses(made, steps)[-1]
        wait(given)
        seconds = (time.perf_counter() - start) / steps
    budget, rate = count(config, task), made.config.train.batch_size * task.positions / seconds
    row = {"params": budget.params, "ms_per_step": round(1000 * seconds, 2), "tokens_per_second": round(rate)}
    row |= {"mfu": utilisation(budget.flops_per_token, rate, device_name(given.torch_device), "bf16")}
    if given.device == "cuda":
        row |= {"peak_memory": torch.cuda.max_memory_allocated()}
        torch.cuda.empty_cache()
    row |= {"first_steps_seconds": round(warm, 1), "parts": made.gradients.parts, "last_loss": last}
    return row | ({"kernels": kernels(given, lambda: losses(made, 1))} if profiled else {})


def sweep(given: Given, found: Findings) -> None:
    """The README's sweep at scale=base, from its command to its summary, and where its seconds go."""
    words = given.words(
        *given.pick(["seeds=1"], ["scale=base", "data=stdlib", "seeds=3"]), "norm=ln,rms", "ffn=mlp,swiglu"
    )
    seconds, done = command(["-m", *words])
    found.expect(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-400:]}")
    rows = list(results(given.folder / "results").values())
    found.expect(len(rows) == given.pick(4, 12), f"{len(rows)} runs have a result")
    phases = {
        phase: round(sum(row["seconds"][phase] for row in rows), 1) for phase in (rows[0]["seconds"] if rows else ())
    }
    found.tell(seconds=round(seconds, 1), runs=len(rows), seconds_of_all_runs=phases)
    found.tell(tokens_per_second=[round(row["tokens_per_second"]) for row in rows], mfu=[row["mfu"] for row in rows])
    found.tell(summary=done.stdout[-3000:])
