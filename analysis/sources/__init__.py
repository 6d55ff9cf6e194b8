"""Which runs to analyse: a study's, a CSV's or a tracking service's; what cannot be read is refused in one line.

A study of our own is `read` here.  Runs of other programs become one: `csv_file` and `tracked_runs` (`wandb_*`) read
them, `endpoints`, `columns` and `design` say what they are, `manifest` writes down what a plan would have.
"""

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
