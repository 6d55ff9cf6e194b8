"""When a run counts as diverged."""

from __future__ import annotations

import math

from ablate.config.schema import Train
from ablate.results.metrics_writer import Row
from ablate.training.checkpoint import Progress

DIVERGED = 1.1  # times the training loss of the first step
LASTING = 0.1  # of the steps that the logged training losses are as high; at the end of the run the last two are enough


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
