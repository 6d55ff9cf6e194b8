"""Runs that learn nothing on the task that they were trained on; once seen, they bar *equivalent* and *negligible*."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas

from ablate.evidence.contrasts import Contrast
from ablate.evidence.estimates import groups_of
from ablate.evidence.proportions import is_solved
from ablate.evidence.scores import StudyScores, endpoints, is_share, lower_is_better
from ablate.formatting import SPEED
from ablate.runs.records import TaskFacts

# Places on the way from the best run (0) to the task's yardstick (1).
MIDDLE = 0.5
LAST_TENTH = 0.9


class Collapse(NamedTuple):
    """How many seeds of a contrast have a collapsed run, and of how many; if unpaired, of the side with most."""

    collapsed: int
    seeds: int


def collapse_of(scores: StudyScores, contrast: Contrast) -> Collapse:
    """The collapsed runs of a contrast."""
    collapsed = collapsed_runs(scores, [*contrast.weights])
    groups, _ = groups_of(scores, contrast.weights)
    counts = []
    for group in groups:
        complete = scores.ranked[[*group]].notna().all(axis=1)
        in_group = collapsed[[*group]].any(axis=1) & complete
        counts.append(Collapse(int(in_group.sum()), int(complete.sum())))
    return max(counts)


def collapsed_runs(scores: StudyScores, cells: Sequence[str]) -> pandas.DataFrame:
    """Which runs of some cells learned nothing on the task that they were trained on (seeds, cells).

    Results are scaled so that the best of these runs is 0 and the task's yardstick 1 (see `nothing_learned`).  A run
    collapsed if it lies at 0.9 or beyond and no run of its cell lies between 0.5 and 0.9: the cell splits in two.
    Diverged runs always count.  They alone count where the cells share no yardstick, the metric is a speed or a share
    of solved tasks, or no run is better than the yardstick.
    """
    manifest = scores.study.manifest
    metrics = endpoints(manifest)
    diverged = np.isinf(scores.ranked[[*cells]])
    yardsticks = {nothing_learned(manifest.tasks[scores.cells[cell].task], metrics[cell]) for cell in cells}
    is_speed = any(scores.metrics[cell] in SPEED for cell in cells)
    if len(yardsticks) > 1 or is_speed or any(is_solved(metrics[cell]) for cell in cells):
        return diverged
    sign = 1 if lower_is_better(manifest, metrics[cells[0]]) else -1
    losses = sign * scores.trained[[*cells]].to_numpy(float)  # lower is better from here on
    yardstick = sign * yardsticks.pop()
    best = np.min(losses, initial=math.inf, where=~np.isnan(losses))
    if not best < yardstick:
        return diverged
    fraction_to_yardstick = (losses - best) / (yardstick - best)
    learned_nothing = fraction_to_yardstick >= LAST_TENTH
    learned_little = (fraction_to_yardstick > MIDDLE) & ~learned_nothing
    splits_in_two = ~learned_little.any(axis=0)  # by cell
    return diverged | (learned_nothing & splits_in_two)


def score_of_a_guess(task: TaskFacts, metric: str) -> float:
    """The score of a model without any learning: e^−c or 0 for a share, the largest yardstick c for a loss, or NaN."""
    name = metric.split("/")[-1].split("@")[0]
    yardsticks = {key: float(value) for key, value in task.yardsticks.items() if value is not None}
    if is_share(task, metric):
        return math.exp(-yardsticks["chance"]) if name == "accuracy" and "chance" in yardsticks else 0.0
    if name.startswith("loss"):
        return max(yardsticks.values(), default=math.nan)
    return math.nan


def nothing_learned(task: TaskFacts, metric: str) -> float:
    """The score below which something was learned: the loss of byte or token frequencies where it is known, else that
    of a guess."""
    frequencies = task.yardsticks.get("unigram")
    if metric.split("/")[-1] == "loss" and frequencies is not None:
        return float(frequencies)
    return score_of_a_guess(task, metric)
