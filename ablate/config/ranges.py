"""Checks that numbers are in a range: each returns the number or raises BadValue with its name and the range."""

from typing import TypeVar

N = TypeVar("N", int, float)


class BadValue(ValueError):
    """A value that is not allowed: the name of the argument, and what is wrong with it."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name} {problem}")
        self.name = name
        self.problem = problem


def at_least(name: str, value: N, low: float) -> N:
    """A value ≥ low."""
    return _checked(name, value, value >= low, f"≥ {low:g}")


def above(name: str, value: N, low: float) -> N:
    """A value > low."""
    return _checked(name, value, value > low, f"> {low:g}")


def at_most(name: str, value: N, high: float) -> N:
    """A value ≤ high."""
    limit = f"{high:,g}" if high < 1e6 else f"{high:,.0f}"
    return _checked(name, value, value <= high, f"≤ {limit}")


def within(name: str, value: N, low: float, high: float, ends: str = "[]") -> N:
    """A value between two bounds; `ends` says which are included: "[]", "(]", "[)" or "()"."""
    above_low = value > low if ends[0] == "(" else value >= low
    below_high = value < high if ends[1] == ")" else value <= high
    return _checked(name, value, above_low and below_high, f"in {ends[0]}{low:g}, {high:g}{ends[1]}")


def _checked(name: str, value: N, holds: bool, rule: str) -> N:
    if not holds:
        raise BadValue(name, f"must be {rule}, not {value}")
    return value
