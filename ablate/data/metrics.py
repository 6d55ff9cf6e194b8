"""Metrics: functions from the scores of all targets to a number, and their properties.

Every task can use those in METRICS.  Other metrics are `Metric` objects in the `own_metrics` of their tasks, so that
they do not change the run keys of other tasks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Scores(NamedTuple):
    """Per target, in the shape of the targets: loss in nats, whether the argmax is right, whether it is scored."""

    loss: np.ndarray
    right: np.ndarray
    scored: np.ndarray


@dataclass(frozen=True)
class Metric:
    """How a metric is computed and shown; tasks define which direction is better.

    share   whether it lies in [0, 1], with 1 the best: then two runs differ by at most 1, and a task can be solved
    unit    unit of the value per target, such as nats
    beside  whether the summary shows it next to the metric by which variants are compared
    """

    compute: Callable[[Scores], float]
    share: bool = False
    unit: str = ""
    beside: bool = True


def loss(scores: Scores) -> float:
    """Mean loss of the scored targets, in nats."""
    return float(scores.loss[scores.scored].mean())


def accuracy(scores: Scores) -> float:
    """Share of scored targets that equal the argmax."""
    return float(scores.right[scores.scored].mean())


def exact(scores: Scores) -> float:
    """Share of examples whose scored targets all equal the argmax; examples without scored targets do not count."""
    examples = scores.scored.reshape(len(scores.scored), -1)
    whole = (scores.right | ~scores.scored).reshape(examples.shape).all(1)
    return float(whole[examples.any(1)].mean())


METRICS = {
    "loss": Metric(loss, unit="nats", beside=False),
    "accuracy": Metric(accuracy, share=True, beside=False),
    "exact": Metric(exact, share=True, beside=False),
}
