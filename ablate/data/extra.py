"""Optional libraries that only some tasks need: imported, or named with what to install."""

from __future__ import annotations

import importlib
from typing import Any


def extra(module: str, need: str) -> Any:
    """A module of the extra `data`.  Raises ValueError, saying what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        library = {"sklearn": "scikit-learn"}.get(module.split(".")[0], module.split(".")[0])
        raise ValueError(f"{need} needs {library}, which is not installed; write pip install 'ablate[data]'") from None
