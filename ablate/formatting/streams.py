"""Standard output and error that work in any encoding, escape control characters and survive closed pipes."""

import codecs
import contextlib
import errno
import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from ablate.formatting import visible

# Replacements for characters of our texts that an encoding lacks.
PLAIN = {"−": "-", "–": "-", "—": "-", "±": "+/-", "·": "*", "×": "x", "…": "...", "→": "->", "≥": ">=", "≤": "<="}
PLAIN |= {"√": "sqrt", "∞": "inf", "‖": "||", "⊙": "*", "α": "alpha", "β": "beta", "λ": "lambda", "σ": "sigma"}
PLAIN |= {"‘": "'", "’": "'", "“": '"', "”": '"', "ε": "eps", "█": "#"}
ERRORS = "ablate.plain"


def plain(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: replaces characters by PLAIN, others by their letters without accents, else by "?"."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    ascii_of = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() for letter in lacking)
    return "".join(PLAIN.get(letter) or base or "?" for letter, base in zip(lacking, ascii_of, strict=True)), error.end


codecs.register_error(ERRORS, plain)


class Stream:
    """Standard output or error.  Broken pipes and full disks are ignored; control characters are escaped.  With
    `raises`, BrokenPipeError is raised, so that a command that only prints can end."""

    def __init__(self, stream: Any, raises: bool):
        self.stream, self.raises = stream, raises
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors=ERRORS)

    def write(self, text: str) -> int:
        """Write a text with control characters escaped."""
        with self.losing():
            self.stream.write(visible(text).replace("\r", "\\x0d"))
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self.losing():
            self.stream.flush()

    @contextlib.contextmanager
    def losing(self) -> Iterator[None]:
        """Ignore errors of writing; reports those other than a broken pipe on standard error."""
        try:
            yield
        except (OSError, ValueError) as error:
            # Else Python would try to write the buffered rest at exit.
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
    """Replace this process's standard streams by `Stream`s."""
    for number in (0, 1, 2):  # reopen closed ones, since the next opened file would get their number
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the least free number
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name) or os.fdopen(number, "w", closefd=False)
        setattr(sys, name, stream if isinstance(stream, Stream) else Stream(stream, raises))


def exit_with(main: Callable[[], int], raises: bool = True) -> None:
    """Exit with the code of a command; with `raises` a closed pipe ends it early, as it may one that only prints."""
    prepare(raises)
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
    """Print one line on standard error."""
    print(f"ablate: {message}", file=sys.stderr, flush=True)


def screen() -> Any:
    """The unwrapped standard output, for terminal control sequences; the caller escapes control characters."""
    return sys.stdout.stream if isinstance(sys.stdout, Stream) else sys.stdout
