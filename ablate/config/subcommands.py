"""Shared code of subcommands such as `ablate status` and `ablate analyse`: parser, `user=`, exit codes, `--json`."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ablate.config.errors import Corrupt, PlanError, Refused
from ablate.config.extra import NotInstalled
from ablate.config.targets import allowed_packages
from ablate.config.typed_json import Record
from ablate.formatting import instead, visible
from ablate.formatting.streams import say

SCHEMA = 3  # raised when a name is removed or changes its meaning, not when names are added


class PlainParser(argparse.ArgumentParser):
    """Argument parser of a command, with `--json` and errors of one line."""

    def __init__(self, prog: str, description: str, **more: Any):
        super().__init__(prog=prog, description=description, **more)
        self.add_argument("--json", action="store_true", help="print the result as JSON: see docs/json.md")

    def error(self, message: str) -> NoReturn:
        """Exit with one line, without the usage; of an unknown option with the one that is meant."""
        what, _, rest = message.partition(": ")
        word = rest.split(" ")[0]
        if what == "unrecognized arguments" and word.startswith("-"):
            message = f"{word}: no such option; {instead(word, self._option_string_actions)}"
        elif what == "unrecognized arguments":
            message = f"{word}: is one word too many"
        self.exit(2, f"{self.prog}: {visible(message)}\n")


class Parser(PlainParser):
    """Argument parser of a command that reads results, with `--results-dir`."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog, description)
        folder = os.environ.get("ABLATE_RESULTS", "results")
        self.add_argument("--results-dir", default=folder, type=Path, help="where results are (default: %(default)s)")


def user_of(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split words into those other than `user=[my_package]` and the packages that it allows.  Raises Refused."""
    others: list[str] = []
    packages: list[str] = []
    for word in words:
        key, _, value = word.partition("=")
        if key == "user":
            packages += [name.strip() for name in value.strip("[]").split(",")]
        else:
            others.append(word)
    try:
        return others, allowed_packages(packages)
    except ValueError as error:
        raise Refused(str(error)) from None


def one_name(names: list[str]) -> str | None:
    """The only one of some names, or None.  Raises Refused if there are several."""
    if len(names) > 1:
        raise Refused(f"{' and '.join(names)} are several; write one")
    return names[0] if names else None


class Outcome(NamedTuple):
    """The outcome of a command: exit code, result, and remarks such as warnings and errors."""

    code: int
    result: object = None
    remarks: list[str] = []  # noqa: RUF012


def conclude(prog: str, as_json: bool, act: Callable[[], Outcome]) -> int:
    """Run `act` and return the exit code: that of its outcome, 2 (with a message) if refused, 130 after Ctrl-C."""
    if not as_json:
        return _outcome_of(prog, act).code
    sys.stdout.flush()
    saved = os.dup(1)
    # Standard output is the JSON of the outcome alone, also for processes that are started here.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)
        try:
            outcome = _outcome_of(prog, act)
        finally:
            os.dup2(saved, 1)
            os.close(saved)
    print(document(prog, outcome), flush=True)
    return outcome.code


def _outcome_of(prog: str, act: Callable[[], Outcome]) -> Outcome:
    """The outcome that `act` returns, or that of the error it raises, which is printed on standard error."""
    try:
        return act()
    except (PlanError, Refused, Corrupt, NotInstalled) as error:
        return refused(prog, str(error).split("\n"))
    except KeyboardInterrupt:
        return Outcome(130)
    except BrokenPipeError:  # for example `| head`
        return Outcome(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return refused(prog, [f"{where}{error.strerror or error}"])


def refused(prog: str, problems: list[str]) -> Outcome:
    """The outcome of a command that cannot be carried out; prints the problems on standard error."""
    for problem in problems:
        say(problem, prog)
    return Outcome(2, remarks=problems)


def document(prog: str, outcome: Outcome) -> str:
    """The JSON of an outcome: schema, command, exit_code, remarks, result."""
    found = {"schema": SCHEMA, "command": prog, "exit_code": outcome.code, "remarks": outcome.remarks}
    found["result"] = plain(outcome.result)
    return json.dumps(found, allow_nan=False, indent=1)  # in ASCII, which every encoding has


def plain(value: Any) -> Any:
    """A value as plain JSON data: tables become lists of rows, paths strings, numbers that are not finite null."""
    if isinstance(value, Record):
        return plain(value.as_json())
    if hasattr(value, "to_dict"):  # a table
        return plain(value.to_dict("records"))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return plain(vars(value)) if hasattr(value, "__dict__") else value
