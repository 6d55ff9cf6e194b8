"""The margin of a study, the largest difference that does not matter: its two spellings, and when it was written."""

import math
import re
from collections.abc import Iterable
from typing import Any

from ablate.formatting.settings import is_number

PER_CENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
SPELLING = "a number in the metric's unit (margin=0.01) or a share of the training steps (margin='2 %')"


def fraction_of(margin: Any) -> float | None:
    """A margin such as '2 %' as a fraction, 0.02, of the reference's training steps; None for any other."""
    found = PER_CENT.fullmatch(margin.strip()) if isinstance(margin, str) else None
    return float(found[1]) / 100 if found else None


def wrong_margin(margin: Any, exchange: bool) -> str | None:
    """What is wrong with a study's margin, if anything; None is no margin."""
    share = fraction_of(margin)
    size = margin if share is None else share
    if margin is None or (isinstance(size, float) and not math.isfinite(size)):
        return None  # of numbers like nan the frame's own check speaks
    if not is_number(size) or size <= 0:
        return f"must be > 0, {SPELLING}; not {margin!r}"
    if share is not None and not exchange:
        why = f"{margin!r} is a share of the training steps, whose worth exchange runs measure"
        return f"{why}; write step_equivalents=true, too, or a number in the metric's unit"
    return None


def without_unit(margin: Any, metrics: Iterable[str]) -> str | None:
    """What is wrong with a number for differences of several metrics, of which each has a unit of its own."""
    known = list(dict.fromkeys(metrics))
    if margin is None or fraction_of(margin) is not None or len(known) < 2:
        return None
    why = f"{margin} cannot be in the unit of {' and of '.join(known)}"
    return f"{why}; write a share of the training steps (margin='2 %'), or leave it out"
