"""What an effect is worth in training steps, as people read it."""

from __future__ import annotations

import math
from typing import Any

from ablate.formatting import MINUS, plus

BEYOND = "beyond what was measured"  # which "more than 25 %" says, too


def worth_words(row: Any, steps: str = "training steps") -> str:
    """An effect in steps of its reference: "worth 9 % [6, 13] more training steps"; nothing without exchange runs.

    What was measured ends at 0.8 and 1.25 times the steps: beyond, only that is said.
    """
    share, low, high = (float(value) for value in (row.worth, row.worth_low, row.worth_high))
    if not (math.isfinite(share) and low <= high):
        return ""
    if low == -1 and high == math.inf:
        return f"not bounded in {steps}" if steps else "not bounded"
    fewer = share < 0
    ends = sorted((-low, -high) if fewer else (low, high))
    places = worth_places(low, high)
    least, most = (f"<{MINUS}25", ">20") if fewer else (f"<{MINUS}20", ">25")
    bottom, top = (0.25, 0.2) if fewer else (0.2, 0.25)
    inside = [_share(end, places) if -bottom <= end <= top else least if end < 0 else most for end in ends]
    size = abs(share)
    over = size > top
    span = "" if over and ends[0] > top else f" [{', '.join(inside)}]"
    shown = f"more than {100 * top:.0f}" if over else _share(size, places)
    return f"worth {shown} %{span} {'fewer' if fewer else 'more'} {steps}"


def worth_told(row: Any, steps: str = "training steps") -> str:
    """What an effect is worth in steps of its reference, and what must be known of that number and it does not say."""
    notes = [note for note in getattr(row, "worth_note", "").split("; ") if not note.startswith(BEYOND)]
    return ", ".join(filter(None, (worth_words(row, steps), *notes)))


def worth_places(low: float, high: float) -> int:
    """Decimal places of what an effect is worth, in per cent: one where its interval is narrow."""
    return int((high - low) / 2 < 0.02)


def _share(fraction: float, places: int) -> str:
    return plus(100 * fraction, f".{places}f").removeprefix("+")
