"""Learning-rate schedules: the share of the peak learning rate at each update.  Imports no torch."""

import math
from typing import Literal

from ablate.config.components import bind
from ablate.config.errors import Problem
from ablate.config.ranges import within
from ablate.config.schema import Config


class Schedule:
    """floor + (1 − floor) · left(x) of the peak, where x goes from 0 to 1 over the updates after the warm-up.  A
    subclass defines `left`, or `share` itself."""

    def share(self, step: int, steps: int, warmup: int, floor: float) -> float:
        """Share of the peak at update `step` = `warmup` … `steps` − 1."""
        return floor + (1 - floor) * self.left((step - warmup) / max(1, steps - 1 - warmup))

    def left(self, done: float) -> float:
        """1 at the first update after the warm-up, 0 at the last; `done` goes from 0 to 1."""
        raise NotImplementedError


class Cosine(Schedule):
    """left(x) = (1 + cos πx) / 2 (Loshchilov 2016, arXiv 1608.03983; without restarts)."""

    def left(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2


class Linear(Schedule):
    """left(x) = 1 − x."""

    def left(self, done: float) -> float:
        return 1 - done


class Constant(Schedule):
    """The peak until the end, regardless of the floor."""

    def share(self, step: int, steps: int, warmup: int, floor: float) -> float:
        return 1.0


class WSD(Schedule):
    """Warm-up, stable, decay: constant, then down to the floor in the last `decay` of all steps (Hu 2024, 2404.06395).

    With y from 0 to 1 in the decay, the part above the floor falls as `form`: linear, 1 − y; cosine, (1 + cos πy) / 2;
    sqrt, 1 − √y (Hägele 2024, arXiv 2405.18392).  With exponential the share of the peak is floor^y.
    """

    def __init__(self, decay: float, form: Literal["linear", "cosine", "sqrt", "exponential"]):
        self.decay = within("schedule.decay", decay, 0, 1, "(]")
        self.form = form

    def share(self, step: int, steps: int, warmup: int, floor: float) -> float:
        """See Schedule; a decay that would begin during the warm-up begins at its end."""
        if self.form == "exponential" and floor == 0:
            raise ValueError("schedule.form=exponential falls to optim.min_lr_ratio by equal factors; write one > 0")
        last = steps - 1
        begin = max(warmup, last - self.decay * steps)
        if step <= begin or last <= begin:
            return 1.0
        done = (step - begin) / (last - begin)
        return floor**done if self.form == "exponential" else floor + (1 - floor) * self.left(done)

    def left(self, done: float) -> float:
        """See Schedule; `done` counts from the start of the decay."""
        if self.form == "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        if self.form == "sqrt":
            return 1 - math.sqrt(done)
        return 1 - done


def build_schedule(config: Config) -> Schedule:
    """The schedule of a resolved configuration.  Raises BadComponent and ValueError."""
    return bind("schedule", config.schedule, {}, config.user)()


def learning_rate(step: int, steps: int, lr: float, warmup: int, schedule: Schedule, floor: float) -> float:
    """Learning rate of update `step` = 0 … steps − 1: lr · (step + 1) / warmup, then as the schedule says."""
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * schedule.share(step, steps, warmup, floor)


def schedule_problems(config: Config) -> list[Problem]:
    """Problems of the learning rates at the first, middle and last update after the warm-up.  Raises BadComponent."""
    optim = config.optim
    steps = config.train.steps
    first = min(optim.warmup, steps - 1)
    try:
        schedule = build_schedule(config)
        for step in (first, (first + steps - 1) // 2, steps - 1):
            rate = learning_rate(step, steps, optim.lr, optim.warmup, schedule, optim.min_lr_ratio)
            if not (math.isfinite(rate) and rate >= 0):
                return [Problem("schedule", f"gives a learning rate of {rate:g} at step {step}")]
    except ValueError as error:
        return [Problem("", str(error))]
    except ArithmeticError as error:
        return [Problem("schedule", f"gives no learning rate at step {step} ({error})")]
    return []
