"""The file that a unit's job reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.config.typed_json import parse
from ablate.results.atomic import read_json
from ablate.results.manifest import unit_file
from ablate.results.manifest_checks import flaw_of_run, outside
from ablate.results.records import Cell, Unit, UnitRun


def read_unit(results: Path, study: str, unit: str) -> list[UnitRun]:
    """The runs of a unit, each with its cell.  Raises FileNotFoundError and `Corrupt`."""
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


def cell_of(run: UnitRun, user: Sequence[str]) -> Cell:
    """The cell of a planned run, built with what the command allows, whatever the unit's file says."""
    return dataclasses.replace(run.cell, config=dataclasses.replace(run.cell.config, user=list(user)))
