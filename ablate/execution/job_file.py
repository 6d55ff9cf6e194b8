"""The file that a unit's job reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt
from ablate.results.atomic import read_json
from ablate.results.manifest import unit_file
from ablate.results.manifest_checks import flaw_of_run, outside


def read_unit(results: Path, study: str, unit: str) -> list[dict[str, Any]]:
    """The runs of a unit, each with its cell.  Raises FileNotFoundError and `Corrupt`."""
    file = unit_file(results, study, unit)
    runs = read_json(file).get("runs")
    wrong = next(filter(None, map(flaw_of_run, runs)), None) if isinstance(runs, list) else "has no runs"
    if isinstance(runs, list) and not wrong:
        cells = [run.get("cell") for run in runs]
        if not all(isinstance(cell, dict) and isinstance(cell.get("config"), dict) for cell in cells):
            wrong = "has a run without its cell"
        elif leading := outside(Path(results), [run["path"] for run in runs]):
            wrong = f"has a run {leading}, which a link leads out of {results}"
    if wrong or runs is None:
        raise Corrupt(f"{file} {wrong}")
    return runs


def cell_of(run: dict[str, Any], user: Sequence[str]) -> dict[str, Any]:
    """The cell of a planned run, built with what the command allows, whatever the unit's file says."""
    cell: dict[str, Any] = run["cell"]
    return cell | {"config": cell["config"] | {"user": list(user)}}
