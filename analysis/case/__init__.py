"""A study with all tables that are computed from it, once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas

from ablate import evidence
from ablate.runs import naming
from ablate.runs.study import Study
from analysis.case.figures_yaml import FILE, edits_of, relabelled, shown_names


class Case(NamedTuple):
    """A study, its tables from `ablate.evidence`, and the folder for figures.

    `further` holds the tables of speed and of a ladder, `drawn` those of the written figures, by name.  All of these
    use the names that papers use, or the labels of figures.yaml; `plain` is the case with keys, for machine-readable
    output.
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
    """The case of a study whose figures go to `folder`, with the names that papers use and the labels of that folder's
    figures.yaml.  Raises `Refused` if that file is invalid."""
    labels = shown_names(study.manifest, edits_of(folder / FILE, study.manifest).labels)
    plain = _computed(study, folder)
    return _computed(relabelled(study, labels), folder)._replace(plain=plain) if labels else plain


def _computed(study: Study, folder: Path) -> Case:
    further = {} if naming.no_evidence(study.manifest) else further_tables(study)
    return Case(study, evidence.effects(study), evidence.cells(study), evidence.claims(study), folder, further, {})


def further_tables(study: Study) -> dict[str, pandas.DataFrame]:
    """The tables that the study has data for, by name: speed, ladder."""
    tables = {"speed": evidence.speed(study)}
    if "ladder" not in study.figures:  # else it was judged by an earlier method
        tables["ladder"] = evidence.ladder(study)
    return {name: table for name, table in tables.items() if len(table)}
