"""Which runs to analyse, and whether they can be: whatever cannot be read is refused in one line."""

from __future__ import annotations

from pathlib import Path

from ablate.config.errors import Refused
from ablate.results.choose import choose_study, refusing
from ablate.results.study import Study, load_study

NEEDED = ("factors", "reference", "seeds", "tasks", "cells")


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, the newest one without a name.  Raises `Refused`."""
    chosen = choose_study(results, name)
    with refusing(results, chosen) as manifest:
        study = load_study(results, chosen)
        study.manifest["study"] = chosen  # a copy of a study goes by the name of its folder
        study.notes = [note.replace(f"{results}/", "") for note in study.notes]  # reports are passed on
    missing = [key for key in NEEDED if key not in study.manifest]
    if missing:
        raise Refused(f"{manifest} has no {', '.join(missing)}")
    return study
