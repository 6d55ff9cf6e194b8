"""Standard output and error in any encoding, without control characters, whether or not anybody reads them."""

import codecs
import contextlib
import errno
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from ablate.formatting import visible

# What stands for characters of our texts where an encoding lacks them.
PLAIN = {"−": "-", "–": "-", "—": "-", "±": "+/-", "·": "*", "×": "x", "…": "...", "→": "->", "≥": ">=", "≤": "<="}
PLAIN |= {"√": "sqrt", "∞": "inf", "‖": "||", "⊙": "*", "α": "alpha", "β": "beta", "λ": "lambda", "σ": "sigma"}
PLAIN |= {"‘": "'", "’": "'", "“": '"', "”": '"', "ε": "eps", "█": "#"}
ERRORS = "ablate.plain"


def plain(error: UnicodeError) -> tuple[str, int]:
    """An encoder's answer to characters that it lacks: ours in plain letters, others without accents, else "?"."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    ascii_of = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() for letter in lacking)
    return "".join(PLAIN.get(letter) or base or "?" for letter, base in zip(lacking, ascii_of, strict=True)), error.end


codecs.register_error(ERRORS, plain)


class Stream:
    """Standard output or error.  Broken pipes and full disks are ignored; control characters are spelled out.

    Where `raises`, BrokenPipeError is raised: a command that does nothing but show may end then.
    """

    def __init__(self, stream: Any, raises: bool):
        self.stream, self.raises = stream, raises
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
        """Ignore that nothing can be written; a line on standard error where it is not for want of a reader."""
        try:
            yield
        except (OSError, ValueError) as error:
            # Python would try to write the rest at its end.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)
            if isinstance(error, BrokenPipeError):
                if self.raises:
                    raise
            elif isinstance(error, OSError) and error.errno != errno.EBADF and sys.stderr is not self:
                say(f"standard output cannot be written ({error.strerror})")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def prepare(raises: bool = False) -> None:
    """Make this process's standard streams `Stream`s; `raises` as there."""
    for number in (0, 1, 2):  # opened where they are closed: the next file that is opened would be taken for them
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the least number that is free
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name) or os.fdopen(number, "w", closefd=False)
        setattr(sys, name, stream if isinstance(stream, Stream) else Stream(stream, raises))


def exit_with(main: Callable[[], int]) -> None:
    """End the process with the exit code of a command that only shows something; early where nobody reads on."""
    prepare(raises=True)
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


def say(message: str) -> None:
    """Print one line about what goes on, on standard error."""
    print(f"ablate: {message}", file=sys.stderr, flush=True)


def screen() -> Any:
    """Standard output for what moves a terminal's cursor, and has spelled out control characters itself."""
    return sys.stdout.stream if isinstance(sys.stdout, Stream) else sys.stdout
