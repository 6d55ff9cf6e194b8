"""What is printed: in whatever encoding, without what a terminal would obey, and whether or not somebody listens."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from ablate.formatting import visible

# What characters of ours are where an encoding lacks them.
PLAIN = {"−": "-", "–": "-", "—": "-", "±": "+/-", "·": "*", "×": "x", "…": "...", "→": "->", "≥": ">=", "≤": "<="}
PLAIN |= {"√": "sqrt", "∞": "inf", "‖": "||", "⊙": "*", "α": "alpha", "β": "beta", "λ": "lambda", "σ": "sigma"}
PLAIN |= {"‘": "'", "’": "'", "“": '"', "”": '"', "ε": "eps", "█": "#"}
ERRORS = "ablate.config.plain_yaml"


def plain(error: UnicodeError) -> tuple[str, int]:
    """An encoder's answer to characters that it lacks: ours in plain letters, others without accents, else "?"."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(letter, error.object[error.start : error.end])), error.end


def letter(character: str) -> str:
    """One character in ASCII."""
    base = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return PLAIN.get(character) or base or "?"


codecs.register_error(ERRORS, plain)


class Stream:
    """Standard output or error.  Who has left, and a full disk behind it, change nothing; control characters are shown.

    Where `told` is, BrokenPipeError is raised all the same: a command that does nothing but show may end then.
    """

    def __init__(self, stream: Any, told: bool):
        self.stream, self.told = stream, told
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors=ERRORS)

    def write(self, text: str) -> int:
        """Write a text as it may be seen."""
        with self.losing():
            self.stream.write(visible(text).replace("\r", "\\x0d"))
        return len(text)

    def flush(self) -> None:
        """Hand over what was written."""
        with self.losing():
            self.stream.flush()

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """Pass over that nothing can be written, in a line on standard error where it is not for want of a reader."""
        try:
            yield
        except (OSError, ValueError) as error:
            self.drain()
            if isinstance(error, BrokenPipeError):
                if self.told:
                    raise
            elif isinstance(error, OSError) and error.errno != errno.EBADF and sys.stderr is not self:
                print(f"ablate: standard output cannot be written ({error.strerror})", file=sys.stderr, flush=True)

    def drain(self) -> None:
        """Let nothing be left that Python would try to write at its end."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def open_standard() -> None:
    """Open what is closed of 0, 1 and 2: the next file that is opened would be taken for it."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the least number that is free
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)


def prepare(told: bool) -> None:
    """Make this process's standard streams `Stream`s; `told` as there."""
    open_standard()
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name) or os.fdopen(number, "w", closefd=False)
        setattr(sys, name, stream if isinstance(stream, Stream) else Stream(stream, told))


def exit_with(main: Callable[[], int]) -> None:
    """End the process with what a command returns that shows something; it ends early where nobody reads on."""
    prepare(told=True)
    code: Any = 0
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        pass
    except SystemExit as end:
        code = end.code
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)


def screen() -> Any:
    """Standard output for who moves a terminal's cursor, and has made visible what others wrote."""
    return sys.stdout.stream if isinstance(sys.stdout, Stream) else sys.stdout
