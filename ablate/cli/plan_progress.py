"""Progress of a plan that takes long."""

import contextlib
import time
from collections.abc import Iterator

from ablate.formatting.streams import say
from ablate.planning.reporting import reporting_to

PATIENCE = 5.0  # seconds of a plan without a word


@contextlib.contextmanager
def showing_progress() -> Iterator[None]:
    """Say every few seconds on standard error what a plan is doing."""
    last_time = time.monotonic()

    def show(text: str) -> None:
        nonlocal last_time
        if time.monotonic() - last_time >= PATIENCE:
            say(f"planning: {text}")
            last_time = time.monotonic()

    with reporting_to(show):
        yield
