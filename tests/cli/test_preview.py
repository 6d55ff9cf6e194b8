"""The plan's table where there are many cells; what a plan says else is tested where it is planned."""

from dataclasses import replace

import pytest

from ablate.cli import preview
from ablate.planning.plan import Plan


@pytest.fixture
def planned(plan, monkeypatch, untried, uncounted) -> Plan:
    """A plan of six cells, where five are shown at most."""
    monkeypatch.setattr(preview, "MOST", 5)
    monkeypatch.setattr(preview, "HEAD", 3)
    monkeypatch.setattr(preview, "TAIL", 2)
    result: Plan = plan("norm=ln,rms,scale", "ffn=mlp,gelu", "seeds=1")
    return result


def test_of_many_cells_the_first_and_the_last_are_shown(planned):
    labels = [cell.label for cell in planned.manifest.cells]
    rows = preview.preview(planned).splitlines()[5:11]
    shown = [row.split("  ")[0].removesuffix(" (reference)") for row in rows]
    assert shown == [*labels[:3], "… 1 more configuration between; --json has all", *labels[-2:]]


def test_what_is_noted_of_many_cells_alike_is_said_once(planned):
    labels = [cell.label for cell in planned.manifest.cells]
    notes = [f"{label}: is odd" for label in labels]
    lines = preview.preview(replace(planned, notes=[*notes, "all: are even"])).splitlines()
    assert lines[-2:] == [f"{', '.join(labels[:4])} and 2 more: is odd", "all: are even"]
