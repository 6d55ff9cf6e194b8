"""Numbers of committed studies equal those of tests/recorded/independent.csv, computed without this package."""

import dataclasses
import functools
from collections.abc import Callable

import pandas
import pytest
from committed_effects import committed_studies
from independent_numbers import FILE, all_numbers

from ablate import evidence
from ablate.config.claims import Claim
from ablate.runs.records import ClaimEntry, Sequential
from ablate.runs.study import Study

TABLE = pandas.read_csv(FILE)
TABLES: dict[str, tuple[Callable[[Study], pandas.DataFrame], str]] = {
    "effects": (evidence.effects, "label"),
    "speed": (evidence.speed, "label"),
    "claims": (evidence.claims, "name"),
    "cells": (evidence.cells, "label"),
}
PLAIN = {"rel": 1e-9, "abs": 1e-12}  # scores are rounded to twelve digits
P_VALUES = {"rel": 1e-9, "abs": 0.0}  # relative to themselves, however small


def unpaired(study: Study) -> Study:
    """The study as if each cell had seen batches of its own."""
    cells = [dataclasses.replace(cell, batches=cell.id) for cell in study.manifest.cells]
    return dataclasses.replace(study, manifest=dataclasses.replace(study.manifest, cells=cells))


def at_the_second_look(study: Study) -> Study:
    """The study as if it had been planned with seeds=auto, and had looked at 5 and 8 seeds."""
    sequential = Sequential(looks=[5, 8, 12, 20], at=8)
    return dataclasses.replace(study, manifest=dataclasses.replace(study.manifest, sequential=sequential))


def with_divergence(study: Study) -> Study:
    """The study as if its runs with a test loss above 2.5 had diverged, with a claim about them alone."""
    stuck = study.runs["test/loss"] > 2.5
    runs = study.runs.assign(status=study.runs["status"].mask(stuck, "diverged"))
    sides = ({"residual": "post"}, {"residual": "pre"})
    claim = Claim(diverges_more=sides, at={"optim.warmup": 0, "optim.lr": 0.004})
    manifest = dataclasses.replace(study.manifest, claims={"post_diverges": ClaimEntry(claim=claim, registered=True)})
    return dataclasses.replace(study, manifest=manifest, runs=runs)


CHANGED: dict[str, Callable[[Study], Study]] = {
    "unpaired": unpaired,
    "seeds=auto at 8 of 5, 8, 12, 20": at_the_second_look,
    "losses above 2.5 diverged": with_divergence,
    "losses above 2.5 diverged, unpaired": lambda study: unpaired(with_divergence(study)),
}


@functools.cache
def computed(study: str, table: str) -> pandas.DataFrame:
    """A table of a committed study without the verdicts that were kept, changed as the words after its name say."""
    committed, _, change = study.partition(", ")
    found = dataclasses.replace(committed_studies()[committed], verdicts={})
    if change:
        found = CHANGED[change](found)
    compute, label = TABLES[table]
    return compute(found).set_index(label)


@pytest.mark.parametrize(
    "number", list(TABLE.itertuples()), ids=(TABLE["study"] + "-" + TABLE["row"] + "-" + TABLE["column"])
)
def test_a_number_is_that_of_the_textbook(number):
    value = computed(number.study, number.table).loc[number.row, number.column]
    tolerance = P_VALUES if number.column in ("p", "p_holm", "p_bonferroni") else PLAIN
    assert value == pytest.approx(number.value, **tolerance), number.what


def test_the_table_is_what_its_script_computes():
    today = all_numbers()
    names = ["study", "table", "row", "column", "what"]
    assert today[names].to_numpy().tolist() == TABLE[names].to_numpy().tolist()
    assert today["value"].to_numpy() == pytest.approx(TABLE["value"].to_numpy(), rel=1e-12, abs=1e-15)
