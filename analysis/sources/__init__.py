"""Which runs to analyse: a study's, a CSV's or a tracking service's; what cannot be read is refused in one line.

A study of our own is `read` here.  Runs of other programs become one: readers (`csv_file`, `wandb_*`) fill the two
tables of `logged.Logged`, `columns` and `design` say what is in them.
"""

import dataclasses
from pathlib import Path

from ablate.config.typed_json import parse
from ablate.results.atomic import read_json
from ablate.results.kept_tables import holds_tables, read_tables
from ablate.results.manifest import choose_study, refusing, studies, study_folder
from ablate.results.records import Manifest
from ablate.results.study import Study, load_study

RECORDED = Path(__file__).parents[2] / "tests" / "recorded"  # of the checkout, whose sweep the README shows


def is_kept(results: Path, name: str) -> bool:
    """Whether `name` is a folder of kept tables, and no study of `results`."""
    return holds_tables(Path(name)) and name not in studies(results)


def place_of(results: Path, name: str) -> Path:
    """The folder of a study's manifest, of one in `results` or of a kept one."""
    return Path(name) if is_kept(results, name) else study_folder(results, name)


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, or whose tables are kept in the folder `name`; the newest one without a name.

    Raises `Refused`.
    """
    if name and is_kept(results, name):
        return read_kept(Path(name))
    chosen = choose_study(results, name)
    with refusing(study_folder(results, chosen)):
        study = load_study(results, chosen)
    notes = [note.replace(f"{results}/", "") for note in study.notes]  # reports are passed on
    return dataclasses.replace(study, notes=notes)


def read_kept(folder: Path) -> Study:
    """The study whose tables are kept in a folder.  Raises `Refused`."""
    with refusing(folder):
        return read_tables(folder)


def recorded_study(folder: Path = RECORDED) -> Study:
    """The study that norm_ffn_tiny.csv is of, without curves: its manifest names cells, and no runs."""
    import pandas  # a refusal of the command line needs none

    manifest = parse(Manifest, read_json(folder / "norm_ffn_tiny.manifest.json"))
    table = pandas.read_csv(folder / "norm_ffn_tiny.csv")
    cells = {tuple(cell.levels.values()): cell for cell in manifest.cells}
    whose = [cells[each] for each in zip(*(table[name] for name in manifest.factors), strict=True)]
    runs = table.assign(cell=[cell.id for cell in whose], label=[cell.label for cell in whose])
    return Study(manifest, runs, pandas.DataFrame(columns=["cell", "seed", "step"]), [])
