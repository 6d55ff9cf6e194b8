"""Designs against what defines them, worked out by brute force over many shapes."""

import itertools

import pytest

from ablate.config.designs import DESIGNS, size

SHAPES = [(2,), (3,), (2, 2), (3, 2), (2, 3, 4), (1, 2), (2,) * 4, (2, 3, 2, 2, 2), (2,) * 6, (3, 2, 2, 2, 2, 4)]
BASES = ["first", "last"]


def counts(shape: tuple[int, ...]) -> dict[str, int]:
    return {f"f{i}": count for i, count in enumerate(shape)}


def base_of(shape: tuple[int, ...], which: str) -> tuple[int, ...]:
    return tuple(count - 1 if which == "last" else 0 for count in shape)


@pytest.mark.parametrize("design", ["grid", "one_at_a_time", "leave_one_out", "cumulative"])
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


def test_notes_say_what_a_design_cannot_tell():
    said = {design: DESIGNS[design](counts((2, 2)), (0, 0)).notes for design in ("grid", "one_at_a_time", "cumulative")}
    assert said["grid"] == []
    assert "interactions are not measured" in said["one_at_a_time"][0]
    assert "depends on the order" in said["cumulative"][0]
