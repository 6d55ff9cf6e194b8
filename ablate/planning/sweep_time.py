"""How long a sweep will take: some steps and evaluations of each distinct shape are measured, the rest is counted."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ablate.config.schema import BUILT, Config
from ablate.execution.fork import start
from ablate.execution.makespan import makespan
from ablate.formatting import counted, duration
from ablate.planning.checks.user_code import Failed, apart
from ablate.planning.runs import Plan, lacks_device
from ablate.planning.step_seconds import COSTLY
from ablate.results.records import Cell, PlannedRun
from ablate.results.run import Run
from ablate.results.tables import as_planned
from ablate.training.devices import environments, settle
from ablate.training.trainer import Trainer
from ablate.training.vectors import without_vectors

EACH, ALL = 2.0, 10.0  # seconds that one shape, and all of them, may be measured for
STEPS = 5
AFFORDABLE = {"cpu": 1e10, "cuda": 1e13}  # FLOPs that are measured at a time: less than half a second of a slow device


class Speed(NamedTuple):
    """Seconds of a run's start, of one of its steps, of an evaluation during training, and of the last ones."""

    setup: float
    step: float
    evaluation: float
    last: float

    def of_run(self, config: Config) -> float:
        """Seconds of a whole run."""
        train = config.train
        before = -(-train.steps // train.eval_every)  # evaluations at step 0 and later, without the last step's
        return self.setup + train.steps * self.step + before * self.evaluation + self.last


def expected_time(plan: Plan) -> str:
    """How long the training that a plan leaves to do will take, in one line, or why that is not known; nothing where
    there is nothing to train.  Steps are measured eagerly: translating a model would take longer than it may.
    """
    todo = [cell for _, cell in runs_to_train(plan)]
    if not todo:
        return ""
    if lacks_device(plan):
        return "no estimate of the time: there is no GPU here"
    speeds = speeds_of(todo, workers_of(plan, todo) - 1 if todo[0].config.train.device == "cpu" else 0)
    known = [(cell, speed) for cell, speed in zip(todo, speeds, strict=True) if speed]
    if not known:
        return f"no estimate of the time: no step of {todo[0].label} could be measured"
    per_flop = sum(speed.of_run(cell.config) for cell, speed in known) / sum(flops_of(cell) for cell, _ in known)
    seconds = [
        speed.of_run(cell.config) if speed else per_flop * flops_of(cell)
        for cell, speed in zip(todo, speeds, strict=True)
    ]
    return f"{side_by_side(plan, todo, seconds)}{' for this round' * plan.more} ({', '.join(basis(todo, known))})"


def basis(todo: list[Cell], known: list[tuple[Cell, Speed]]) -> list[str]:
    """What an estimate rests on, in words."""
    cell, speed = known[0]
    step = f"{speed.step:.2g} s" if speed.step < 10 else duration(speed.step)
    told = [f"a step of {cell.label} takes {step} here"]
    told += ["before compiling"] * any(cell.config.train.compile for cell in todo)
    some, every = {cell.id for cell, _ in known}, {cell.id for cell in todo}
    return told + [f"measured for {len(some)} of {len(every)} cells"] * (some != every)


def runs_to_train(plan: Plan) -> list[tuple[PlannedRun, Cell]]:
    """Each run that is to be trained, with its cell at the value that was tuned for it."""
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = [run for run in plan.manifest.runs if plan.statuses[run.path] in ("missing", "failed")]
    return [(run, as_planned(cells[run.cell], run)) for run in runs]


def flops_of(cell: Cell) -> float:
    """Floating-point operations of a run's training."""
    return cell.flops_per_step * cell.config.train.steps


def workers_of(plan: Plan, todo: list[Cell]) -> int:
    """How many processes of this machine train runs side by side; one where another launcher has them."""
    train = todo[0].config.train
    return min(len(environments(train.device, train.parallel)), len(todo)) if plan.is_local else 1


def side_by_side(plan: Plan, todo: list[Cell], seconds: list[float]) -> str:
    """How long runs take in all, on as many workers as there would be; how many another launcher has is not known."""
    if not plan.is_local:
        return f"about {duration(sum(seconds))} of computing"
    workers = workers_of(plan, todo)
    return f"about {duration(makespan(seconds, workers))} on {counted(workers, 'worker')}"


def speeds_of(cells: list[Cell], others: int) -> list[Speed | None]:
    """The speed of each cell beside so many other workers, measured once for those of one shape; None where that failed
    or there was no time.
    """
    ends, found = time.monotonic() + ALL, dict[str, Speed | None]()
    shapes = [shape_of(cell.config) for cell in cells]
    with tempfile.TemporaryDirectory() as folder:
        for shape, cell in zip(shapes, cells, strict=True):
            left = ends - time.monotonic()
            if shape not in found:
                found[shape] = measured(cell, Path(folder) / str(len(found)), others, left + EACH) if left > 0 else None
    return [found[shape] for shape in shapes]


def shape_of(config: Config) -> str:
    """All that the time of a step and of an evaluation depends on."""
    whole = without_vectors(config).as_json()
    train = {key: whole["train"][key] for key in COSTLY}
    return json.dumps([train, config.optim._target_, *(whole[key] for key in (*BUILT, "model", "data", "eval"))])


def measured(cell: Cell, folder: Path, others: int, seconds: float) -> Speed | None:
    """A cell's speed from a process of its own; None where it fails, or takes longer than some seconds."""
    try:
        return Speed(*apart(partial(speed_beside, cell, folder, others), seconds))
    except Failed:
        return None


def speed_beside(cell: Cell, folder: Path, others: int) -> Speed:
    """A cell's speed while so many more processes take steps of it, as the other workers of a sweep will."""
    beside = [start(partial(keep_stepping, cell, folder / f"beside-{i}")) for i in range(others)]
    try:
        for other in beside:
            other.listen(ALL)
        return speed_of(cell, folder)
    finally:
        for other in beside:
            other.end()


def keep_stepping(cell: Cell, folder: Path, channel: socket.socket) -> None:
    """Take steps of a cell until this process is ended; says so after the first."""
    trainer = trainer_of(cell, folder)[0]
    trainer.update(0)
    channel.sendall(b"\n")
    while True:
        trainer.update(1)


def speed_of(cell: Cell, folder: Path) -> Speed:
    """A cell's speed on this machine."""
    trainer, of_step, of_evaluation = trainer_of(cell, folder)
    step = seconds_of_step(trainer, of_step)
    evaluated = []
    for at in (0, cell.config.train.steps):
        begun = time.perf_counter()
        trainer.evaluate(at, cell.config.train.steps)
        evaluated.append((time.perf_counter() - begun) * of_evaluation)
    return Speed(trainer.clock.seconds["setup"], step, *evaluated)


def trainer_of(cell: Cell, folder: Path) -> tuple[Trainer, float, float]:
    """A trainer of a cell, of a part of its batch and of its held-out tokens where all take long, and how many times as
    much all would be.
    """
    settle()
    config = without_vectors(cell.config).with_value("train.compile", False)
    size, tokens, most = config.train.batch_size, config.eval.tokens, AFFORDABLE[config.train.device]
    rows = clamp(most * size / cell.flops_per_step, size)
    scored = clamp(most / cell.flops_per_token, tokens)
    config = config.with_value("train.batch_size", rows).with_value("eval.tokens", scored)
    return Trainer(Run(folder, "cell/run"), config, 0), size / rows, tokens / scored


def clamp(value: float, most: int) -> int:
    """A whole number from 1 to some."""
    return max(1, min(most, int(value)))


def seconds_of_step(trainer: Trainer, times: float) -> float:
    """Mean seconds of a step with so many times the batch, all of whose parts but the optimiser's take as much longer.

    The first step is not counted: it loads what later ones find there.
    """
    trainer.update(0)[0]["loss"].item()
    start, optimiser, count = time.perf_counter(), trainer.clock.seconds["optimiser"], 0
    while count == 0 or (count < STEPS and time.perf_counter() - start < EACH / 2):
        count += 1
        loss = trainer.update(count)[0]["loss"]
    loss.item()  # a GPU has done it by then
    whole, own = time.perf_counter() - start, trainer.clock.seconds["optimiser"] - optimiser
    return (times * whole - (times - 1) * own) / count
