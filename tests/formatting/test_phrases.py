"""Numbers as people read them."""

from types import SimpleNamespace
from typing import Any

import pytest

from ablate import evidence, formatting

NAN = float("nan")


@pytest.mark.parametrize("zero", [0.0, -0.0, -0.0003, 0.0004, -1e-17])
def test_what_is_shown_as_zero_has_no_sign(zero):
    assert formatting.number(zero, 3) == "0.000"
    assert formatting.number(zero, 3, signed=True) == "0.000"
    assert formatting.span(zero, -0.0002, 0.0001, 3) == "0.000 [0.000, 0.000]"
    assert formatting.percent(zero / 10) == "0.0 %"
    assert formatting.remainder(zero / 100) in ("0.00 %", "0 %")
    row = SimpleNamespace(worth=zero, worth_low=-0.12, worth_high=0.14)
    assert evidence.worth_words(row, "steps").startswith("worth 0 % [")


NUMBERS = [
    (formatting.number(0.053, 3), "0.053"),
    (formatting.number(0.053, 3, signed=True), "+0.053"),
    (formatting.number(-10.05, 2), "−10.05"),
    (formatting.number(NAN, 2), "–"),
    (formatting.percent(-0.12), "−12.0 %"),
    (formatting.percent(0.001), "+0.1 %"),
    (formatting.remainder(-0.0167), "−1.67 %"),
]


@pytest.mark.parametrize(("shown", "expected"), NUMBERS)
def test_what_is_not_zero_has_its_sign(shown, expected):
    assert shown == expected


ENDS = [
    (-0.028, -0.0003, "−0.028, −0.0003"),
    (0.00049, 0.03, "+0.0005, +0.030"),
    (-0.028, 0.0003, "−0.028, 0.000"),
    (0.0, 0.03, "0.000, +0.030"),
    (1e-30, 0.03, "0.000000000, +0.030"),
    (NAN, NAN, "–, –"),
]


@pytest.mark.parametrize(("low", "high", "shown"), ENDS)
def test_an_end_that_is_clear_of_zero_is_not_shown_as_zero(low, high, shown):
    assert formatting.ends(low, high, 3, signed=True) == shown


DURATIONS = {
    8.14: "8.1 s",
    9.96: "10 s",
    59.7: "1 min 00 s",
    68: "1 min 08 s",
    3599.6: "1 h 00 min",
    7384: "2 h 03 min",
}


@pytest.mark.parametrize("seconds", DURATIONS)
def test_durations(seconds):
    assert formatting.duration(seconds) == DURATIONS[seconds]


TOGETHER = "worse (higher together than the two alone predict)"
VERDICTS: list[tuple[dict[str, Any], str]] = [
    ({}, TOGETHER),
    ({"note": "2 of 8 seeds collapsed"}, f"{TOGETHER}: 2 of 8 seeds collapsed"),
    ({"kind": "trend"}, "worse (higher loss 0)"),
    ({"kind": "main", "factor": "residual", "level": "post"}, "worse (higher loss)"),
]


@pytest.mark.parametrize(("changed", "words"), VERDICTS)
def test_a_decided_effect_says_what_is_higher(changed, words):
    row = {"kind": "interaction", "factor": "residual x optim.warmup", "level": "post, 0", "verdict": "worse"}
    row |= {"metric": "test/loss", "lower_is_better": True, "note": "", "given": "", "diverged": 0}
    row |= {"diverged_reference": 0} | changed
    assert formatting.verdict(SimpleNamespace(**row)) == words
