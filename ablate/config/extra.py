"""Optional libraries that only some parts need: imported, or named with what to install."""

import importlib
import importlib.util
from typing import Any

NAMES = {"sklearn": "scikit-learn", "fla": "fla-core"}  # of what is imported and installed by two names


def extra(module: str, need: str, group: str = "data") -> Any:
    """A module of an extra, `data` or another.  Raises ValueError, saying what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(_lacking(module, need, group)) from None


def installed(module: str, need: str, group: str) -> None:
    """Raise what `extra` would, without the seconds that importing a large library takes."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(_lacking(module, need, group))


def _lacking(module: str, need: str, group: str) -> str:
    top = module.partition(".")[0]
    return f"{need} needs {NAMES.get(top, top)}, which is not installed; write pip install 'ablate[{group}]'"
