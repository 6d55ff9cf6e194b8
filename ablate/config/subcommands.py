"""What the subcommands share, as `ablate status` and `ablate analyse`: parser, `user=`, exit codes, `--json`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ablate.config.errors import Corrupt, PlanError, Refused
from ablate.config.targets import allowed_packages
from ablate.config.typed_json import Record

SCHEMA = 1  # raised where a name changes its meaning or goes; names that come raise nothing


class PlainParser(argparse.ArgumentParser):
    """Arguments of a command, with `--json`; a mistake is one line."""

    def __init__(self, prog: str, description: str, **more: Any):
        super().__init__(prog=prog, description=description, **more)
        self.add_argument("--json", action="store_true", help="print the result as JSON: see docs/json.md")

    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        self.exit(2, f"{self.prog}: {message}\n")


class Parser(PlainParser):
    """Arguments of a command that reads results, with `--results-dir`."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog, description)
        folder = os.environ.get("ABLATE_RESULTS", "results")
        self.add_argument("--results-dir", default=folder, type=Path, help="where results are (default: %(default)s)")


def user_of(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words without `user=[my_package]`, and the packages that it allows.  Raises Refused."""
    others, packages = list[str](), list[str]()
    for word in words:
        key, _, value = word.partition("=")
        if key != "user":
            others.append(word)
        elif not (value.startswith("[") and value.endswith("]")):
            raise Refused(f"{word} takes a list; write 'user=[my_package]'")
        else:
            packages += [name for part in value[1:-1].split(",") if (name := part.strip().strip("\"'"))]
    try:
        return others, allowed_packages(packages)
    except ValueError as error:
        raise Refused(str(error)) from None


def one_name(names: list[str]) -> str | None:
    """The name that is given, if any.  Raises Refused for several."""
    if len(names) > 1:
        raise Refused(f"{' and '.join(names)} are several; write one")
    return names[0] if names else None


def conclude(prog: str, as_json: bool, act: Callable[[], Outcome]) -> int:
    """The exit code of a command: that of what `act` returns, 2 and a line where it is refused, 130 for Ctrl-C.

    Where `as_json`, standard output has the document of its outcome, and none of what `act` prints.
    """
    if not as_json:
        return _outcome_of(prog, act).code
    with _silent():
        outcome = _outcome_of(prog, act)
    print(document(prog, outcome), flush=True)
    return outcome.code


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing comes to standard output meanwhile, of this process or of those that it starts."""
    sys.stdout.flush()
    saved = os.dup(1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)


def _outcome_of(prog: str, act: Callable[[], Outcome]) -> Outcome:
    """What a command ends with: what `act` returns, or what has ended it, printed on standard error."""
    try:
        outcome = act()
        sys.stdout.flush()
        return outcome
    except PlanError as error:
        return refused(prog, [str(problem) for problem in error.problems])
    except (Refused, Corrupt) as error:
        return refused(prog, [str(error)])
    except KeyboardInterrupt:
        return Outcome(130)
    except BrokenPipeError:  # `| head` has read enough
        return Outcome(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return refused(prog, [f"{where}{error.strerror or error}"])


def refused(prog: str, problems: list[str]) -> Outcome:
    """The outcome of a command that cannot do what was asked, and its lines on standard error."""
    print(*(f"{prog}: {problem}" for problem in problems), sep="\n", file=sys.stderr)
    return Outcome(2, remarks=problems)


class Outcome(NamedTuple):
    """What a command ends with: its exit code, what it found, and what is wrong or to be known of it."""

    code: int
    result: object = None
    remarks: list[str] = []  # noqa: RUF012


def document(prog: str, outcome: Outcome) -> str:
    """The JSON of an outcome: schema, command, exit_code, remarks, result."""
    head = {"schema": SCHEMA, "command": prog, "exit_code": outcome.code, "remarks": outcome.remarks}
    return json.dumps(head | {"result": plain(outcome.result)}, ensure_ascii=False, allow_nan=False, indent=1)


def plain(value: object) -> Any:
    """A value as JSON has it: tables are lists of rows, paths texts, and numbers that are not finite null."""
    if isinstance(value, Record):
        return plain(value.as_json())
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a table
        return plain(value.to_dict("records"))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if hasattr(value, "item"):  # of NumPy
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value) if isinstance(value, Path) else plain(vars(value))
