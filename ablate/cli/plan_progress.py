"""Progress of a plan that takes long."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator

from ablate.formatting.streams import say
from ablate.planning.reporting import reporting_to

PATIENCE = 5.0  # seconds of a plan without a word
ERASE = "\r\x1b[K"  # the line of a terminal


@contextlib.contextmanager
def showing_progress() -> Iterator[None]:
    """Show on standard error what a plan is doing once it takes long: one line, which on a terminal is overwritten."""
    started = time.monotonic()
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    shown: list[str] = []

    def show(text: str) -> None:
        if time.monotonic() - started < PATIENCE:
            return
        if is_terminal:
            with contextlib.suppress(OSError):
                print(f"{ERASE}{text}", end="", file=sys.stderr, flush=True)
        elif not shown:
            say(f"planning takes a while: {text}")
        shown.append(text)

    with reporting_to(show):
        try:
            yield
        finally:
            if shown and is_terminal:
                with contextlib.suppress(OSError):
                    print(ERASE, end="", file=sys.stderr, flush=True)
