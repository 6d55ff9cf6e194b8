"""`+attention.kernels=fla`: what it needs, that it may be compared with the plain form, and what of it is in keys."""

import pytest

from ablate.planning.checks import validate
from ablate.runs.key import provenance

FLA = ("+attention.kernels=fla", "model.dim=64", "seeds=1")
GPU = ("train.device=cuda", "train.compile=false")


@pytest.fixture
def there(monkeypatch) -> None:
    """The library is installed."""
    monkeypatch.setattr(validate, "installed", lambda *_: None)


def test_what_they_need_is_told(refused, there):
    [line] = refused("attention=mamba2", *FLA, "train.device=cpu")
    assert "attention.kernels" in line and "train.device=cpu" in line
    assert "no such argument" in refused("attention=mha", *FLA, *GPU)[0]
    assert "+attention.kernels" in refused("attention=mamba2", "attention.kernels=fla", *GPU)[0]
    assert "even numbers of features ≥ 16" in refused("attention=mamba2", *FLA, "attention.state=6", *GPU)[0]


def test_a_library_that_is_lacking_is_named(refused, monkeypatch):
    monkeypatch.setitem(validate.MODULES, "fla", ("no_such_library",))
    assert "pip install -e '.[fla]'" in refused("attention=mamba2", *FLA, *GPU)[0]


def test_kernels_are_no_duplicate_of_the_plain_form(plan, there):
    """On the CPU that tries cells out, by plain copies, they are one; on a GPU they need not be."""
    found = plan("attention=mamba2", *FLA, "+attention.kernels=null,fla", *GPU)
    assert [cell.label for cell in found.manifest.cells] == ["attention.kernels=null", "attention.kernels=fla"]
    assert not [note for note in found.notes if "tried out" in note]


def test_versions_of_their_libraries_are_part_of_what_a_run_is_and_a_pattern_has_them_where_it_can(
    plan, there, untried
):
    words = (*FLA, "model.layers=2", "attention=mamba2,mha+mamba2", "+attention.kernels=null,fla", *GPU)
    cells = plan(*words).manifest.cells
    for cell in cells:
        found = provenance(cell.config, 0, "data").versions
        by = "fla" in cell.label
        assert {"fla-core", "triton"} <= found.keys() if by else not {"fla-core", "triton"} & found.keys()
    pattern = cells[-1].config.attention
    assert pattern["mamba2"]["kernels"] == "fla" and "kernels" not in pattern["mha"]
