"""Divergence is about training: which losses end a run, and what is only noted of it."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from one_run import train, write_plan

from ablate.runs.records import Overfits
from ablate.training.checkpoint import Progress
from ablate.training.divergence import Diverged, check_divergence, overfits

TRAIN: Any = SimpleNamespace(steps=400, log_every=10)


@pytest.mark.parametrize(
    ("losses", "accepted"),
    [
        ([5.0] * 40, 3),  # above 1.1 times 4.0 for a tenth of the 400 steps
        ([4.4] * 40, 40),
        ([9.0, 9.0, 9.0, 3.0] * 10, 40),  # spikes from which it comes back
        ([3.0] * 38 + [5.0, 5.0], 39),  # the last two of the run
        ([3.0] * 39 + [5.0], 40),  # a single batch
        ([4.0, 4.3, 3.8, 4.2] * 10, 40),  # stuck at the start, which is no divergence
        ([3.0, math.nan], 1),
    ],
)
def test_a_training_loss_that_stays_above_its_first_value_diverges(losses, accepted):
    progress = Progress(first_loss=4.0)
    count = 0
    try:
        for loss in losses:
            check_divergence({"step": 10 * (count + 1), "train/loss": loss}, progress, TRAIN)
            count += 1
    except Diverged:
        pass
    assert count == accepted


@pytest.mark.parametrize("log_every", [1, 7, 40])
def test_a_tenth_of_the_steps_is_counted_in_steps_whatever_is_logged(log_every):
    progress = Progress(first_loss=4.0)
    train_config: Any = SimpleNamespace(steps=400, log_every=log_every)
    steps = range(log_every, 400, log_every)
    with pytest.raises(Diverged, match=rf"step {max(2, math.ceil(40 / log_every)) * log_every},"):
        for step in steps:
            check_divergence({"step": step, "train/loss": 5.0}, progress, train_config)


def test_a_validation_loss_ends_no_run_unless_it_is_no_number():
    progress = Progress(first_loss=4.0)
    for step in range(0, 40, 5):
        check_divergence({"step": step, "val/loss": 4.0 + step}, progress, TRAIN)
    with pytest.raises(Diverged, match="val/loss is inf at step 40"):
        check_divergence({"step": 40, "val/loss": math.inf}, progress, TRAIN)


def test_a_real_run_whose_training_loss_climbs_diverges(plan, untried):
    planned = plan("optim.lr=5", "train.steps=40", "train.log_every=5", "seeds=1")
    write_plan(planned)
    status, run = train(planned)
    result = run.result()
    assert status == "diverged" and result is not None and result.error.message.startswith("train/loss")


def curve(validation: list[float], training: list[float]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"step": 0, "val/loss": validation[0]}]
    for i, loss in enumerate(training):
        rows.append({"step": i + 1, "train/loss": loss, "val/loss": validation[i + 1]})
    return rows


@pytest.mark.parametrize(
    ("validation", "training", "noted"),
    [
        ([4.0, 3.0, 3.1, 3.6], [3.9, 3.0, 2.0], Overfits(times=1.2, step=1)),
        ([4.0, 4.4, 4.8, 5.0], [3.9, 3.0, 2.0], Overfits(times=1.25, step=0)),
        ([4.0, 3.0, 2.9, 2.94], [3.9, 3.0, 2.0], None),  # less than 2 %
        ([4.0, 3.0, 3.1, 3.6], [3.0, 3.2, 3.6], None),  # the training loss rises, too
        ([4.0, 3.0, 2.0, 1.9], [3.9, 3.0, 2.0], None),
    ],
)
def test_overfitting_is_a_rising_validation_loss_over_a_falling_training_loss(validation, training, noted):
    assert overfits(curve(validation, training)) == noted
    assert overfits([]) is None and overfits([{"step": 0, "val/loss": None}, {"step": 5, "train/loss": 1.0}]) is None
