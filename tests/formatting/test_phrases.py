"""Numbers as people read them."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from ablate import evidence, formatting
from analysis.figures.draw.axes import Short

NAN = float("nan")


@pytest.mark.parametrize("zero", [0.0, -0.0, -0.0003, 0.0004, -1e-17])
def test_what_is_shown_as_zero_has_no_sign(zero: float) -> None:
    assert formatting.number(zero, 3) == formatting.number(zero, 3, signed=True) == "0.000"
    assert formatting.number(zero, 0, signed=True) == "0"
    assert formatting.span(zero, NAN, NAN, 3) == "0.000"
    assert formatting.span(zero, -0.0002, 0.0001, 3) == "0.000 [0.000, 0.000]"
    assert formatting.percent(zero / 10) == "0.0 %" and formatting.remainder(zero / 100) in ("0.00 %", "0 %")
    row = SimpleNamespace(worth=zero, worth_low=-0.12, worth_high=0.14)
    assert evidence.worth_words(row, "steps").startswith("worth 0 % [")


def test_what_is_not_zero_has_its_sign() -> None:
    signed = [formatting.number(value, 3, signed=True) for value in (0.053, -0.053, 12.5)]
    assert signed == ["+0.053", "−0.053", "+12.500"]
    shown = [formatting.number(0.053, 3), formatting.number(-10.05, 2), formatting.number(NAN, 2)]
    assert shown == ["0.053", "−10.05", "–"]
    shares = [formatting.percent(-0.12), formatting.percent(0.001), formatting.remainder(-0.0167)]
    assert shares == ["−12.0 %", "+0.1 %", "−1.67 %"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-0.028, -0.0003, "−0.028, −0.0003"),
        (0.00049, 0.03, "+0.0005, +0.030"),
        (-0.028, 0.0003, "−0.028, 0.000"),
        (0.0, 0.03, "0.000, +0.030"),
        (1e-30, 0.03, "0.000000000, +0.030"),
        (NAN, NAN, "–, –"),
    ],
)
def test_an_end_that_is_clear_of_zero_is_not_shown_as_zero(low: float, high: float, shown: str) -> None:
    assert formatting.ends(low, high, 3, signed=True) == shown


def test_durations() -> None:
    shown = ["8.1 s", "10 s", "48 s", "1 min 00 s", "1 min 08 s", "1 h 00 min", "2 h 03 min"]
    assert [formatting.duration(seconds) for seconds in (8.14, 9.96, 48.4, 59.7, 68, 3599.6, 7384)] == shown


def test_ticks_beside_zero_have_no_sign() -> None:
    axis = Figure().subplots()
    axis.set_xlim(-0.05, 0.05)
    axis.xaxis.set_major_formatter(Short())
    shown = axis.xaxis.get_major_formatter().format_ticks([-0.05, -1e-18, 0.0, 0.05])
    assert shown[1:3] == ["0", "0"] and not any(re.fullmatch(r"[−-]0?\.?0*", text) for text in shown)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "interaction: residual=post fares worse with optim.warmup=0"),
        ({"verdict": "better"}, "interaction: residual=post fares better with optim.warmup=0"),
        ({"note": "2 of 8 seeds collapsed"},
         "worse (higher together than the two alone predict): 2 of 8 seeds collapsed"),
        ({"factor": "residual x norm x optim.warmup", "level": "post, rms, 0"},
         "worse (higher together than the two alone predict)"),
        ({"kind": "trend"}, "worse (higher loss 0)"),
        ({"kind": "main", "factor": "residual", "level": "post"}, "worse (higher loss)"),
    ],
)  # fmt: skip
def test_an_interaction_says_what_fares_worse_with_what(changed: dict[str, Any], said: str) -> None:
    row = {"kind": "interaction", "factor": "residual x optim.warmup", "level": "post, 0", "verdict": "worse"}
    row |= {"metric": "test/loss", "lower_is_better": True, "note": "", "given": "", "diverged": 0}
    assert formatting.verdict(SimpleNamespace(**row | {"diverged_reference": 0} | changed)) == said
