"""How processes of ours are started: importing from where this one does."""

from __future__ import annotations

import sys

from ablate.config.import_path import start_importing


def program(module: str) -> list[str]:
    """The command that calls `main` of a module in a process with this one's import path.

    `python -m` would put the working folder first, where a user's random.py would be taken for Python's.
    """
    return [sys.executable, "-P", "-c", f"{start_importing()}; from {module} import main; main()"]
