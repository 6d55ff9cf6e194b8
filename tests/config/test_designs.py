"""Designs: their cells written out for a small shape, and what defines them over many shapes."""

import pytest

from ablate.config.designs import DESIGNS, size

# The cells of two levels by three, in their order, given the reference.
CELLS = {
    "grid": ((0, 0), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
    "one_at_a_time": ((0, 0), [(0, 0), (1, 0), (0, 1), (0, 2)]),
    "leave_one_out": ((1, 2), [(1, 2), (0, 2), (1, 0), (1, 1)]),
    "cumulative": ((0, 0), [(0, 0), (1, 0), (1, 1), (1, 2)]),
}


@pytest.mark.parametrize("design", CELLS)
def test_the_cells_of_a_design(design):
    reference, cells = CELLS[design]
    assert list(DESIGNS[design]((2, 3), reference)) == cells


def test_a_ladder_changes_one_factor_at_a_time_on_every_rung():
    lower = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 2, 0)]
    upper = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert DESIGNS["ladder"]((2, 3, 2), (0, 0, 0)) == lower + upper
    assert size("ladder", (2, 3, 2)) == 8


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2), (2, 3, 4), (1, 2), (2,) * 6], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("design", CELLS)
def test_every_design_has_each_level_no_cell_twice_and_no_more_cells_than_its_size(design, last, shape):
    reference = tuple(count - 1 if last else 0 for count in shape)
    cells = DESIGNS[design](shape, reference)
    assert len(set(cells)) == len(cells) <= size(design, shape)
    for i, count in enumerate(shape):
        assert {cell[i] for cell in cells} == set(range(count))
    assert cells[0] == (tuple(0 for _ in shape) if design in ("grid", "cumulative") else reference)
