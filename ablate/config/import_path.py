"""Restricts imports from the current folder, which may be somebody's results, to the packages that `user=` names.

Also how other processes of this package are started, and how many fit on this machine.  It imports only what Python has
loaded before: anything else might come from the current folder.
"""

import importlib.machinery
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

HOME = os.path.realpath(f"{__file__}/../../..")  # the folder of this package: a checkout or site-packages
SAFE = "ablate"  # the value of PYTHONSAFEPATH by which other programs can tell that it is set here


class UserPackages:
    """A finder for `sys.meta_path` that finds only the named packages in one folder."""

    def __init__(self, folder: str, names: "Iterable[str]"):
        self.folder = folder
        self.names = sorted({name.partition(".")[0] for name in names})

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of a named top-level package; Python finds its submodules through it."""
        if path is not None or name not in self.names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, [self.folder])


def drop_current_folder_from_path() -> None:
    """Remove the current folder from `sys.path`, where `python -m` or an empty entry of PYTHONPATH put it, unless
    PYTHONPATH names it or this package is in it."""
    os.environ.setdefault("PYTHONSAFEPATH", SAFE)  # for child processes, such as those of launchers
    here = current_folder()
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if not here or here == HOME or here in named:
        return
    library = os.path.dirname(os.__file__)
    before_library = sys.path.index(library) if library in sys.path else len(sys.path)  # installed packages come later
    kept = [entry for entry in sys.path[:before_library] if os.path.abspath(entry) != here]
    sys.path[:before_library] = kept


def find_packages_here(packages: "Iterable[str]") -> None:
    """Let Python find these packages in the current folder unless they are installed."""
    others = [finder for finder in sys.meta_path if not isinstance(finder, UserPackages)]
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
    finders = [finder for finder in sys.meta_path if isinstance(finder, UserPackages)]
    added = ", ".join(f"UserPackages({finder.folder!r}, {finder.names!r})" for finder in finders)
    imported = "from ablate.config.import_path import UserPackages"
    return f"import sys; sys.path[:] = {path!r}; {imported}; sys.meta_path += [{added}]"


def program(module: str) -> list[str]:
    """A command that calls a module's `main` with this process's import path.  `python -m` would put the working
    directory first, where a user's random.py would hide Python's."""
    return [sys.executable, "-P", "-c", f"{start_importing()}; from {module} import main; main()"]


def cores() -> int:
    """The number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
