"""The training loop: one run from its configuration to its result, with metrics on disk and exact resumption."""

import contextlib
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
from ablate.results.records import Documents
from ablate.results.run import MetricsWriter, Row, Run
from ablate.results.run_key import compiled_code, is_foreign, numbers
from ablate.training import checkpoint
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
    """One run: a model, a task and an optimiser, trained from the last checkpoint, or from the start, to the end."""

    def __init__(self, run: Run, config: Config, seed: int, ranks: Ranks = ALONE):
        self.clock, self.documents, self.ranks = Clock(ranks.count), Documents(), ranks
        with self.clock.timed("setup"):
            self.run, self.loop, self.optim = run, config.train, config.optim
            self.keep_checkpoint = config.keep == "all"
            init_seed, self.data_seed = initial_seed(config, seed), data_seed(config.seed, seed)
            self.device, self.setting = torch.device(self.loop.device), setting_of(config)._replace(ranks=ranks)
            reset_peak_memory(self.device)  # the worker's earlier runs must not count
            self.task = build_task(config)
            self.model = initialised_model(config, self.task, init_seed)
            # The other ranks get the weights of rank 0.
            self.vectors_seconds = None if ranks.rank else begin_with_vectors(self.model, config, self.task, init_seed)
            self.model.to(self.device)
            self.average = AVERAGES[self.loop.average](self.model, self.loop.steps)
            for model in {self.model, self.average.model}:
                use(self.loop.matmul, model, self.loop.device)
            if self.loop.compile:
                compile_in_place({self.model, self.average.model}, compiled_code(config))
            self.schedule, self.optimiser = build_schedule(config), build_optimiser(config, self.model)
            self.step = build_step(config, self.model, self.optimiser, self.optim.grad_clip)
            objective, user_code = build_objective(config), is_foreign(numbers(config))
            report = partial(print, f"ablate: {run.path}:", file=sys.stderr, flush=True)
            self.gradients = Gradients(self.model, objective, self.loop, self.data_seed, user_code, report, ranks)
            self.parts = {"model": self.model, "optimiser": self.optimiser, "average": self.average}
            self.parts |= {"step": self.step, "gradients": self.gradients, "clock": self.clock}
            self.progress = checkpoint.restore(run, self.device, self.parts)
            self.progress = checkpoint.share(self.progress, self.parts, ranks)
            self.metrics = MetricsWriter(run.metrics_file, self.progress.offset, run.check)
            self.saver = checkpoint.Saver(run, self.metrics, self.parts, self.loop.checkpoint_seconds)

    def train(self, stop: Callable[[], bool]) -> dict[str, float]:
        """Train to the last step and return the metrics of that step.  Raises Interrupted and Diverged."""
        try:
            row = self.finish_steps(stop)
            self.finish_checkpoint()
        except Interrupted:
            self.finish_checkpoint()  # without it nothing could be continued
            raise
        except BaseException:
            with contextlib.suppress(Exception):  # the error of the run is the one to report
                self.finish_checkpoint()
            raise
        finally:
            self.metrics.close()
        return {key: value for key, value in row.items() if "/" in key}

    def finish_checkpoint(self) -> None:
        """Wait for the last checkpoint.  Raises the error of writing it."""
        with self.clock.timed("checkpoint"):
            self.saver.written.result()

    def finish_steps(self, stop: Callable[[], bool]) -> Row:
        """Take the steps that are left, with what is due in between; returns the last row."""
        progress, loop = self.progress, self.loop
        warm = progress.step + min(WARM_UP, loop.steps // 2)
        row = self.log({}) if progress.offset == 0 else {}
        while progress.step < loop.steps:
            if self.ranks.most([stop()])[0]:
                self.save()
                raise Interrupted
            if progress.step and self.saver.is_due():
                self.save()
            losses, norm, lr = self.update(progress.step)
            progress.step += 1
            # Reading a loss waits for the device, so read it only for logging or to start a measurement of time.
            found: Row = {}
            with self.clock.timed("wait"):
                if progress.step == 1:
                    progress.first_loss = losses["loss"].item()
                elif progress.step % loop.eval_every == 0 or progress.step == warm:
                    losses["loss"].item()
                if progress.step % loop.log_every == 0 or progress.step == loop.steps:
                    found = {f"train/{name}": loss.item() for name, loss in losses.items()}
                    found |= {"lr": lr, "grad_norm": norm.item()}
            self.clock.count_step(progress.step > warm)
            if found or progress.step % loop.eval_every == 0:
                row = self.log(found)
        if not row:  # resumed from the checkpoint of the last step, which keep=all saves
            row = self.evaluate(loop.steps, loop.steps) | dict(*self.run.metrics()[0][-1:])
        if self.keep_checkpoint:
            self.save()
        return row

    def update(self, step: int) -> tuple[dict[str, Tensor], Tensor, float]:
        """One training step; returns losses by name, the gradient norm before clipping, and the learning rate."""
        optim = self.optim
        with self.clock.timed("data"):
            self.gradients.begin(step)
            batch = self.task.batch(self.data_seed, step, self.loop.batch_size)
        self.progress.tokens += batch_positions(batch)
        with self.clock.timed("optimiser"):
            lr = learning_rate(step, self.loop.steps, optim.lr, optim.warmup, self.schedule, optim.min_lr_ratio)
            self.step.generator.manual_seed(step_seed(self.data_seed, step))
            losses, norm = self.step.update(batch, lr, self.timed_gradients)
            self.average.update(step)
            self.optimiser.zero_grad(set_to_none=True)
        return losses, norm, lr

    def timed_gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Gradients of a batch, for the step; their time does not count as the optimiser's."""
        with self.clock.timed("forward_backward"):
            return self.gradients(batch)

    def log(self, update: Row) -> Row:
        """Log a row for this step, with the evaluations that are due.  Raises Diverged."""
        step, steps, evaluated = self.progress.step, self.loop.steps, dict[str, float]()
        # A loss that is not finite ends the run below; do not spend time on evaluating the model.
        if all(math.isfinite(value) for value in update.values()) or step == 0:
            evaluated = self.evaluate(step, steps)
        seconds = round(sum(self.clock.seconds.values()), 3)
        row = {"step": step, "tokens": self.progress.tokens, "seconds": seconds} | update | evaluated
        with self.clock.timed("log"):
            self.metrics.write(row)
        check_divergence(row, self.progress, self.loop)
        return row

    def evaluate(self, step: int, steps: int) -> dict[str, float]:
        """Validation metrics and diagnostics when due, and test metrics at the last step."""
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
                final, self.documents = final_evaluation(self.average.model, self.task, self.setting, batches)
                found |= final
        return found

    def save(self) -> None:
        """Save a checkpoint, which a thread writes, if this is rank 0."""
        if self.ranks.rank:
            return
        if self.device.type == "cuda":  # so that pending GPU work does not count as writing
            with self.clock.timed("wait"):
                torch.cuda.synchronize()
        with self.clock.timed("checkpoint"):
            self.saver.save(self.progress)


def new_trainer(run: Run, config: Config, seed: int, ranks: Ranks = ALONE) -> Trainer:
    """A trainer that resumes from the run's checkpoint, or starts over with a message if that is damaged."""
    try:
        return Trainer(run, config, seed, ranks)
    except checkpoint.DamagedCheckpoint as error:
        print(f"ablate: {error}", file=sys.stderr)
    return Trainer(run, config, seed, ranks)  # when the first one's memory is free
