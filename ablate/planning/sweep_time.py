"""Estimates how long a sweep takes, by timing a few steps of each distinct model and trials of training vectors."""

import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ablate.config.groups import default_settings
from ablate.config.schema import Config
from ablate.data.build import build_task
from ablate.execution.fork import start
from ablate.formatting import counted, duration
from ablate.model.build import build_model
from ablate.planning.checks.user_code import Failed, run_in_subprocess
from ablate.planning.measured import seconds_of, shape_of, trainer_of
from ablate.planning.runs import Plan, lacks_device
from ablate.results.progress import makespan
from ablate.results.records import Cell, PlannedRun
from ablate.results.tables import as_planned, class_name
from ablate.training.devices import environments
from ablate.training.trainer import Trainer
from ablate.training.vectors import digest_of, initial_seed, is_pretrained, kept, place, tables_of

EACH, ALL = 2.0, 10.0  # seconds that one shape, and all of them, may be measured for
STEPS = 5
AFFORDABLE = {"cpu": 1e10, "cuda": 1e13}  # FLOPs measured at a time: less than half a second on a slow device


class Speed(NamedTuple):
    """Seconds of a run's setup, of a step, of an evaluation during training, and of the last evaluations."""

    setup: float
    step: float
    evaluation: float
    last: float

    def of_run(self, config: Config) -> float:
        """Seconds of a whole run."""
        train = config.train
        before = -(-train.steps // train.eval_every)  # evaluations, without those after the last step
        return self.setup + train.steps * self.step + before * self.evaluation + self.last


def expected_time(plan: Plan) -> str:
    """The time that a plan's remaining training takes, as a line, or why it is unknown; "" if nothing is to be
    trained.  Steps are timed without compiling, which would take too long."""
    todo = [cell for _, cell in runs_to_train(plan)]
    if not todo:
        return ""
    if lacks_device(plan):
        return "no estimate of the time: there is no GPU here"
    train = todo[0].config.train
    workers = min(len(environments(train.device, train.parallel)), len(todo)) if plan.is_local else 1
    pairs = list(zip(todo, speeds_of(todo, workers - 1 if train.device == "cpu" else 0), strict=True))
    known = [(cell, speed) for cell, speed in pairs if speed]
    if not known:
        return f"no estimate of the time: no step of {todo[0].label} could be measured"
    per_flop = sum(speed.of_run(cell.config) for cell, speed in known) / sum(flops_of(cell) for cell, _ in known)
    seconds = [speed.of_run(cell.config) if speed else per_flop * flops_of(cell) for cell, speed in pairs]
    whole = f"about {duration(sum(seconds))} of computing"  # the number of another launcher's workers is unknown
    if plan.is_local:
        whole = f"about {duration(makespan(seconds, workers))} on {counted(workers, 'worker')}"
    first, speed = known[0]
    step = f"{speed.step:.2g} s" if speed.step < 10 else duration(speed.step)
    basis = [f"a step of {first.label} takes {step} here"] * (first.step_seconds is None)  # match=seconds says another
    basis += ["before compiling"] * any(cell.config.train.compile for cell in todo)
    some, every = {cell.id for cell, _ in known}, {cell.id for cell in todo}
    basis += [f"measured for {len(some)} of {len(every)} cells"] * (some != every)
    return f"{whole}{' for this round' * plan.more}" + f" ({', '.join(basis)})" * bool(basis)


def runs_to_train(plan: Plan) -> list[tuple[PlannedRun, Cell]]:
    """Each run to be trained, and its cell at the run's tuned value."""
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = [run for run in plan.manifest.runs if plan.statuses[run.path] in ("missing", "failed")]
    return [(run, as_planned(cells[run.cell], run)) for run in runs]


def flops_of(cell: Cell) -> float:
    """Floating-point operations of training a run of a cell."""
    return cell.flops_per_step * cell.config.train.steps


def speeds_of(cells: list[Cell], others: int) -> list[Speed | None]:
    """Each cell's speed with so many other workers, timed once per shape in a separate process; None if that failed or
    took too long."""
    ends, found = time.monotonic() + ALL, dict[str, Speed | None]()
    shapes = [f"{shape_of(cell)} {cell.config.eval}" for cell in cells]
    with tempfile.TemporaryDirectory() as folder:
        for shape, cell in zip(shapes, cells, strict=True):
            left = ends - time.monotonic()
            if shape not in found and left > 0:
                call = partial(measured, cell, Path(folder) / str(len(found)), others)
                try:
                    found[shape] = Speed(*run_in_subprocess(call, left + EACH))
                except Failed:
                    found[shape] = None
    return [found.get(shape) for shape in shapes]


def measured(cell: Cell, folder: Path, others: int) -> Speed:
    """A cell's speed while other processes train it, too, as the workers of a sweep will."""
    processes = [start(partial(keep_stepping, cell, folder / f"other-{i}")) for i in range(others)]
    try:
        for process in processes:
            process.receive(ALL)
        return speed_of(cell, folder)
    finally:
        for process in processes:
            process.end()


def keep_stepping(cell: Cell, folder: Path, channel: socket.socket) -> None:
    """Train a cell until this process is killed; sends a line after the first step."""
    trainer = reduced(cell, folder)[0]
    trainer.update(0)
    channel.sendall(b"\n")
    while True:
        trainer.update(1)


def speed_of(cell: Cell, folder: Path) -> Speed:
    """A cell's speed on this machine: of a whole batch, with which all of a step scales but the optimiser.  The first
    step is left out."""
    trainer, of_step, of_evaluation = reduced(cell, folder)
    count = max(1, min(STEPS, int(EACH / 2 / seconds_of(trainer, 1))))
    before, step = trainer.clock.seconds["optimiser"], seconds_of(trainer, count)
    optimiser = (trainer.clock.seconds["optimiser"] - before) / count
    evaluated = []
    for at in (0, cell.config.train.steps):
        begun = time.perf_counter()
        trainer.evaluate(at, cell.config.train.steps)
        evaluated.append((time.perf_counter() - begun) * of_evaluation)
    return Speed(trainer.clock.seconds["setup"], of_step * step - (of_step - 1) * optimiser, *evaluated)


def reduced(cell: Cell, folder: Path) -> tuple[Trainer, float, float]:
    """A trainer of a part of a cell's batch and held-out tokens if all take long, and the factors to the whole."""
    config = cell.config.with_value("train.compile", False)
    size, tokens, most = config.train.batch_size, config.eval.tokens, AFFORDABLE[config.train.device]
    rows = max(1, min(size, int(most * size / cell.flops_per_step)))
    scored = max(1, min(tokens, int(most / cell.flops_per_token)))
    config = config.with_value("train.batch_size", rows).with_value("eval.tokens", scored)
    return trainer_of(config, folder), size / rows, tokens / scored


SECONDS = 30.0  # limit on trials of training vectors


def expected_vectors(plan: Plan) -> list[str]:
    """The cost of training the vectors of a plan's remaining runs, a line for each kind of vectors."""
    table = default_settings("embedding")["_target_"]  # it has no trained vectors
    pairs = [(cell.config, run.seed) for run, cell in runs_to_train(plan)]
    wanted = [(config, seed) for config, seed in pairs if config.embedding["_target_"] != table]
    try:
        return list(run_in_subprocess(partial(vector_lines, wanted), SECONDS)) if wanted else []
    except Failed as error:
        return [f"no estimate of what vectors cost: {error}"]


def vector_lines(wanted: list[tuple[Config, int]]) -> list[str]:
    """A line for each kind of vectors of these runs: the sets cached and to be trained, and the cost of one."""
    cells: dict[int, tuple[Config, set[int]]] = {}
    for config, seed in wanted:
        if is_pretrained(config):
            cells.setdefault(id(config), (config, set()))[1].add(initial_seed(config, seed))
    files, trials = dict[tuple[str, str], set[Path]](), {}
    for config, seeds in cells.values():
        task = build_task(config)
        table, text = next(iter(tables_of(build_model(config, task)).values())), task.training_text()
        digest, plain = digest_of(text), config.with_value("seed.placebo", None)
        kind = (class_name(config.embedding["_target_"]), str(place(table, plain, digest, 0)))
        files.setdefault(kind, set()).update(place(table, config, digest, seed) for seed in seeds)
        trials[kind] = partial(table.expected_seconds, text)
    lines = []
    for kind, places in files.items():
        known = [found.cpu_seconds for file in sorted(places) if (found := kept(file))]
        cost = sum(known) / len(known) if known else trials[kind]()
        each = "" if cost is None else f"{float(f'{cost:.2g}'):,g} CPU-s each"
        parts = []
        if lacking := len(places) - len(known):  # the time of the sweep does not include them
            parts.append(f"{counted(lacking, 'set')} to train, {f'about {each}, ' * bool(each)}beside the time above")
        if known:
            parts.append(f"{counted(len(known), 'set')} kept" + f", {each} to train" * (bool(each) and not parts))
        lines.append(f"vectors of {kind[0]}: {'; '.join(parts)}")
    return lines
