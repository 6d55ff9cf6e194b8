"""A study with everything that is computed from it once and shown many times."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas

from ablate import evidence
from ablate.results import Study


class Case(NamedTuple):
    """A study, the folder it came from, its tables as `ablate.evidence` makes them, and where figures go."""

    results: Path
    study: Study
    effects: pandas.DataFrame
    cells: pandas.DataFrame
    folder: Path


def case_of(results: Path, study: Study, folder: Path | None = None) -> Case:
    """The case of a study that was read from `results`; figures go to `<results>/figures/<study>` or to `folder`."""
    folder = folder or results / "figures" / study.manifest["study"]
    return Case(results, study, evidence.effects(study), evidence.cells(study), folder)
