"""What Python may import from the current folder: the packages that `user=` names on the command line, nothing else.

A cloned study and a folder of results are current folders, too.
"""

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder

HOME = os.path.realpath(f"{__file__}/../../..")  # where this package lies: a checkout, or where it is installed


class UserPackages:
    """Finds packages by name in one folder, for `sys.meta_path`; its other modules are not found there."""

    def __init__(self, folder: str, names: Iterable[str]):
        self.folder, self.names = folder, sorted({name.partition(".")[0] for name in names})

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Where a package lies; those in it are found by way of it."""
        return PathFinder.find_spec(name, [self.folder]) if path is None and name in self.names else None


def leave_current_folder() -> None:
    """Take the current folder off the import path, where `python -m` or an empty entry of PYTHONPATH put it.

    It stays where PYTHONPATH names it, and where this package itself lies in it.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # for processes that others start, as launchers do
    here, library = current_folder(), os.path.dirname(os.__file__)
    named = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    if here and here not in (HOME, *named):
        ahead = sys.path.index(library) if library in sys.path else len(sys.path)  # what is installed comes after it
        sys.path[:ahead] = [entry for entry in sys.path[:ahead] if os.path.abspath(entry) != here]


def find_here(packages: Iterable[str]) -> None:
    """Have these packages, of all that lies in the current folder, found there, unless they are installed."""
    others = [one for one in sys.meta_path if not isinstance(one, UserPackages)]
    sys.meta_path[:] = [*others, UserPackages(current_folder(), packages)]


def current_folder() -> str:
    """The current folder; empty where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def start_importing() -> str:
    """A statement by which another interpreter imports what this one does."""
    path = [os.path.abspath(entry) for entry in sys.path]
    found = [f"UserPackages({one.folder!r}, {one.names!r})" for one in sys.meta_path if isinstance(one, UserPackages)]
    return (
        f"import sys; sys.path[:] = {path!r}; from ablate.config.import_path import UserPackages; "
        f"sys.meta_path += [{', '.join(found)}]"
    )
