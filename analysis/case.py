"""A study with everything that is computed from it once and shown many times."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas

from ablate import evidence
from ablate.results import Study


class Case(NamedTuple):
    """A study, the folder it came from, and its tables as `ablate.evidence` makes them.

    `drawn` has the tables of the figures that were written, by name.
    """

    results: Path
    study: Study
    effects: pandas.DataFrame
    cells: pandas.DataFrame
    drawn: dict[str, pandas.DataFrame]


def case_of(results: Path, study: Study) -> Case:
    """The case of a study that was read from `results`."""
    return Case(results, study, evidence.effects(study), evidence.cells(study), {})
