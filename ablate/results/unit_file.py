"""The file that a unit's job reads: its runs, each with its cell."""

from __future__ import annotations

from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.config.typed_json import parse
from ablate.results.atomic import read_json, write_json
from ablate.results.manifest import study_folder
from ablate.results.manifest_checks import flaw_of_run, outside
from ablate.results.records import Unit, UnitRun


def unit_file(results: Path, study: str, unit: str) -> Path:
    """Where a unit's runs stand.  Named by content, so no other command can change it."""
    return study_folder(results, study) / "units" / f"{unit}.json"


def write_unit(results: Path, study: str, unit: str, runs: list[UnitRun]) -> None:
    """Write the runs of a unit, atomically."""
    write_json(unit_file(results, study, unit), Unit(runs=runs).as_json())


def read_unit(results: Path, study: str, unit: str) -> list[UnitRun]:
    """The runs of a unit.  Raises FileNotFoundError and `Corrupt`."""
    file = unit_file(results, study, unit)
    try:
        runs = parse(Unit, read_json(file)).runs
    except ValueError as error:
        raise Corrupt(f"{file} {error}") from None
    for wrong in filter(None, map(flaw_of_run, runs)):
        raise Corrupt(f"{file} {wrong}")
    if leading := outside(Path(results), [run.path for run in runs]):
        raise Corrupt(f"{file} has a run {leading}, which a link leads out of {results}")
    return runs
