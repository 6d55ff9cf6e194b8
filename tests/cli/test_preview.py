"""What a plan says that is not tested where it is planned."""

from dataclasses import replace

import pytest

from ablate.cli import preview


@pytest.mark.usefixtures("untried", "uncounted")
def test_what_is_noted_of_many_cells_alike_is_said_once(plan):
    planned = plan("norm=ln,rms,scale", "ffn=mlp,gelu", "seeds=1")
    labels = [cell.label for cell in planned.manifest.cells]
    notes = [f"{label}: is odd" for label in labels]
    lines = preview.preview(replace(planned, notes=[*notes, "all: are even"])).splitlines()
    assert lines[-2:] == [f"{', '.join(labels[:4])} and 2 more: is odd", "all: are even"]
