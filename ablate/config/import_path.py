"""Restricts imports from the current folder, which may be somebody's results, to the packages that `user=` names.

Also how other processes of this package are started, and how many fit on this machine.
"""

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder

HOME = os.path.realpath(f"{__file__}/../../..")  # the folder of this package: a checkout or site-packages


class UserPackages:
    """A finder for `sys.meta_path` that finds only the named packages in one folder."""

    def __init__(self, folder: str, names: Iterable[str]):
        self.folder, self.names = folder, sorted({name.partition(".")[0] for name in names})

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a named top-level package; Python finds its submodules through it."""
        return PathFinder.find_spec(name, [self.folder]) if path is None and name in self.names else None


def leave_current_folder() -> None:
    """Remove the current folder from `sys.path` unless PYTHONPATH names it or this package is in it."""
    os.environ["PYTHONSAFEPATH"] = "1"  # for child processes, such as those of launchers
    here, library = current_folder(), os.path.dirname(os.__file__)
    named = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if here and here not in (HOME, *named):
        ahead = sys.path.index(library) if library in sys.path else len(sys.path)  # installed packages come after it
        # `python -m` or an empty entry of PYTHONPATH put it there.
        sys.path[:ahead] = [entry for entry in sys.path[:ahead] if os.path.abspath(entry) != here]


def find_here(packages: Iterable[str]) -> None:
    """Let Python find these packages in the current folder unless they are installed."""
    others = [one for one in sys.meta_path if not isinstance(one, UserPackages)]
    sys.meta_path[:] = [*others, UserPackages(current_folder(), packages)]


def current_folder() -> str:
    """The current folder; empty if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def start_importing() -> str:
    """A Python statement that gives another interpreter this one's import path."""
    path = [os.path.abspath(entry) for entry in sys.path]
    found = [f"UserPackages({one.folder!r}, {one.names!r})" for one in sys.meta_path if isinstance(one, UserPackages)]
    return (
        f"import sys; sys.path[:] = {path!r}; from ablate.config.import_path import UserPackages; "
        f"sys.meta_path += [{', '.join(found)}]"
    )


def program(module: str) -> list[str]:
    """A command that calls a module's `main` with this process's import path.  `python -m` would put the working
    directory first, where a user's random.py would hide Python's."""
    return [sys.executable, "-P", "-c", f"{start_importing()}; from {module} import main; main()"]


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
