"""What `ablate status`, `ablate analyse` and the other subcommands share: argument parser, `user=`, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from ablate.config.errors import Corrupt, PlanError, Refused
from ablate.config.targets import allowed_packages


class PlainParser(argparse.ArgumentParser):
    """Arguments of a command; a mistake is one line."""

    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        self.exit(2, f"{self.prog}: {message}\n")


class Parser(PlainParser):
    """Arguments of a command that reads results, with `--results-dir`."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description)
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


def conclude(prog: str, act: Callable[[], int]) -> int:
    """The exit code of a command: what `act` returns, 2 and a line where it is refused, 130 for Ctrl-C."""
    try:
        code = act()
        sys.stdout.flush()
        return code
    except PlanError as error:
        print(*(f"{prog}: {problem}" for problem in error.problems), sep="\n", file=sys.stderr)
        return 2
    except (Refused, Corrupt) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has read enough
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: {where}{error.strerror or error}", file=sys.stderr)
        return 2
