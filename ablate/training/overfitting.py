"""Overfitting: a validation loss that rises again while the training loss falls.  A note on a run, never a lost one."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.results.metrics_writer import Row
from ablate.results.result import Overfits

OVERFITS = 1.02  # times the lowest validation loss, at the end: more than evaluations of one run differ by
WINDOW = 5  # logged steps whose training losses are averaged: single batches differ


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
