"""What the commands beside the sweep share: their arguments, how a study is chosen, and how a command ends."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import netrc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from ablate.results import Corrupt, newest_study, read_manifest, study_folder
from ablate.targets import named

WANDB_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # the default host of older versions, and of newer ones


class Refused(Exception):
    """A command cannot do what was asked; the message says why in one line."""


class Parser(argparse.ArgumentParser):
    """Arguments of a command, with `--results-dir`; a mistake is one line."""

    def __init__(self, prog: str, description: str):
        super().__init__(prog=prog, description=description)
        folder = os.environ.get("ABLATE_RESULTS", "results")
        self.add_argument("--results-dir", default=folder, type=Path, help="where results are (default: %(default)s)")

    def error(self, message: str) -> NoReturn:
        """One line, without the usage."""
        self.exit(2, f"{self.prog}: {message}\n")


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
        return others, named(packages)
    except ValueError as error:
        raise Refused(str(error)) from None


def conclude(prog: str, act: Callable[[], int]) -> int:
    """The exit code of a command: what `act` returns, 2 and a line where it is refused, 130 for Ctrl-C."""
    try:
        code = act()
        sys.stdout.flush()
        return code
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


def studies(results: Path) -> list[str]:
    """Names of the studies on disk."""
    return sorted(path.parent.name for path in (results / "studies").glob("*/manifest.json"))


def choose_study(results: Path, name: str | None, more: Iterable[str] = ()) -> str:
    """The study called `name`, which may be one of `more`, too; the newest one without a name.  Raises Refused."""
    if not results.is_dir():
        raise Refused(f"no results folder at {results}: run a sweep first, or name the folder with --results-dir")
    newest = newest_study(results)
    if newest is None:
        raise Refused(f"no study in {results}: run a sweep first, or name another folder with --results-dir")
    there = sorted({*studies(results), *more})
    if name is None or name in there:
        return name or newest
    raise Refused(f"no study {name} in {results}: {resembling(name, there)}")


def resembling(name: str, there: list[str]) -> str:
    """What to write instead of a name that is not there."""
    near = difflib.get_close_matches(name, there, n=3, cutoff=0.4)
    if near:
        return f"did you mean {', '.join(near)}?"
    return f"there are {', '.join(there[:8])}" + ", …" * (len(there) > 8)


def no_yaml(file: Path, error: Exception) -> str:
    """Where and why a file is no YAML, in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f", line {mark.line + 1}" if mark else ""
    return f"{file}{where}: no YAML ({getattr(error, 'problem', None) or error})".replace("\n", " ")


@contextlib.contextmanager
def refusing(results: Path, study: str) -> Iterator[Path]:
    """The path of a study's manifest; what reading it and its results raises becomes `Refused`."""
    manifest = study_folder(results, study) / "manifest.json"
    try:
        yield manifest
    except Corrupt as error:
        raise Refused(str(error)) from None
    except OSError as error:
        raise Refused(f"{manifest} cannot be read ({error.strerror})") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"{manifest}, or a result of its runs, is damaged ({type(error).__name__}: {error})") from None


def manifest_of(results: Path, study: str) -> dict[str, Any]:
    """A study's manifest.  Raises Refused."""
    with refusing(results, study):
        return read_manifest(results, study)


def wandb_credentials() -> bool:
    """Whether Weights & Biases could log in without asking anybody."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = (*WANDB_HOSTS, urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc)
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, ValueError, netrc.NetrcParseError):
            if file and not netrc.netrc(os.path.expanduser(file)).hosts.keys().isdisjoint(hosts):
                return True
    return False
