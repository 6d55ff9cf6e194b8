"""How models are computed where that is left open: by the length of runs and by measuring, once per study."""

from collections.abc import Callable

import pytest
from one_run import write_plan

from ablate.planning import kernels, runs
from ablate.planning.plan import plan_study

Measure = Callable[..., None]
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.fixture
def machine(monkeypatch) -> Measure:
    """Say what this machine is like, and from how many operations a run is long."""

    def described(products="onednn", compiler=True, long=0.0):
        seconds = {"torch": 2.0 if products == "onednn" else 1.0, "onednn": 1.0}
        measured = []

        def product_seconds(shapes, rows, library):
            assert shapes == {(16, 16): 4, (16, 64): 1, (64, 16): 1}, "those of a layer of attention and an FFN"
            assert rows == 4 * 16, "those of a step"
            measured.append(library)
            is_slowed = len(measured) == 1  # by another process
            return 5 * seconds[library] if is_slowed else seconds[library]

        monkeypatch.setattr("ablate.model.products.product_seconds", product_seconds)
        monkeypatch.setattr(kernels, "can_compile", lambda device: compiler)
        monkeypatch.setattr(kernels, "LONG", {"cpu": long, "cuda": long})

    return described


def ways(small: list[str], *words: str) -> set[tuple[str, bool]]:
    """How the cells of a planned study are computed."""
    cells = plan_study([*small, "norm=ln,rms", *words]).manifest.cells
    return {(cell.config.train.matmul, cell.config.train.compile) for cell in cells}


def test_long_runs_go_by_the_measurement_and_short_ones_do_not(small, machine):
    machine(long=1e18)
    assert ways(small) == {("torch", False)}
    machine()
    assert ways(small) == {("onednn", True)}
    machine(products="torch", compiler=False)
    assert ways(small) == {("torch", False)}


def test_what_is_asked_for_is_not_decided(small, machine):
    machine()
    assert ways(small, "train.compile=false") == {("onednn", False)}
    assert ways(small, "train.matmul=torch") == {("torch", True)}
    assert ways(small, "train.precision=bf16") == {("torch", True)}, "bf16 is oneDNN's either way"
    assert ways(small, "train.precision=fp32,bf16") == {("onednn", True), ("torch", True)}
    assert ways(small, "train.device=cpu,cuda") == {("onednn", True), ("torch", True)}


def test_only_what_was_decided_is_reported(small, machine):
    machine()
    [note] = [note for note in plan_study([*small, "norm=ln,rms"]).notes if "should be faster" in note]
    assert note.startswith("compiled and float32 products by oneDNN, which should be faster")
    requested = plan_study([*small, "norm=ln,rms", "train.compile=true", "train.matmul=onednn"])
    assert not [note for note in requested.notes if "should be faster" in note]


@pytest.mark.parametrize("other", ["train.precision=bf16,fp32", "train.device=cuda"])
def test_a_library_that_a_cell_cannot_have_is_refused(refused, other):
    [line] = refused("train.matmul=onednn", other)
    assert line.startswith("train.matmul: ") and all(word in line for word in ("float32", "CPU"))


@pytest.mark.parametrize(
    "words", [(), ("confirm=2",), ("tune.key=optim.lr", "tune.values=[1e-3,1e-2]", "confirm=2")], ids=" ".join
)
def test_whichever_round_a_study_was_begun_with_says_its_way(small, machine, words):
    """Else tuning that was interrupted is done again where a measurement comes out otherwise."""
    machine()
    first = plan_study([*small, "norm=ln,rms", *words])
    write_plan(first)
    machine(products="torch", compiler=False)  # another machine
    again = plan_study([*small, "norm=ln,rms", *words])
    assert [run.path for run in again.manifest.runs] == [run.path for run in first.manifest.runs]


def test_the_way_is_part_of_the_key_and_of_no_studys_name(small, machine):
    machine()
    fast = plan_study([*small, "norm=ln,rms"]).manifest
    machine(products="torch", compiler=False)
    plain = plan_study([*small, "norm=ln,rms"]).manifest
    assert fast.study == plain.study
    assert {run.path for run in fast.runs}.isdisjoint(run.path for run in plain.runs)


@pytest.mark.parametrize("compiler", [True, False])
def test_compiling_without_a_compiler_is_refused_before_anything_trains(compiler, plan, monkeypatch):
    monkeypatch.setattr(runs, "can_compile", lambda device: compiler)
    planned = plan("norm=ln", "seeds=1", "train.compile=true")
    expected = "train.compile: needs a C++ compiler and Python's headers (g++, python3-dev), which this machine lacks"
    problem = runs.device_problem(planned)
    assert problem is None if compiler else str(problem).startswith(expected)
