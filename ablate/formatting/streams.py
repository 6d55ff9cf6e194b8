"""Standard output and error that work in any encoding, show control characters as text and survive closed pipes."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from ablate.formatting import visible


def prepare() -> None:
    """Make this process's standard streams usable: closed ones lead nowhere, and a letter that an encoding lacks is a
    question mark."""
    for number in (0, 1, 2):  # else the next opened file would get the number of a closed one
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # gets the least free number
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a notebook's stream has an encoding of its own
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def echo(text: str) -> None:
    """Print a text on standard output, with control characters escaped.  Raises BrokenPipeError if nobody reads it; a
    full disk is reported on standard error instead."""
    try:
        print(visible(text), flush=True)
    except BrokenPipeError:
        discard(sys.stdout)
        raise
    except OSError as error:
        discard(sys.stdout)
        say(f"standard output cannot be written ({error.strerror})")


def say(message: str, command: str = "ablate") -> None:
    """Print one line of a command on standard error, with control characters escaped, if that can be written."""
    try:
        print(f"{command}: {visible(message)}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: Any) -> None:
    """Lead a stream nowhere; otherwise Python would try at exit to write what it holds."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def exit_with(main: Callable[[], int]) -> None:
    """Exit with the code of a command; one whose output nobody reads any more ends early, with code 0."""
    prepare()
    code: Any = 0
    try:
        code = main()
    except BrokenPipeError:
        pass
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard(stream)
    sys.exit(code)
