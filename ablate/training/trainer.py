"""The training loop of one run: evaluate, save, accumulate gradients, learning rate, step, log."""

import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ablate.config.schema import Config
from ablate.data.task import Batch, batch_positions, build_task
from ablate.model.build import build_objective, initialised_model
from ablate.model.dropout import step_seed
from ablate.model.init import data_seed
from ablate.model.products import use
from ablate.runs.folder import MetricsWriter, Row, Run
from ablate.runs.key import compiled_code, is_foreign, numbers
from ablate.runs.records import Documents
from ablate.training.checkpoint import Checkpointer, DamagedCheckpoint
from ablate.training.clock import WARM_UP, Clock
from ablate.training.compiling import compile_in_place
from ablate.training.devices import reset_peak_memory
from ablate.training.diagnostics import diagnose
from ablate.training.divergence import check_divergence
from ablate.training.evaluation import final_evaluation, following, measure, setting_of
from ablate.training.gradients import Gradients
from ablate.training.optim import AVERAGES, build_optimiser
from ablate.training.ranks import ALONE, Ranks
from ablate.training.schedule import build_schedule, learning_rate
from ablate.training.step import build_step
from ablate.training.vectors import begin_with_vectors, initial_seed


class Interrupted(Exception):
    """The run received a request to stop; its checkpoint is on disk."""


class Trainer:
    """A model, a task and an optimiser, trained from the last checkpoint, or from the start, to the last step."""

    def __init__(self, run: Run, config: Config, seed: int, ranks: Ranks = ALONE):
        self.run = run
        self.config = config
        self.ranks = ranks
        self.steps = config.train.steps
        self.data_seed = data_seed(config.seed, seed)
        self.device = torch.device(config.train.device)
        self.documents = Documents()
        self.clock = Clock(ranks.count)
        with self.clock.timed("setup"):
            self.build(initial_seed(config, seed))
            self.restore()

    def build(self, seed: int) -> None:
        """Build the task, the model, and all that updates the model."""
        config = self.config
        reset_peak_memory(self.device)  # earlier runs of the process must not count
        self.evaluation = setting_of(config)
        self.task = build_task(config)
        self.model = initialised_model(config, self.task, seed)
        self.vectors_seconds = None
        if self.ranks.rank == 0:  # the others get its weights
            self.vectors_seconds = begin_with_vectors(self.model, config, self.task, seed)
        self.model.to(self.device)
        self.average = AVERAGES[config.train.average](self.model, self.steps)
        models = {self.model, self.average.model}
        for model in models:
            use(config.train.matmul, model, config.train.device)
        if config.train.compile:
            compile_in_place(models, compiled_code(config))
        self.schedule = build_schedule(config)
        self.optimiser = build_optimiser(config, self.model)
        grad_clip = math.inf if config.optim.grad_clip is None else config.optim.grad_clip
        self.step_rule = build_step(config, self.model, self.optimiser, grad_clip)
        self.gradients = Gradients(
            self.model,
            build_objective(config),
            config.train,
            self.data_seed,
            user_code=is_foreign(numbers(config)),
            warn=partial(print, f"ablate: {self.run.path}:", file=sys.stderr, flush=True),
            ranks=self.ranks,
        )

    def restore(self) -> None:
        """Load the last checkpoint, and cut the log of metrics to the steps before it."""
        parts = {
            "model": self.model,
            "optimiser": self.optimiser,
            "average": self.average,
            "step": self.step_rule,
            "gradients": self.gradients,
            "clock": self.clock,
        }
        self.checkpointer = Checkpointer(self.run, parts, self.config.train.checkpoint_seconds)
        progress = self.checkpointer.load(self.device)
        self.progress = self.checkpointer.share(progress, self.ranks, self.device)
        self.metrics = MetricsWriter(self.run, self.progress.offset)

    def train(self, should_stop: Callable[[], bool]) -> dict[str, float]:
        """Train to the last step and return its metrics.  Raises Interrupted and Diverged."""
        progress = self.progress
        warm_step = progress.step + min(WARM_UP, self.steps // 2)
        row: Row = {}
        try:
            if progress.offset == 0:
                row = self.log({})
            while progress.step < self.steps:
                if self.ranks.any([should_stop()])[0]:
                    self.save()
                    raise Interrupted
                if progress.step > 0 and self.checkpointer.is_due():
                    self.save()

                losses, grad_norm, lr = self.train_step(progress.step)
                progress.step += 1

                train_metrics: Row = {}
                with self.clock.timed("wait"):  # reading a loss waits for the device, so only where it is needed
                    if progress.step == 1:
                        progress.first_loss = losses["loss"].item()
                    if self.logs(progress.step):
                        train_metrics = {f"train/{name}": loss.item() for name, loss in losses.items()}
                        train_metrics["lr"] = lr
                        train_metrics["grad_norm"] = grad_norm.item()
                    elif self.evaluates(progress.step) or progress.step == warm_step:
                        losses["loss"].item()
                self.clock.count_step(progress.step > warm_step)

                if train_metrics or self.evaluates(progress.step):
                    row = self.log(train_metrics)
            if not row:  # resumed from the checkpoint of the last step, which keep=all saves
                row = self.evaluate(self.steps) | self.run.metrics()[0][-1]
            if self.config.keep == "all":
                self.save()
        finally:
            self.metrics.close()
        return {name: value for name, value in row.items() if "/" in name}

    def train_step(self, step: int) -> tuple[dict[str, Tensor], Tensor, float]:
        """One training step; returns losses by name, the gradient norm before clipping, and the learning rate."""
        optim = self.config.optim
        with self.clock.timed("data"):
            self.gradients.begin_step(step)
            batch = self.task.batch(self.data_seed, step, self.config.train.batch_size)
        self.progress.tokens += batch_positions(batch)
        with self.clock.timed("optimiser"):
            lr = learning_rate(step, self.steps, optim.lr, optim.warmup, self.schedule, optim.min_lr_ratio)
            self.step_rule.generator.manual_seed(step_seed(self.data_seed, step))
            losses, grad_norm = self.step_rule.update(batch, lr, self.timed_gradients)
            self.average.update(step)
            self.optimiser.zero_grad(set_to_none=True)
        return losses, grad_norm, lr

    def timed_gradients(self, batch: Batch) -> dict[str, Tensor]:
        """The gradients of a batch, for the step; their time does not count as the optimiser's."""
        with self.clock.timed("forward_backward"):
            return self.gradients(batch)

    def logs(self, step: int) -> bool:
        return step % self.config.train.log_every == 0 or step == self.steps

    def evaluates(self, step: int) -> bool:
        return step % self.config.train.eval_every == 0 or step == self.steps

    def log(self, train_metrics: Row) -> Row:
        """Evaluate if it is time, and write a row of metrics.  Raises Diverged."""
        progress = self.progress
        evaluated: Row = {}
        is_finite = all(math.isfinite(value) for value in train_metrics.values())
        if is_finite and self.evaluates(progress.step):  # a loss that is not finite ends the run below
            evaluated = self.evaluate(progress.step)
        row = {"step": progress.step, "tokens": progress.tokens, "seconds": round(self.clock.total(), 3)}
        row |= train_metrics | evaluated
        with self.clock.timed("log"):
            self.metrics.write(row)
        check_divergence(row, progress, self.config.train)
        return row

    def evaluate(self, step: int) -> dict[str, float]:
        """Validation metrics, diagnostics if they are wanted, and at the last step test metrics."""
        model = self.average.model
        batch_size = self.config.train.batch_size
        with self.clock.timed("evaluate"):
            measured = measure(model, self.task, "val", self.evaluation)
            metrics = dict(measured.metrics)
            if self.config.train.diagnostics:
                rows = math.ceil(batch_size / self.gradients.parts)
                metrics |= diagnose(model, measured.held_out, rows, self.evaluation)
            if step == self.steps:
                batches = following(self.task, self.data_seed, step, batch_size)
                test_metrics, self.documents = final_evaluation(model, self.task, self.evaluation, batches)
                metrics |= test_metrics
        return metrics

    def save(self) -> None:
        """Save a checkpoint, if this is rank 0."""
        if self.ranks.rank > 0:
            return
        if self.device.type == "cuda":  # so that pending work does not count as writing
            with self.clock.timed("wait"):
                torch.cuda.synchronize()
        with self.clock.timed("checkpoint"):
            self.checkpointer.save(self.progress, self.metrics)


def new_trainer(run: Run, config: Config, seed: int, ranks: Ranks = ALONE) -> Trainer:
    """A trainer that resumes from the run's checkpoint, or starts over with a message if that is damaged."""
    try:
        return Trainer(run, config, seed, ranks)
    except DamagedCheckpoint as error:
        print(f"ablate: {error}", file=sys.stderr)
    return Trainer(run, config, seed, ranks)  # when the first one's memory is free
