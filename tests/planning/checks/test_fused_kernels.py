"""`+attention.kernels=fla`: what it needs, that it may be compared with the plain form, and what of it is in keys."""

import pytest

from ablate.config.errors import PlanError
from ablate.planning.checks import requirements, small_models
from ablate.planning.plan import plan_study
from ablate.results.run_key import provenance

SIZE = ("dry_run=true", "seeds=1", "model.layers=2")
WORDS = ("attention=mamba2", *SIZE)
GPU = ("train.device=cuda", "train.compile=false")


def told(*words: str, attention: str = "mamba2") -> str:
    """The one line of a plan that is refused."""
    with pytest.raises(PlanError) as caught:
        plan_study([f"attention={attention}", *SIZE, *words])
    [problem] = caught.value.problems
    assert "\n" not in str(problem)
    return str(problem)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is installed."""
    monkeypatch.setattr(requirements, "installed", lambda *_: None)


def test_what_they_need_is_told(monkeypatch: pytest.MonkeyPatch, there: None) -> None:
    said = told("+attention.kernels=fla", "train.device=cpu")
    assert "attention.kernels" in said and "train.device=cpu" in said
    assert "no such argument" in told("+attention.kernels=fla", *GPU, attention="mha")
    assert "+attention.kernels=" in told("attention.kernels=fla", *GPU)
    assert "even numbers of features ≥ 16" in told("+attention.kernels=fla", "attention.state=6", *GPU)


def test_a_library_that_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch, untried: None) -> None:
    monkeypatch.setitem(requirements.MODULES, "fla", ("no_such_library",))
    assert "pip install 'ablate[fla]'" in told("+attention.kernels=fla", *GPU)


def test_kernels_are_no_duplicate_of_the_plain_form(there: None) -> None:
    """On the CPU that tries cells out they are one, on a GPU they need not be; other settings are told as ever."""
    plan = plan_study([*WORDS, "+attention.kernels=null,fla", *GPU])
    assert [cell.label for cell in plan.manifest.cells] == ["attention.kernels=null", "attention.kernels=fla"]


def test_the_copy_that_a_cpu_tries_out_is_plain(there: None) -> None:
    """Its heads are narrower than kernels take."""
    plan = plan_study(["attention=gla", "model.heads=2", "+attention.kernels=fla", *SIZE, *GPU])
    [(_, cell)] = plan.study.cells.references
    assert cell.config.attention["kernels"] == "fla"
    spec = small_models.small(cell, set(), 1)
    assert spec.config.attention["kernels"] is None and small_models.build(spec)


def test_versions_of_their_libraries_are_part_of_what_a_run_is_and_a_pattern_has_them_where_it_can(there, untried):
    plan = plan_study([*SIZE, "attention=mamba2,mha+mamba2", "+attention.kernels=null,fla", *GPU])
    for cell in plan.manifest.cells:
        found = provenance(cell.config, 0, "data").versions
        by = "fla" in cell.label
        assert {"fla-core", "triton"} <= found.keys() if by else not {"fla-core", "triton"} & found.keys()
    pattern = plan.manifest.cells[-1].config.attention
    assert pattern["mamba2"]["kernels"] == "fla" and "kernels" not in pattern["mha"]
