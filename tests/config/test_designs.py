"""Designs against what defines them, worked out by brute force over many shapes."""

import itertools
import math

import numpy as np
import pytest

from ablate.config.designs import DESIGNS, base_factors, size

SHAPES = [(2,), (3,), (2, 2), (3, 2), (2, 3, 4), (1, 2), (2,) * 4, (2, 3, 2, 2, 2), (2,) * 6, (3, 2, 2, 2, 2, 4)]
BASES = ["first", "last"]


def counts(shape: tuple[int, ...]) -> dict[str, int]:
    return {f"f{i}": count for i, count in enumerate(shape)}


def base_of(shape: tuple[int, ...], which: str) -> tuple[int, ...]:
    return tuple(count - 1 if which == "last" else 0 for count in shape)


@pytest.mark.parametrize("design", ["grid", "one_at_a_time", "leave_one_out", "cumulative", "fractional"])
def test_every_design_has_each_level_no_cell_twice_and_no_more_cells_than_said(design):
    for shape, which in itertools.product(SHAPES, BASES):
        base = base_of(shape, which)
        cells = DESIGNS[design](counts(shape), base).cells
        assert len(set(cells)) == len(cells) <= size(design, counts(shape))
        for place, count in enumerate(shape):
            assert {cell[place] for cell in cells} == set(range(count))
        assert (base if design != "cumulative" else (0,) * len(shape)) in cells


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_factor_is_changed_at_a_time(shape):
    for design in ("one_at_a_time", "leave_one_out"):
        for base in (base_of(shape, which) for which in BASES):
            first, *changed = DESIGNS[design](counts(shape), base).cells
            assert first == base and len(changed) == sum(shape) - len(shape)
            assert {sum(a != b for a, b in zip(base, cell, strict=True)) for cell in changed} <= {1}
    cells = DESIGNS["cumulative"](counts(shape), base_of(shape, "first")).cells
    assert cells[0] == (0,) * len(shape) and cells[-1] == tuple(count - 1 for count in shape)
    moved = []
    for before, after in itertools.pairwise(cells):
        differ = [place for place in range(len(shape)) if before[place] != after[place]]
        assert len(differ) == 1 and after[differ[0]] == before[differ[0]] + 1
        moved += differ
    assert moved == sorted(moved), "a factor is changed again after a later one"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_ladder_changes_one_factor_at_a_time_on_every_rung(shape):
    *others, rungs = shape
    for base in (base_of(shape, which) for which in BASES):
        cells = DESIGNS["ladder"](counts(shape), base).cells
        assert len({*cells}) == len(cells) == size("ladder", counts(shape)) == rungs * (1 + sum(others) - len(others))
        assert {cell[-1] for cell in cells} == {*range(rungs)}
        assert {sum(a != b for a, b in zip(base[:-1], cell[:-1], strict=True)) for cell in cells} <= {0, 1}


def signs(n: int) -> np.ndarray:
    return 2 * np.array(DESIGNS["fractional"](counts((2,) * n), (0,) * n).cells) - 1


@pytest.mark.parametrize("n", [*range(2, 10), 16, 17])
def test_a_fraction_is_of_resolution_four(n):
    """Resolution IV is strength three: any three factors hold all their combinations equally often."""
    columns = signs(n)
    for three in itertools.combinations(range(n), min(3, n)):
        _, times = np.unique(columns[:, three], axis=0, return_counts=True)
        assert len(times) == 2 ** len(three) and len(set(times)) == 1, f"{three} are not balanced"
    assert math.log2(len(columns)).is_integer()


@pytest.mark.parametrize(("n", "cells"), [(2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32), (16, 32), (17, 64)])
def test_a_fraction_is_as_small_as_resolution_four_allows(n, cells):
    """2n rows are needed at least (Rao 1947), so with powers of two these are the smallest."""
    assert len(signs(n)) == cells == 2 ** base_factors(n)
    assert cells / 2 < 2 * n or cells == 2**n


def aliased(generators: list[str], names: list[str]) -> set[frozenset[frozenset[str]]]:
    """Sets of two-way interactions that are one, by the algebra of defining words: a word times a pair is a pair."""
    words = [frozenset([left, *right.split(" × ")]) for left, right in (text.split(" = ") for text in generators)]
    group = {frozenset()}
    for word in words:
        group |= {word ^ other for other in group}
    pairs = [frozenset(pair) for pair in itertools.combinations(names, 2)]
    chains = {frozenset(pair ^ word for word in group if len(pair ^ word) == 2) for pair in pairs}
    return {chain for chain in chains if len(chain) > 1}


@pytest.mark.parametrize("which", BASES)
@pytest.mark.parametrize("shape", [(2,) * n for n in (4, 5, 6, 7, 9, 16)] + [(3, 2, 2, 2, 2), (2, 2, 4, 2, 2, 2, 2)])
def test_aliases_follow_from_the_generators(shape, which):
    made = DESIGNS["fractional"](counts(shape), base_of(shape, which))
    twos = [name for name, count in counts(shape).items() if count == 2]
    told = {frozenset(frozenset(pair.split(" × ")) for pair in chain) for chain in made.aliases["together"]}
    assert told == aliased(made.aliases["generators"], twos)
    assert made.aliases["resolution"] == ("IV" if told else "V")
    shown = " ".join(made.notes)
    assert all(" = ".join(chain) in shown for chain in made.aliases["together"])
    assert all(generator in shown for generator in made.aliases["generators"])
    # The columns themselves, with the reference as +1, obey the generators.
    cells, base = np.array(made.cells), base_of(shape, which)
    column = {name: np.where(cells[:, i] == base[i], 1, -1) for i, name in enumerate(counts(shape))}
    for generator in made.aliases["generators"]:
        left, right = generator.split(" = ")
        assert (column[left] == np.prod([column[name] for name in right.split(" × ")], axis=0)).all()


def test_notes_say_what_a_design_cannot_tell():
    said = {design: DESIGNS[design](counts((2, 2)), (0, 0)).notes for design in ("grid", "one_at_a_time", "cumulative")}
    assert said["grid"] == []
    assert "interactions are not measured" in said["one_at_a_time"][0]
    assert "depends on the order" in said["cumulative"][0]
