"""What a plan is doing at the moment, for whoever shows it while a person waits."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
listeners: list[Callable[[str], None]] = []


@contextlib.contextmanager
def reporting_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with each text that is reported in this context."""
    listeners.append(listener)
    try:
        yield
    finally:
        listeners.remove(listener)


def report(text: str) -> None:
    """Say what is being done."""
    for listener in listeners:
        listener(text)


def reported(configurations: Sequence[T], verb: str) -> Iterator[T]:
    """These configurations, each reported: "checking configuration 3 of 96"."""
    for number, configuration in enumerate(configurations, 1):
        report(f"{verb} configuration {number} of {len(configurations)}")
        yield configuration
