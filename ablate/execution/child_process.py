"""How processes of ours are started: importing from where this one does, and from the working folder only then."""

from __future__ import annotations

import os
import sys


def program(module: str) -> list[str]:
    """The command that calls `main` of a module in a process with this one's import path.

    `python -m` would put the working folder first, where a user's random.py would be taken for Python's.
    """
    path = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {path!r}; from {module} import main; main()"]
