"""Numbers of committed studies are those of textbook formulas, computed without this package."""

import dataclasses
import functools
from collections.abc import Callable

import pandas
import pytest
from independent_numbers import RESULTS, STUDIES, Rows

from ablate import evidence
from ablate.runs.kept_tables import read_tables
from ablate.runs.records import Sequential
from ablate.runs.study import Study

TABLES: dict[str, tuple[Callable[[Study], pandas.DataFrame], str]] = {
    "effects": (evidence.effects, "label"),
    "claims": (evidence.claims, "name"),
    "cells": (evidence.cells, "label"),
}


def unpaired(study: Study) -> Study:
    """The study as if each cell had seen batches of its own."""
    cells = [dataclasses.replace(cell, batches=cell.id) for cell in study.manifest.cells]
    return dataclasses.replace(study, manifest=dataclasses.replace(study.manifest, cells=cells))


def at_the_second_look(study: Study) -> Study:
    """The study as if it had been planned with seeds=auto, and had looked at 5 and 8 seeds."""
    sequential = Sequential(looks=[5, 8, 12, 20], at=8)
    return dataclasses.replace(study, manifest=dataclasses.replace(study.manifest, sequential=sequential))


CHANGED: dict[str, Callable[[Study], Study]] = {
    "unpaired": unpaired,
    "seeds=auto at 8 of 5, 8, 12, 20": at_the_second_look,
}


@functools.cache
def computed(study: str, table: str) -> pandas.DataFrame:
    """A table of a committed study without the verdicts that were kept, changed as the words after its name say."""
    committed, _, change = study.partition(", ")
    found = dataclasses.replace(read_tables(RESULTS / committed), verdicts={})
    if change:
        found = CHANGED[change](found)
    compute, label = TABLES[table]
    return compute(found).set_index(label)


@pytest.mark.parametrize("add_rows", STUDIES, ids=lambda add_rows: add_rows.__name__)
def test_numbers_of_a_study_are_those_of_the_textbook(add_rows):
    rows: Rows = {}
    add_rows(rows)
    for (study, table, row), columns in rows.items():
        found = computed(study, table).loc[row]
        for column, value in columns.items():
            # Scores are rounded to twelve digits; p is compared relatively, however small it is.
            tolerance = 0.0 if column.startswith("p") else 1e-12
            assert found[column] == pytest.approx(value, rel=1e-9, abs=tolerance), (study, row, column)
