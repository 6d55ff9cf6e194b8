"""Detection of divergence, which ends a run, and of overfitting, which is only noted."""

import math
from collections.abc import Sequence

from ablate.config.schema import Train
from ablate.runs.folder import Row
from ablate.runs.records import Overfits
from ablate.training.checkpoint import Progress

DIVERGED = 1.1  # times the training loss of the first step
LASTING = 0.1  # share of the steps for which the loss must be that high; at the end of the run two logged losses do
OVERFITS = 1.02  # final / lowest validation loss: above the variation between evaluations of one run
WINDOW = 5  # logged steps over which the training loss is averaged, since single batches vary


class Diverged(Exception):
    """The loss is not finite, or the training loss stays above its initial value."""


def check_divergence(row: Row, progress: Progress, config: Train) -> None:
    """Raise Diverged if a loss is not finite, or if the training loss stays above 1.1 times its first value.

    It stays there if every loss logged over a tenth of the steps is above, or the last two of the run.  The validation
    loss does not matter as long as the training loss is finite and falls.
    """
    for key in ("train/loss", "train/objective", "grad_norm", "val/loss", "test/loss"):
        if not math.isfinite(row.get(key, 0.0)):
            raise Diverged(f"{key} is {row[key]} at step {row['step']}")
    if "train/loss" not in row:
        return
    loss = row["train/loss"]
    if loss > DIVERGED * progress.first_loss:
        progress.high_loss_count += 1
    else:
        progress.high_loss_count = 0
    count = progress.high_loss_count
    is_lasting = count * config.log_every >= LASTING * config.steps
    if count >= 2 and (is_lasting or row["step"] == config.steps):
        since = f"{progress.first_loss:.3f} at the first, {count} logged steps in a row above {DIVERGED:g} times that"
        raise Diverged(f"train/loss {loss:.3f} at step {row['step']}, {since}")


def overfits(rows: Sequence[Row]) -> Overfits | None:
    """How much higher a run's validation loss ends than its lowest value, while the training loss fell.

    `times`: last / lowest validation loss; `step`: the step of the lowest.  None if it ends less than 2 % above, or if
    the training loss, averaged over five logged steps, is no lower at the end than at that step.
    """
    evaluated = [row for row in rows if isinstance(row.get("val/loss"), int | float)]
    if not evaluated:
        return None
    lowest = min(evaluated, key=lambda row: row["val/loss"])
    if lowest["val/loss"] <= 0:
        return None
    times = evaluated[-1]["val/loss"] / lowest["val/loss"]
    step = int(lowest["step"])
    if times <= OVERFITS or not training_loss(rows, rows[-1]["step"]) < training_loss(rows, step):
        return None
    return Overfits(times=round(times, 4), step=step)


def training_loss(rows: Sequence[Row], step: float) -> float:
    """Mean of the last logged training losses up to a step; the first one if none was logged by then."""
    logged = [row for row in rows if isinstance(row.get("train/loss"), int | float)]
    if not logged:
        return math.nan
    before = [row for row in logged if row["step"] <= step]
    losses = [row["train/loss"] for row in before[-WINDOW:] or logged[:1]]
    return sum(losses) / len(losses)
