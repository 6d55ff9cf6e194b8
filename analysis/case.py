"""A study with everything that is computed from it once and shown many times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas

from ablate import evidence, words
from ablate.results import Study
from analysis import stats


class Case(NamedTuple):
    """A study, the folder it came from, its tables as `ablate.evidence` makes them, and where figures go.

    `further` has the tables of `analysis.stats` that there are, `drawn` those of the written figures, by name.
    """

    results: Path
    study: Study
    effects: pandas.DataFrame
    cells: pandas.DataFrame
    claims: pandas.DataFrame
    folder: Path
    further: Mapping[str, pandas.DataFrame]
    drawn: dict[str, pandas.DataFrame]


def case_of(results: Path, study: Study, folder: Path | None = None) -> Case:
    """The case of a study that was read from `results`; figures go to `<results>/figures/<study>` or to `folder`."""
    folder = folder or results / "figures" / study.manifest["study"]
    effects, rng = evidence.effects(study), np.random.default_rng(0)
    further = stats.tables(results, study, effects, rng) if not words.no_evidence(study.manifest) else {}
    return Case(results, study, effects, evidence.cells(study), evidence.claims(study), folder, further, {})
