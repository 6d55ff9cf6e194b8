"""How long the training of a plan takes on this machine, from a few steps of its distinct models.

What was measured is kept in the cache, so that the same plan needs no torch again.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ablate.config.import_path import cores
from ablate.config.schema import BUILT, Config
from ablate.formatting import counted, duration
from ablate.planning.cache import read_cache, write_cache
from ablate.planning.runs import Plan, lacks_device
from ablate.runs.folder import Run
from ablate.runs.key import is_foreign, numbers, settings
from ablate.runs.records import Cell
from ablate.training.hardware import environments

if TYPE_CHECKING:
    from ablate.training.trainer import Trainer

# Settings of train that the time of a step depends on.
COSTLY = ("batch_size", "device", "precision", "matmul", "average", "diagnostics", "parts", "compile")
ALL = 0.6  # seconds after which no further model is measured
STEPS = 3
AFFORDABLE = {"cpu": 3e9, "cuda": 1e13}  # FLOPs measured at a time: a tenth of a second on a slow device


class Speed(NamedTuple):
    """Seconds of a run's setup, of a step, of an evaluation during training, and of the last evaluations."""

    setup: float
    step: float
    evaluation: float
    last: float

    def of_run(self, config: Config) -> float:
        """Seconds of a run."""
        train = config.train
        evaluations = -(-train.steps // train.eval_every)  # without those after the last step
        return self.setup + (train.steps * self.step + evaluations * self.evaluation + self.last) / train.devices


def expected_time(plan: Plan) -> str:
    """The time that a plan's remaining training takes, as a line, or why it is unknown; "" if nothing is to be
    trained.  Each distinct model is measured once, as long as there is time; others count by their FLOPs."""
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = [run.cell for run in plan.manifest.runs if plan.statuses[run.path] in ("missing", "failed")]
    if not runs:
        return ""
    if lacks_device(plan):
        return "no estimate of the time: there is no GPU here"
    distinct = [cells[name] for name in dict.fromkeys(runs)]
    speeds = cached_speeds(distinct)
    measured = [cell for cell in distinct if model_of(cell) in speeds]
    if not measured:
        return f"no estimate of the time: no step of {distinct[0].label} could be measured"
    seconds = seconds_of_runs(distinct, speeds)
    text = f"about {time_of(plan, [seconds[name] for name in runs])}"
    if plan.more:
        text += " for this round"
    step = speeds[model_of(measured[0])].step
    return f"{text} (a step of {measured[0].label} takes {f'{step:.2g} s' if step < 10 else duration(step)} here)"


def seconds_of_runs(cells: list[Cell], speeds: dict[str, Speed]) -> dict[str, float]:
    """The seconds of a run of each of these cells, by id; those of models that were not measured by their FLOPs."""
    seconds = {}
    flops = 0.0
    for cell in cells:
        speed = speeds.get(model_of(cell))
        if speed:
            seconds[cell.id] = speed.of_run(cell.planned_config)
            flops += cell.training_flops
    per_flop = sum(seconds.values()) / flops
    for cell in cells:
        seconds.setdefault(cell.id, per_flop * cell.training_flops)
    return seconds


def time_of(plan: Plan, seconds: list[float]) -> str:
    """The time of a plan's runs on its workers, as text; the number of another launcher's is unknown."""
    if not plan.is_local:
        return f"{duration(sum(seconds))} of computing"
    cells = plan.manifest.cells
    train = cells[0].planned_config.train
    places = environments(train.device, train.parallel, train.devices, max(cell.flops_per_step for cell in cells))
    workers = max(1, min(len(places), len(seconds)))
    return f"{duration(makespan(seconds, workers))} on {counted(workers, 'worker')}"


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Seconds until the last job ends, if the first free worker takes the next one."""
    ends = [0.0] * workers
    for time_of_job in seconds:
        heapq.heapreplace(ends, ends[0] + time_of_job)
    return max(ends)


def model_of(cell: Cell) -> str:
    """All that the time of a step and of an evaluation depends on, without the location of the data."""
    config = settings(cell.planned_config)
    train = {key: config["train"].get(key) for key in COSTLY}
    parts = [config.get(key) for key in (*BUILT, "model", "data", "eval")]
    lengths = cell.planned_config.eval.lengths
    return json.dumps([cell.task, train, config["optim"]["_target_"], *parts, lengths], sort_keys=True)


def cached_speeds(cells: list[Cell]) -> dict[str, Speed]:
    """The speed of each distinct model of these cells: as the cache has it, else measured.  It is not kept for GPUs, of
    which another one may respond.  User code is not measured, since it is loaded by workers alone."""
    built_in = [cell for cell in cells if not is_foreign(numbers(cell.planned_config))]
    depends = ["timing", cores(), *dict.fromkeys(map(model_of, built_in))]
    is_cached = all(cell.planned_config.train.device == "cpu" for cell in built_in)
    if is_cached:
        with contextlib.suppress(Exception):  # nothing is kept, or it is damaged: then they are measured
            return {model: Speed(*seconds) for model, seconds in read_cache(depends)["speeds"].items()}
    speeds = speeds_of(built_in)
    if is_cached and speeds:
        write_cache(depends, {"speeds": speeds})
    return speeds


def speeds_of(cells: list[Cell]) -> dict[str, Speed]:
    """The speed of each distinct model of these cells; without those that fail, and those for which no time is left."""
    import torch

    ends = time.monotonic() + ALL
    speeds: dict[str, Speed] = {}
    tried = set()
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        for cell in cells:
            model = model_of(cell)
            if model in tried or time.monotonic() >= ends:
                continue
            tried.add(model)
            try:
                speeds[model] = speed_of(cell, Path(folder) / str(len(tried)))
            except Exception:  # it may fail in training, which then says why
                continue
    return speeds


def speed_of(cell: Cell, folder: Path) -> Speed:
    """A cell's speed on this machine, without compiling, which would take too long; by a part of its batch and of its
    held-out tokens if all take long.  The first step is left out, and those before one becomes a CUDA graph."""
    # These load torch.
    from ablate.training.capture import UNCAPTURED
    from ablate.training.devices import configure_torch
    from ablate.training.trainer import Trainer
    from ablate.training.vectors import without_vectors

    config = cell.planned_config
    affordable = AFFORDABLE[config.train.device]
    rows = max(1, min(config.train.batch_size, int(affordable * config.train.batch_size / cell.flops_per_step)))
    tokens = max(1, min(config.eval.tokens, int(affordable / (cell.flops_per_token or 1))))
    part = without_vectors(config).with_value("train.compile", False)
    part = part.with_value("train.batch_size", rows).with_value("eval.tokens", tokens)
    configure_torch()
    trainer = Trainer(Run(folder, "cell/run"), part, 0)
    if trainer.gradients.graphs:
        seconds_of_steps(trainer, UNCAPTURED)
    count = max(1, min(STEPS, int(1 / seconds_of_steps(trainer, 1))))
    step = seconds_of_steps(trainer, count) * config.train.batch_size / rows
    evaluations = []
    for at_step in (0, config.train.steps):
        start = time.perf_counter()
        trainer.evaluate(at_step)
        evaluations.append((time.perf_counter() - start) * config.eval.tokens / tokens)
    return Speed(trainer.clock.seconds["setup"], step, *evaluations)


def seconds_of_steps(trainer: Trainer, count: int) -> float:
    """Mean seconds of `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        loss = trainer.train_step(trainer.progress.step)[0]["loss"]
        trainer.progress.step += 1
    loss.item()  # waits for a GPU
    return (time.perf_counter() - start) / count
