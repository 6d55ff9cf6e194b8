"""When a run counts as diverged, and when as overfitting, which is a note on a run, never a lost one."""

import math
from collections.abc import Sequence

from ablate.config.schema import Train
from ablate.results.records import Overfits
from ablate.results.run import Row
from ablate.training.checkpoint import Progress

DIVERGED = 1.1  # times the training loss of the first step
LASTING = 0.1  # of the steps that the logged training losses are as high; at the end of the run the last two are enough
OVERFITS = 1.02  # times the lowest validation loss, at the end: more than evaluations of one run differ by
WINDOW = 5  # logged steps whose training losses are averaged: single batches differ


class Diverged(Exception):
    """The loss is not finite, or the training loss stays above where it began."""


def check_divergence(row: Row, progress: Progress, loop: Train) -> None:
    """Raise Diverged for a loss that is not finite, or a training loss that stays 1.1 times above its first value.

    It stays where no loss logged over a tenth of the steps is lower, or none of the last two of the run.  What the
    validation loss does while the training loss is finite and falls is no matter of divergence.
    """
    for key in ("train/loss", "train/objective", "grad_norm", "val/loss", "test/loss"):
        if not math.isfinite(row.get(key, 0.0)):
            raise Diverged(f"{key} is {row[key]} at step {row['step']}")
    if "train/loss" not in row:
        return
    first, steps = progress.first_loss, loop.steps
    progress.high_loss_count = progress.high_loss_count + 1 if row["train/loss"] > DIVERGED * first else 0
    lasting = progress.high_loss_count * loop.log_every >= LASTING * steps or row["step"] == steps
    if progress.high_loss_count >= 2 and lasting:
        count = progress.high_loss_count
        since = f"{first:.3f} at the first, {count} logged steps in a row above {DIVERGED:g} times that"
        raise Diverged(f"train/loss {row['train/loss']:.3f} at step {row['step']}, {since}")


def overfits(rows: Sequence[Row]) -> Overfits | None:
    """How far the validation loss of a run's logged rows ends above its lowest, while the training loss fell.

    `times`: last / lowest validation loss; `step`: where it was lowest.  None where it ends less than 2 % above, or
    the training loss, averaged over five logged steps, is no lower at the end than it was there.
    """
    evaluated = [row for row in rows if isinstance(row.get("val/loss"), int | float)]
    if not evaluated:
        return None
    lowest = min(evaluated, key=lambda row: row["val/loss"])
    times = evaluated[-1]["val/loss"] / lowest["val/loss"] if lowest["val/loss"] > 0 else 1.0
    if times <= OVERFITS or not _trained(rows, None) < _trained(rows, int(lowest["step"])):
        return None
    return Overfits(times=round(times, 4), step=int(lowest["step"]))


def _trained(rows: Sequence[Row], step: int | None) -> float:
    """The mean training loss of the logged steps up to one, or to the last; of those after it where there are none."""
    known = [row for row in rows if isinstance(row.get("train/loss"), int | float)]
    before = [row for row in known if step is None or row["step"] <= step][-WINDOW:] or known[:1]
    losses = [row["train/loss"] for row in before]
    return sum(losses) / len(losses) if losses else float("nan")
