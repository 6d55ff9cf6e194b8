"""Metrics: one number of all scored targets, and what those who read it have to know about it.

Every task can name those in METRICS.  Another metric is a `Metric` in the `own_metrics` of the tasks that have it, so
that it enters no key of the runs of others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Scores(NamedTuple):
    """Of every target, shaped as the targets: its loss in nats, whether the argmax hits it, whether it is scored."""

    loss: np.ndarray
    right: np.ndarray
    scored: np.ndarray


@dataclass(frozen=True)
class Metric:
    """How a metric is computed and read; which way is better, the tasks that have it say.

    share   whether it lies in [0, 1] and is best at 1: then no two runs differ by more than 1, and a task can be solved
    unit    of its values, for each target: nats
    beside  whether the summary shows it beside the metric that variants are compared by
    """

    compute: Callable[[Scores], float]
    share: bool = False
    unit: str = ""
    beside: bool = True


def loss(scores: Scores) -> float:
    """Mean loss of the scored targets, in nats."""
    return float(scores.loss[scores.scored].mean())


def accuracy(scores: Scores) -> float:
    """Share of the scored targets that are the argmax."""
    return float(scores.right[scores.scored].mean())


def exact(scores: Scores) -> float:
    """Share of the examples all of whose scored targets are the argmax; examples without any do not count."""
    examples = scores.scored.reshape(len(scores.scored), -1)
    whole = (scores.right | ~scores.scored).reshape(examples.shape).all(1)
    return float(whole[examples.any(1)].mean())


METRICS = {
    "loss": Metric(loss, unit="nats", beside=False),
    "accuracy": Metric(accuracy, share=True, beside=False),
    "exact": Metric(exact, share=True, beside=False),
}
