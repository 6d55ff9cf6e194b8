"""Checks that numbers are in a range: each returns the number or raises a ValueError with its key and the range."""

from typing import TypeVar

N = TypeVar("N", int, float)


def at_least(key: str, value: N, low: float) -> N:
    """A value ≥ low."""
    return _checked(key, value, value >= low, f"≥ {low:g}")


def above(key: str, value: N, low: float) -> N:
    """A value > low."""
    return _checked(key, value, value > low, f"> {low:g}")


def at_most(key: str, value: N, high: float) -> N:
    """A value ≤ high."""
    limit = f"{high:,g}" if high < 1e6 else f"{high:,.0f}"
    return _checked(key, value, value <= high, f"≤ {limit}")


def within(key: str, value: N, low: float, high: float, ends: str = "[]") -> N:
    """A value between two bounds; `ends` says which are included: "[]", "(]", "[)" or "()"."""
    above_low = value > low if ends[0] == "(" else value >= low
    below_high = value < high if ends[1] == ")" else value <= high
    return _checked(key, value, above_low and below_high, f"in {ends[0]}{low:g}, {high:g}{ends[1]}")


def _checked(key: str, value: N, holds: bool, rule: str) -> N:
    if not holds:
        raise ValueError(f"{key} must be {rule}, not {value}")
    return value
