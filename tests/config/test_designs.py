"""Designs against what defines them, worked out by brute force over many shapes."""

import itertools

import pytest

from ablate.config.designs import DESIGNS, size

SHAPES = [(2,), (3,), (2, 2), (2, 3, 4), (1, 2), (2,) * 6]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_reference = pytest.mark.parametrize("last", [False, True], ids=["first", "last"])


def reference_of(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """The first or the last level of each factor."""
    return tuple(count - 1 if last else 0 for count in shape)


def changes(cell: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    """The factors in which two cells differ."""
    return [i for i in range(len(cell)) if cell[i] != other[i]]


@each_shape
@each_reference
@pytest.mark.parametrize("design", ["grid", "one_at_a_time", "leave_one_out", "cumulative"])
def test_every_design_has_each_level_no_cell_twice_and_no_more_cells_than_its_size(design, last, shape):
    reference = reference_of(shape, last)
    cells = DESIGNS[design](shape, reference)
    assert len(set(cells)) == len(cells) <= size(design, shape)
    for i, count in enumerate(shape):
        assert {cell[i] for cell in cells} == set(range(count))
    assert (reference_of(shape, False) if design == "cumulative" else reference) in cells


@each_shape
@each_reference
@pytest.mark.parametrize("design", ["one_at_a_time", "leave_one_out"])
def test_one_factor_is_changed_at_a_time(design, last, shape):
    first, *others = DESIGNS[design](shape, reference_of(shape, last))
    assert first == reference_of(shape, last)
    assert len(others) == sum(shape) - len(shape)
    assert {len(changes(first, cell)) for cell in others} <= {1}


@each_shape
def test_cumulative_changes_go_from_the_first_levels_to_the_last_factor_by_factor(shape):
    cells = DESIGNS["cumulative"](shape, reference_of(shape, False))
    assert cells[0] == reference_of(shape, False)
    assert cells[-1] == reference_of(shape, True)
    changed = []
    for before, after in itertools.pairwise(cells):
        [i] = changes(before, after)
        assert after[i] == before[i] + 1
        changed.append(i)
    assert changed == sorted(changed), "a factor is changed again after a later one"


@each_shape
@each_reference
def test_a_ladder_changes_one_factor_at_a_time_on_every_rung(last, shape):
    *others, rungs = shape
    reference = reference_of(shape, last)
    cells = DESIGNS["ladder"](shape, reference)
    assert len(set(cells)) == len(cells) == size("ladder", shape) == rungs * (1 + sum(others) - len(others))
    assert {cell[-1] for cell in cells} == set(range(rungs))
    assert {len(changes(reference[:-1], cell[:-1])) for cell in cells} <= {0, 1}
