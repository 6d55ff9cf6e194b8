"""Errors caused by users or by damaged files: each says in one line what is wrong and what to write instead."""

from pathlib import Path
from typing import NamedTuple

from ablate.formatting import visible


class Problem(NamedTuple):
    """A user's mistake: the key, and one line that says what is wrong and what to write instead."""

    key: str
    message: str

    def __str__(self) -> str:
        line = f"{self.key}: {self.message}" if self.key else self.message
        return visible(line.replace("\n", "\\n"))


class PlanError(Exception):
    """The command line is invalid; `problems` lists its mistakes."""

    def __init__(self, problems: list[Problem]):
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class Corrupt(Exception):
    """A file of results cannot be read; the message says why.  `file`: the damaged one, if it was not requested."""

    def __init__(self, message: str, file: Path | None = None):
        super().__init__(message)
        self.file = file


class Unreadable(Corrupt):
    """A file of results could not be read this time, such as with EIO; it may be whole, so it is not set aside."""


class Refused(Exception):
    """A command cannot be carried out; the message says why in one line."""


def first_line(message: object) -> str:
    """The first line of an error or a text."""
    return str(message).strip().split("\n")[0]


def one_line(error: BaseException) -> str:
    """Type and first line of an error: "KeyError: 'norm'"; the first line alone of a BadComponent."""
    if isinstance(error, BadComponent):
        return first_line(error)
    return f"{type(error).__name__}: {first_line(error)}".rstrip(": ")


def whole_line(error: BaseException) -> str:
    """Type and whole message of an error, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


class BadComponent(ValueError):
    """A component or cell cannot be built as configured; `key` names the setting, the message says why."""

    def __init__(self, key: str, message: str):
        super().__init__(message)
        self.key = key
