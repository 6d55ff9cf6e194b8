"""Learning rates by update, against worked numbers."""

import math

import pytest

from ablate.training.schedule import WSD, Constant, Cosine, Linear, learning_rate

MADE = {"cosine": Cosine(), "linear": Linear(), "constant": Constant()}
MADE |= {f"wsd {form}": WSD(0.2, form) for form in ("linear", "cosine", "sqrt", "exponential")}


def at(step: int, schedule: str = "cosine", steps: int = 101, warmup: int = 10, floor: float = 0.1) -> float:
    """The learning rate of one update, of a peak of 2."""
    return learning_rate(step, steps, 2.0, warmup, MADE[schedule], floor)


@pytest.mark.parametrize("schedule", MADE)
def test_warm_up_is_linear_and_reaches_the_peak(schedule):
    assert [at(step, schedule) for step in range(10)] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert at(9, schedule) == at(10, schedule) == at(0, schedule, warmup=0) == 2.0


@pytest.mark.parametrize("schedule", MADE)
@pytest.mark.parametrize("warmup", [0, 100, 500])
def test_every_rate_is_positive_bounded_and_falls_after_the_peak(schedule, warmup):
    rates = [at(step, schedule, warmup=warmup) for step in range(101)]
    assert all(math.isfinite(rate) and 0 < rate <= 2.0 for rate in rates)
    peak = min(warmup, 100)
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    if warmup < 100:
        assert rates[-1] == pytest.approx(2.0 if schedule == "constant" else 0.2)


@pytest.mark.parametrize(
    ("form", "half"), [("linear", 0.5), ("cosine", 0.5), ("sqrt", 1 - 0.5**0.5), ("exponential", None)]
)
def test_wsd_stays_and_then_falls_in_its_form(form, half):
    """101 steps, of which the last 20.2 decay: from update 79.8 to 100, half way at 89.9."""
    rates = [at(step, f"wsd {form}") for step in range(101)]
    assert set(rates[10:80]) == {2.0} and rates[80] < 2.0 and rates[100] == pytest.approx(0.2)
    done = (90 - 79.8) / 20.2
    left = {"linear": 1 - done, "cosine": math.cos(math.pi * done / 2) ** 2, "sqrt": 1 - done**0.5}
    wanted = 0.2 + 1.8 * left[form] if half else 2 * 10**-done
    assert rates[90] == pytest.approx(wanted)
    middle = learning_rate(90, 101, 2.0, 10, WSD(20 / 101, form), 0.1)
    assert middle == pytest.approx(0.2 + 1.8 * half if half else 2 * 0.1**0.5)
