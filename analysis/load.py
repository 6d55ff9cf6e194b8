"""Which study to analyse, and whether it can be: whatever cannot be read is refused in one line."""

from __future__ import annotations

from pathlib import Path

from ablate.command import Refused, choose_study, refusing
from ablate.results import Study, load_study

NEEDED = ("factors", "reference", "seeds", "tasks", "cells")


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, the newest one without a name.  Raises `Refused`."""
    chosen = choose_study(results, name)
    with refusing(results, chosen) as manifest:
        study = load_study(results, chosen)
    missing = [key for key in NEEDED if key not in study.manifest]
    if missing:
        raise Refused(f"{manifest} has no {', '.join(missing)}")
    return study
