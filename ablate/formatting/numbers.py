"""Numbers as people read them: a typographic minus, and no sign where nothing is left but zero."""

from __future__ import annotations

import math
from collections.abc import Iterable

MINUS = "−"
MOST_PLACES = 9  # of a number that is not shown as zero


def scientific(value: float) -> str:
    """A positive setting in short: 1e-3, 2.5e-4, 0.1, 3."""
    if 0.01 <= value < 1e4:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def decimals(widths: Iterable[float]) -> int:
    """Decimal places that give the narrowest of `widths` two significant digits; between 3 and 6."""
    known = [width for width in widths if math.isfinite(width) and width > 0]
    return min(max(3, 1 - math.floor(math.log10(min(known)))), 6) if known else 3


def number(value: float, places: int, signed: bool = False) -> str:
    """A number with a typographic minus: 2.061, 0.053, −0.053; 0.000, by `plus`; "–" for none."""
    if not math.isfinite(value):
        return "–"
    text = plus(value, f".{places}f")
    return text if signed else text.removeprefix("+")


def plus(value: float, form: str) -> str:
    """A finite number in a format, with its sign: +0.13, −1.67.  What comes to zero as it is shown has none: 0.00."""
    text = f"{abs(value):{form}}"
    return ("" if float(text) == 0 else MINUS if value < 0 else "+") + text


def percent(fraction: float) -> str:
    """A signed share in per cent: +0.1 %, −12.0 %, 0.0 %."""
    return f"{plus(fraction * 100, '.1f')} %"


def remainder(fraction: float) -> str:
    """A difference that a match has left: +0.13 %, −1.67 %, 0 %."""
    return f"{plus(fraction * 100, '.2f')} %" if fraction else "0 %"


def p_text(p: float) -> str:
    """A p-value, with more digits if small or just below 5 %: 0.031, 0.0497, 0.0003, "< 0.0001"; "–" for none."""
    return "< 0.0001" if p < 1e-4 else number(p, 4 if p < 1e-3 or 0.0495 <= p < 0.05 else 3)


def span(mean: float, low: float, high: float, places: int) -> str:
    """A difference with its interval, −0.053 [−0.079, −0.027]; without one the difference alone."""
    text = number(mean, places, signed=True)
    if not math.isfinite(low):
        return text
    return f"{text} [{ends(low, high, places, signed=True)}]"


def ends(low: float, high: float, places: int, signed: bool = False) -> str:
    """The ends of an interval: "−0.079, −0.027".  An end so near to zero that it would be shown as that has the digits
    that it takes, where the interval does not hold zero: "+0.0003, +0.027", since that is what decides.
    """
    return ", ".join(number(end, _clear_of_zero(end, places, low * high > 0), signed) for end in (low, high))


def _clear_of_zero(end: float, places: int, needed: bool) -> int:
    if not needed or not math.isfinite(end):
        return places
    return min(max(places, math.floor(-math.log10(2 * abs(end))) + 1), MOST_PLACES)


def plain(size: float) -> str:
    """A positive number with the digits that it has: 0.01, 2, 0.0005."""
    return f"{size:.10f}".rstrip("0").rstrip(".")
