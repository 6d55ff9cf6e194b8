"""What is measured before a study trains; the first once, and kept when it continues.

with_kernels   `train.compile` and `train.matmul` if they are `auto`
expected_time  how long the sweep takes, by a few steps of each distinct model; `expected_vectors`: trained vectors

`ablate.model.attend` chooses the kernel of attention, in every forward pass.
"""

import dataclasses
import json
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from ablate.config.groups import default_settings
from ablate.config.import_path import cores
from ablate.config.schema import BUILT, Config
from ablate.data.task import build_task
from ablate.formatting import counted, duration
from ablate.model.build import build_model
from ablate.model.products import product_seconds
from ablate.planning.cells import describe_cells
from ablate.planning.checks.child import Failed, one_child, run_in_child
from ablate.planning.checks.duplicates import refuse_equal
from ablate.planning.checks.memory import sharing
from ablate.planning.checks.user_code import cached
from ablate.planning.checks.validate import Checked, in_float32_on_cpu
from ablate.planning.earlier_runs import begun
from ablate.planning.rounds import scored_plan
from ablate.planning.runs import Plan, can_compile, lacks_device
from ablate.planning.study import CheckedStudy
from ablate.runs.folder import Run
from ablate.runs.key import is_foreign, numbers, settings
from ablate.runs.progress import makespan
from ablate.runs.records import Cell, PlannedRun
from ablate.runs.tables import class_name
from ablate.training.capture import UNCAPTURED
from ablate.training.devices import configure_torch, environments
from ablate.training.trainer import Trainer
from ablate.training.vectors import (
    digest_of,
    initial_seed,
    is_pretrained,
    load_vectors,
    tables_of,
    vectors_file,
    without_vectors,
)

# FLOPs of a run above which compiling pays: about a minute.  The value for GPUs is a guess.
LONG = {"cpu": 4e12, "cuda": 4e15}
CLEARLY = 1.15  # times as fast; less could be noise, and the next study of the same cells would not find their runs
ENOUGH = 1024  # rows of a product; more do not change its rate


class Kernels(NamedTuple):
    """What the keys of `train` that are `auto` mean in a study; the defaults are those of short runs."""

    matmul: str = "torch"
    compile: bool = False


def with_kernels(study: CheckedStudy) -> CheckedStudy:
    """The study with `train.matmul` and `train.compile` decided: by its manifest, else for this machine."""
    configs = [draft.config for draft in study.cells.drafts]
    if not any(getattr(config.train, key) == "auto" for config in configs for key in Kernels._fields):
        return study
    chosen = None
    for manifest in begun(study)[:1]:  # the choice that it was started with, on any machine
        trains = [(cell.levels, cell.planned_config.train) for cell in manifest.cells]
        # Not levels of the sweep; and some cells may not support the choice.
        compiled = any(train.compile is True for at, train in trains if at.get("train.compile", "auto") == "auto")
        onednn = any(train.matmul == "onednn" for at, train in trains if at.get("train.matmul", "auto") == "auto")
        chosen = Kernels("onednn" if onednn else "torch", compiled)
    if chosen is None:
        first = next(i for i, row in enumerate(study.cells.rows) if row.reference)
        chosen = chosen_for(study.cells.rows[first], study.cells.checked[first])
    # What the user wrote is neither chosen nor reported here.
    free = {key for key in Kernels._fields for config in configs if getattr(config.train, key) == "auto"}
    chosen = Kernels(**{key: value for key, value in chosen._asdict().items() if key in free})
    if chosen == Kernels():
        return study
    drafts, checked = [], []
    for draft, cell in zip(study.cells.drafts, study.cells.checked, strict=True):
        config, own = draft.config, cell.config
        if config.train.compile == "auto":
            config = config.with_value("train.compile", chosen.compile)
            own = own.with_value("train.compile", chosen.compile)
        if config.train.matmul == "auto" and in_float32_on_cpu(own):
            config = config.with_value("train.matmul", chosen.matmul)
            own = own.with_value("train.matmul", chosen.matmul)
        drafts.append(dataclasses.replace(draft, config=config))
        checked.append(cell._replace(config=own))
    cells = describe_cells(checked, drafts, study.cells.factors, study.cells.reference)
    refuse_equal(cells.rows, checked, study.settings.allow_duplicates)
    parts = ["compiled"] * chosen.compile + ["float32 products by oneDNN"] * (chosen.matmul == "onednn")
    note = f"{' and '.join(parts)}, which is faster here; train.compile=false train.matmul=torch: neither"
    return dataclasses.replace(study, cells=cells, notes=[*study.notes, note])


def chosen_for(row: Cell, cell: Checked) -> Kernels:
    """The faster choice for a cell's runs on this machine."""
    train = cell.config.train
    if row.flops_per_step * train.steps < LONG[train.device]:
        return Kernels()
    choice = in_float32_on_cpu(cell.config) and torch.backends.mkldnn.is_available()
    products = faster(cell, int(row.tokens_per_step or 1)) if choice else "torch"
    return Kernels(products, can_compile(train.device))


def faster(cell: Checked, rows: int) -> str:
    """The library with the faster products of a model's matrices, without embedding tables, on this machine."""
    shapes = list(cell.budget.shapes.values())
    tables = ("position", "embedding") if any(role == "head" for role, _ in shapes) else ("position",)
    linear = Counter((shape[1], shape[0]) for role, shape in shapes if len(shape) == 2 and role not in tables)
    # In turns, since another process that begins meanwhile would slow one of them alone.
    times = [product_seconds(linear, min(rows, ENOUGH), backend) for backend in ("torch", "onednn") * 3]
    torchs, onednns = min(times[::2]), min(times[1::2])
    return "onednn" if torchs > CLEARLY * onednns else "torch"


# Settings of train that the time of a step depends on.
COSTLY = ("batch_size", "device", "precision", "matmul", "average", "diagnostics", "parts")


def trainer_of(config: Config, folder: Path) -> Trainer:
    """A trainer for timing, without trained vectors, which do not change the time of a step."""
    configure_torch()
    return Trainer(Run(folder, "cell/run"), without_vectors(config), 0)


def seconds_of(trainer: Trainer, count: int) -> float:
    """Mean seconds of `count` steps."""
    start = time.perf_counter()
    for _ in range(count):
        loss = trainer.train_step(trainer.progress.step)[0]["loss"]
        trainer.progress.step += 1
    loss.item()  # waits for a GPU
    return (time.perf_counter() - start) / count


def shape_of(cell: Cell) -> str:
    """All that the time of a step depends on, without the location of the data."""
    kept = settings(without_vectors(cell.planned_config))
    train = {key: kept["train"].get(key) for key in (*COSTLY, "compile")}
    parts = [kept.get(key) for key in (*BUILT, "model", "data")]
    return json.dumps([cell.task, train, kept["optim"]["_target_"], *parts], sort_keys=True)


RECENT = 300.0  # seconds for which a speed is taken again; longer, and the machine may be less busy
ALL = 1.5  # seconds after which no further cell is measured
ONE = 10.0  # seconds that one cell of user code may take
START = 30.0  # seconds for the child process to start
STEPS = 3
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
        return self.setup + (train.steps * self.step + before * self.evaluation + self.last) / train.devices


def expected_time(plan: Plan) -> str:
    """The time that a plan's remaining training takes, as a line, or why it is unknown; "" if nothing is to be
    trained.  Steps are timed without compiling, which would take too long."""
    todo = [cell for _, cell in runs_to_train(plan)]
    if not todo:
        return ""
    if lacks_device(plan):
        return "no estimate of the time: there is no GPU here"
    places = places_of(plan)
    workers = max(1, min(len(places), len(todo)))
    cells = list({cell.id: cell for cell in todo}.values())
    speeds = speeds_of(cells)
    if not speeds:
        return f"no estimate of the time: no step of {cells[0].label} could be measured"
    measured = [cell for cell in cells if cell.id in speeds]
    # What was not measured takes as long as its FLOPs would in those that were.
    of_measured = sum(speeds[cell.id].of_run(cell.planned_config) for cell in measured)
    per_flop = of_measured / sum(cell.training_flops for cell in measured)

    def seconds_of_run(cell: Cell) -> float:
        speed = speeds.get(cell.id)
        return speed.of_run(cell.planned_config) if speed else per_flop * cell.training_flops

    seconds = [seconds_of_run(cell) for cell in todo]
    text = f"about {duration(sum(seconds))} of computing"  # the number of another launcher's workers is unknown
    if plan.is_local:
        text = f"about {duration(makespan(seconds, workers))} on {counted(workers, 'worker')}"
    step = speeds[measured[0].id].step
    basis = [f"a step of {measured[0].label} takes {f'{step:.2g} s' if step < 10 else duration(step)} here"]
    together = sharing(places, len(todo))[0] if places and todo[0].planned_config.train.device == "cuda" else 1
    if together > 1:
        basis.append(f"{together} processes share a GPU, which was timed for one")
    if any(cell.planned_config.train.compile for cell in todo):
        basis.append("before compiling")
    if len(measured) < len(cells):
        basis.append(f"measured for {len(measured)} of {len(cells)} configurations")
    if plan.more:
        text += " for this round"
    later = scored_plan(plan)
    if later and not later.study.looks and (rest := runs_to_train(later)):
        seconds = [per_flop * cell.training_flops for _, cell in rest]
        workers = max(1, min(len(places_of(later)), len(rest)))
        text += f", then {duration(makespan(seconds, workers))} for {counted(len(rest), 'scored run')}"
    return f"{text} ({', '.join(basis)})"


def places_of(plan: Plan) -> list[dict[str, str]]:
    """The environments of the workers that train a plan's runs; [] if another launcher does."""
    cells = plan.manifest.cells
    train, largest = cells[0].planned_config.train, max(cell.flops_per_step for cell in cells)
    return environments(train.device, train.parallel, train.devices, largest) if plan.is_local else []


def runs_to_train(plan: Plan) -> list[tuple[PlannedRun, Cell]]:
    """Each run to be trained, and its cell."""
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = [run for run in plan.manifest.runs if plan.statuses[run.path] in ("missing", "failed")]
    return [(run, cells[run.cell]) for run in runs]


def speeds_of(cells: list[Cell]) -> dict[str, Speed]:
    """The speed of each cell by its id, timed once for cells that cost the same; without those that failed, and those
    for which no time was left."""
    ends = time.monotonic() + ALL
    by_cost: dict[str, Speed | None] = {}
    speeds = {}
    with tempfile.TemporaryDirectory() as folder, one_child():
        for cell in cells:
            cost = f"{shape_of(cell)} {cell.planned_config.eval}"
            left = ends - time.monotonic()
            if cost not in by_cost and left > 0:
                call = partial(speed_of, cell, Path(folder) / str(len(by_cost)))
                try:
                    by_cost[cost] = recent(cost, partial(measure, call, cell, left + ONE))
                except Exception:  # it may fail in training, which then says why
                    by_cost[cost] = None
            if speed := by_cost.get(cost):
                speeds[cell.id] = speed
    return speeds


def recent(cost: str, call: Callable[[], Speed]) -> Speed:
    """The speed of cells of this cost as it was measured on this machine a moment ago, or is now."""
    depends = [cost, socket.gethostname(), cores(), int(time.time() / RECENT)]
    return Speed(**cached("speed", depends, lambda: call()._asdict()))


def measure(call: Callable[[], Speed], cell: Cell, seconds: float) -> Speed:
    """The speed of a cell; user code is timed in the child process.  Raises any error."""
    if not is_foreign(numbers(cell.planned_config)):
        with torch.random.fork_rng(devices=[]):
            return call()
    return Speed(*run_in_child(call, seconds + START))


def speed_of(cell: Cell, folder: Path) -> Speed:
    """A cell's speed on this machine: of a whole batch, with which all of a step scales but the optimiser.  The first
    step is left out, and those before one becomes a CUDA graph."""
    trainer, of_step, of_evaluation = reduced(cell, folder)
    if trainer.gradients.graphs:
        seconds_of(trainer, UNCAPTURED)
    count = max(1, min(STEPS, int(1 / seconds_of(trainer, 1))))
    before, step = trainer.clock.seconds["optimiser"], seconds_of(trainer, count)
    optimiser = (trainer.clock.seconds["optimiser"] - before) / count
    evaluated = []
    for at in (0, cell.planned_config.train.steps):
        begun = time.perf_counter()
        trainer.evaluate(at)
        evaluated.append((time.perf_counter() - begun) * of_evaluation)
    return Speed(trainer.clock.seconds["setup"], of_step * step - (of_step - 1) * optimiser, *evaluated)


def reduced(cell: Cell, folder: Path) -> tuple[Trainer, float, float]:
    """A trainer of a part of a cell's batch and held-out tokens if all take long, and the factors to the whole."""
    config = cell.planned_config.with_value("train.compile", False)
    size, tokens, most = config.train.batch_size, config.eval.tokens, AFFORDABLE[config.train.device]
    rows = max(1, min(size, int(most * size / cell.flops_per_step)))
    scored = max(1, min(tokens, int(most / (cell.flops_per_token or 1))))
    config = config.with_value("train.batch_size", rows).with_value("eval.tokens", scored)
    return trainer_of(config, folder), size / rows, tokens / scored


SECONDS = 30.0  # limit on trials of training vectors


def expected_vectors(plan: Plan) -> list[str]:
    """The cost of training the vectors of a plan's remaining runs, a line for each kind of vectors."""
    table = default_settings("embedding")["_target_"]  # it has no trained vectors
    pairs = [(cell.planned_config, run.seed) for run, cell in runs_to_train(plan)]
    wanted = [(config, seed) for config, seed in pairs if config.embedding["_target_"] != table]
    try:
        with one_child():
            return list(run_in_child(partial(vector_lines, wanted), SECONDS)) if wanted else []
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
        digest = digest_of(text)
        kind = (class_name(config.embedding["_target_"]), str(vectors_file(table, config, digest, 0)))
        files.setdefault(kind, set()).update(vectors_file(table, config, digest, seed) for seed in seeds)
        trials[kind] = partial(table.expected_seconds, text)
    lines = []
    for kind, places in files.items():
        known = [found.cpu_seconds for file in sorted(places) if (found := load_vectors(file))]
        cost = sum(known) / len(known) if known else trials[kind]()
        each = "" if cost is None else f"{float(f'{cost:.2g}'):,g} CPU-s each"
        parts = []
        if lacking := len(places) - len(known):  # the time of the sweep does not include them
            about = f"about {each}, " * bool(each)
            parts.append(f"{counted(lacking, 'set')} to train, {about}in addition to the time above")
        if known:
            parts.append(f"{counted(len(known), 'set')} cached" + f", {each} to train" * (bool(each) and not parts))
        lines.append(f"vectors of {kind[0]}: {'; '.join(parts)}")
    return lines
