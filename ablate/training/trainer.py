"""The loop: one run from its configuration to its result, with every logged step on disk and exact resumption."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ablate.config.schema import Config
from ablate.data.build import build_task
from ablate.data.task import Batch
from ablate.model.build import build_objective, initialised_model
from ablate.model.dropout import step_seed
from ablate.model.placebo import data_seed
from ablate.model.products import use
from ablate.results.atomic import set_aside, write_atomic
from ablate.results.checksum import digest, sealed_archive, unsealed_archive
from ablate.results.metrics_writer import MetricsWriter, Row
from ablate.results.run import Run
from ablate.results.stored_targets import is_foreign
from ablate.training.clock import PHASES, STEP, Clock
from ablate.training.compiling import compile_in_place
from ablate.training.diagnostics import diagnose
from ablate.training.evaluation import final_evaluation, following, measure, setting_of
from ablate.training.gradients import Gradients
from ablate.training.optim import build_optimiser
from ablate.training.schedule import build_schedule, learning_rate
from ablate.training.scoring import DocumentLosses
from ablate.training.step import build_step
from ablate.training.vectors import begin_with_vectors, initial_seed
from ablate.training.weight_averaging import AVERAGES

WARM_UP = 10  # steps of each process, or half of the run's, in which it loads what later ones find there
DIVERGED = 1.1  # times the training loss of the first step
LASTING = 0.1  # of the steps that the logged training losses are as high; at the end of the run the last two are enough


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint is on disk."""


class Diverged(Exception):
    """The loss is not finite, or the training loss stays above where it began."""


@dataclasses.dataclass
class Progress:
    """What a checkpoint carries beside the model and the optimiser."""

    step: int = 0
    offset: int = 0  # bytes of metrics.jsonl that belong to the steps so far
    logged: str = ""  # their digest
    first_loss: float = math.nan  # training loss of the first step
    strikes: int = 0  # logged training losses in a row that were too high
    resumed: int = 0  # times that a later process continued
    accumulation: int = 1  # parts that each batch is taken in, for want of memory
    timed: int = 0  # steps after the warm-up
    timed_seconds: float = 0.0  # that those took, without evaluations
    cpu_seconds: float = 0.0  # of the CPU, that all processes took until they wrote it


class Trainer:
    """One run: a model, a task and an optimiser, stepping from the checkpoint, or the start, to the end."""

    def __init__(self, run: Run, config: Config, seed: int):
        self.clock = Clock()
        self.began = time.process_time()
        self.counted = 0.0  # of the seconds of steps, those until the last one
        self.progress = Progress()
        self.documents = DocumentLosses()
        with self.clock.timed("setup"):
            self.run, self.loop, self.optim = run, config.train, config.optim
            self.keep_checkpoint = config.keep == "all"
            init_seed = initial_seed(config, seed)
            self.data_seed = data_seed(config.seed, seed)
            self.device = torch.device(self.loop.device)
            self.setting = setting_of(config)
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()  # or a worker's later runs would show its largest one's
            self.task = build_task(config)
            self.model = initialised_model(config, self.task, init_seed)
            self.vectors_seconds = begin_with_vectors(self.model, config, self.task, init_seed)
            self.model.to(self.device)
            self.schedule = build_schedule(config)
            self.average = AVERAGES[self.loop.average](self.model, self.loop.steps)
            for model in {self.model, self.average.model}:
                use(self.loop.products, model)
            if self.loop.compile:
                compile_in_place({self.model, self.average.model})
            self.optimiser = build_optimiser(config, self.model)
            self.step = build_step(config, self.model, self.optimiser, self.optim.clip)
            seeding = (self.data_seed, is_foreign(config))
            self.gradients = Gradients(self.model, build_objective(config), self.loop, *seeding, self.say)
            self.restore()
            self.earlier = self.progress.cpu_seconds  # of the processes that it goes on from
            self.metrics = MetricsWriter(run.metrics_file, self.progress.offset, run.check)

    def train(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Train to the last step and return the metrics of that step.  Raises Interrupted and Diverged."""
        progress, steps = self.progress, self.loop.steps
        saved, warm = time.monotonic(), progress.step + min(WARM_UP, steps // 2)
        row: Row = {}
        if progress.offset == 0:
            row = self.log({})
        while progress.step < steps:
            if stop():
                self.save()
                raise Interrupted
            if time.monotonic() - saved > self.loop.checkpoint_seconds and progress.step:
                self.save()
                saved = time.monotonic()
            losses, norm, lr = self.update(progress.step)
            progress.step += 1
            update = self.read(losses, norm, lr, warm)
            self.count(warm)
            if update or progress.step % self.loop.eval_every == 0:
                row = self.log(update)
        if not row:  # continued from the checkpoint of the last step, which keep=all keeps
            row = self.evaluate(steps, steps) | self.run.metrics()[0][-1]
        if self.keep_checkpoint:
            self.save()
        self.metrics.close()
        return {key: value for key, value in row.items() if "/" in key}

    def read(self, losses: dict[str, Tensor], norm: Tensor, lr: float, warm: int) -> Row:
        """What is logged of an update, if it is one to log.

        Reading the loss waits for the device: only where something is logged, or is to be timed from.
        """
        progress, loop = self.progress, self.loop
        logged = progress.step % loop.log_every == 0 or progress.step == loop.steps
        with self.clock.timed("wait"):
            if progress.step == 1:
                progress.first_loss = losses["loss"].item()
            elif progress.step % loop.eval_every == 0 or progress.step == warm:
                losses["loss"].item()
            if not logged:
                return {}
            found = {f"train/{name}": loss.item() for name, loss in losses.items()}
            return found | {"lr": lr, "grad_norm": norm.item()}

    def count(self, warm: int) -> None:
        """Count a step, and the seconds since the one before it, where it is beyond the warm-up of this process."""
        before, self.counted = self.counted, sum(self.clock.seconds[phase] for phase in STEP)
        if self.progress.step > warm:
            self.progress.timed += 1
            self.progress.timed_seconds += self.counted - before

    def update(self, step: int) -> tuple[dict[str, Tensor], Tensor, float]:
        """One training step: losses by name, gradient norm before clipping, learning rate."""
        optim = self.optim
        with self.clock.timed("data"):
            self.gradients.begin(step)
            batch = self.task.batch(self.data_seed, step, self.loop.batch_size)
        with self.clock.timed("optimiser"):
            lr = learning_rate(step, self.loop.steps, optim.lr, optim.warmup, self.schedule, optim.floor)
            self.step.generator.manual_seed(step_seed(self.data_seed, step))
            losses, norm = self.step.update(batch, lr, self.timed_gradients)
            self.average.update(step)
            self.optimiser.zero_grad(set_to_none=True)
        return losses, norm, lr

    def timed_gradients(self, batch: Batch) -> dict[str, Tensor]:
        """What a step is given: the gradients of a batch, whose time is no part of the optimiser's."""
        with self.clock.timed("forward_backward"):
            return self.gradients(batch)

    def say(self, told: str) -> None:
        """Print a sentence on this run."""
        print(f"ablate: {self.run.path}: {told}", file=sys.stderr, flush=True)

    def log(self, update: Row) -> Row:
        """Write one row for this step, with the evaluations that are due, then judge whether the run diverged."""
        step, steps, size = self.progress.step, self.loop.steps, self.loop.batch_size
        evaluated: dict[str, float] = {}
        # A loss that is no number ends the run below; evaluating such a model would only cost time.
        if all(math.isfinite(value) for value in update.values()) or step == 0:
            evaluated = self.evaluate(step, steps)
        total = sum(self.clock.seconds.values())
        row = (
            {"step": step, "tokens": step * size * self.task.positions, "seconds": round(total, 3)} | update | evaluated
        )
        with self.clock.timed("log"):
            self.metrics.write(row)
        self.judge(row)
        return row

    def evaluate(self, step: int, steps: int) -> dict[str, float]:
        """Validation metrics and diagnostics where they are due, and test metrics at the last step."""
        found: dict[str, float] = {}
        with self.clock.timed("evaluate"):
            if step % self.loop.eval_every == 0 or step == steps:
                measured = measure(self.average.model, self.task, "val", self.setting)
                found = measured.metrics
                if self.loop.diagnostics:
                    size = -(-self.loop.batch_size // self.gradients.parts)
                    found |= diagnose(self.average.model, measured.held_out, size, self.setting)
            if step == steps:
                batches = following(self.task, self.data_seed, steps, self.loop.batch_size)
                ended = final_evaluation(self.average.model, self.task, self.setting, batches)
                found, self.documents = found | ended.metrics, ended.documents
        return found

    def judge(self, row: Row) -> None:
        """Raise Diverged for a loss that is not finite, or a training loss that stays 1.1 times above its first value.

        It stays where no loss logged over a tenth of the steps is lower, or none of the last two of the run.  What the
        validation loss does while the training loss is finite and falls is no matter of divergence.
        """
        for key in ("train/loss", "train/objective", "grad_norm", "val/loss", "test/loss"):
            if not math.isfinite(row.get(key, 0.0)):
                raise Diverged(f"{key} is {row[key]} at step {row['step']}")
        if "train/loss" not in row:
            return
        progress, first, steps = self.progress, self.progress.first_loss, self.loop.steps
        progress.strikes = progress.strikes + 1 if row["train/loss"] > DIVERGED * first else 0
        lasting = progress.strikes * self.loop.log_every >= LASTING * steps or row["step"] == steps
        if progress.strikes >= 2 and lasting:
            since = f"{first:.3f} at the first, {progress.strikes} logged steps in a row above {DIVERGED:g} times that"
            raise Diverged(f"train/loss {row['train/loss']:.3f} at step {row['step']}, {since}")

    def save(self) -> None:
        """Write the checkpoint, atomically."""
        if self.device.type == "cuda":  # or what its steps still take would count as writing
            with self.clock.timed("wait"):
                torch.cuda.synchronize()
        with self.clock.timed("checkpoint"):
            self.progress.accumulation = self.gradients.parts
            self.progress.cpu_seconds = self.earlier + time.process_time() - self.began
            self.progress.offset, self.progress.logged = self.metrics.offset(), self.metrics.written().sha256
            state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
            state |= {"average": self.average.state_dict(), "step": self.step.state_dict()}
            buffer = io.BytesIO()
            torch.save(state | {"progress": dataclasses.asdict(self.progress), "seconds": self.clock.seconds}, buffer)
            write_atomic(self.run.checkpoint_file, sealed_archive(buffer.getvalue()), self.run.check)

    def restore(self) -> None:
        """Continue from the checkpoint, if there is one.  Raises DamagedCheckpoint, having set it aside."""
        path = self.run.checkpoint_file
        if not path.exists():
            return
        try:
            archive = io.BytesIO(unsealed_archive(path.read_bytes()))
            state = torch.load(archive, map_location=self.device, weights_only=True)
            progress = Progress(**state["progress"])
            check_logged(self.run.metrics_file, progress)
            self.model.load_state_dict(state["model"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.average.load_state_dict(state["average"])
            self.step.load_state_dict(state["step"])
            self.clock.seconds |= {phase: self.clock.seconds[phase] + state["seconds"][phase] for phase in PHASES}
        except Exception as error:  # torch.load raises anything on damaged bytes
            self.run.check()
            damaged = [path, *([self.run.metrics_file] if isinstance(error, DamagedLog) else [])]
            aside, why = " and ".join(set_aside(file).name for file in damaged), str(error).split("\n")[0][:200]
            raise DamagedCheckpoint(f"{path} cannot be used ({why}); set aside as {aside}, trained again") from None
        progress.resumed += 1
        self.progress, self.gradients.parts = progress, progress.accumulation


class DamagedLog(Exception):
    """The logged steps that a checkpoint goes on from are not those that were written."""


def check_logged(metrics: Path, progress: Progress) -> None:
    """Raise ValueError where the logged steps that a checkpoint goes on from are gone, DamagedLog where they differ."""
    if not metrics.exists():
        raise ValueError(f"{metrics.name} is gone")
    with open(metrics, "rb") as file:
        found = file.read(progress.offset)
    if len(found) < progress.offset:
        raise DamagedLog(f"{metrics.name} has been cut: it is shorter than when the checkpoint was written")
    if digest(found) != progress.logged:
        raise DamagedLog(f"{metrics.name} is damaged: its first {progress.offset:,} bytes are not what was logged")


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be continued from; it has been set aside."""


def new_trainer(run: Run, config: Config, seed: int) -> Trainer:
    """A trainer that continues from the run's checkpoint, or starts again where that is damaged, saying so."""
    try:
        return Trainer(run, config, seed)
    except DamagedCheckpoint as error:
        print(f"ablate: {error}", file=sys.stderr)
        return Trainer(run, config, seed)
