"""Sources of the runs to analyse: a study, logs of other programs or W&B; unreadable input is refused in one line.

`read` loads a study of ablate.  For runs of other programs, readers (`files`, `wandb_api`) fill the two
tables of `logged.Logged`; `columns` and `design` infer their meaning, and `logged.study_of` makes them a study.
"""

import dataclasses
from pathlib import Path

from ablate.results.kept_tables import holds_tables, read_tables
from ablate.results.manifest import choose_study, refusing, studies, study_folder
from ablate.results.study import Study, load_study


def is_saved(results: Path, name: str) -> bool:
    """Whether `name` is a folder of saved tables rather than a study in `results`."""
    return holds_tables(Path(name)) and name not in studies(results)


def place_of(results: Path, name: str) -> Path:
    """The folder with a study's manifest: in `results`, or the folder of its saved tables."""
    return Path(name) if is_saved(results, name) else study_folder(results, name)


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, or with tables in the folder `name`; by default the newest.  Raises `Refused`."""
    if name and is_saved(results, name):
        return read_saved(Path(name))
    chosen = choose_study(results, name)
    with refusing(study_folder(results, chosen)):
        study = load_study(results, chosen)
    notes = [note.replace(f"{results}/", "") for note in study.notes]  # no local paths in reports
    return dataclasses.replace(study, notes=notes)


def read_saved(folder: Path) -> Study:
    """The study whose tables are saved in a folder.  Raises `Refused`."""
    with refusing(folder):
        return read_tables(folder)
