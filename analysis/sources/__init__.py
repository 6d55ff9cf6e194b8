"""Which runs to analyse, and whether they can be: whatever cannot be read is refused in one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ablate.results.choose import choose_study, refusing
from ablate.results.study import Study, load_study


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, the newest one without a name.  Raises `Refused`."""
    chosen = choose_study(results, name)
    with refusing(results, chosen):
        study = load_study(results, chosen)
    notes = [note.replace(f"{results}/", "") for note in study.notes]  # reports are passed on
    return dataclasses.replace(study, notes=notes)
