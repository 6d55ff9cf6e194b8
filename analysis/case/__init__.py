"""A study with everything that is computed from it once and shown many times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas

from ablate import evidence
from ablate.results import naming
from ablate.results.study import Study
from analysis import stats
from analysis.case.figures_yaml import FILE, edits_of, relabelled


class Case(NamedTuple):
    """A study, its tables as `ablate.evidence` makes them, and the folder where figures go.

    `further` has the tables of `analysis.stats` that there are, `drawn` those of the written figures, by name.  With
    labels of the user in figures.yaml all are as they are shown, and `plain` is the case without labels, for machines.
    """

    study: Study
    effects: pandas.DataFrame
    cells: pandas.DataFrame
    claims: pandas.DataFrame
    folder: Path
    further: Mapping[str, pandas.DataFrame]
    drawn: dict[str, pandas.DataFrame]
    plain: Case | None = None


def case_of(study: Study, folder: Path) -> Case:
    """The case of a study whose figures go to `folder`.

    The labels in the folder's figures.yaml are put in place of names.  Raises `Refused` where that is none.
    """
    labels = edits_of(folder / FILE, study.manifest).labels
    plain = _computed(study, folder)
    return _computed(relabelled(study, labels), folder)._replace(plain=plain) if labels else plain


def _computed(study: Study, folder: Path) -> Case:
    effects, rng = evidence.effects(study), np.random.default_rng(0)
    further = stats.tables(study, effects, rng) if not naming.no_evidence(study.manifest) else {}
    return Case(study, effects, evidence.cells(study), evidence.claims(study), folder, further, {})
