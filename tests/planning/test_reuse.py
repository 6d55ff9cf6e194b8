"""Runs on disk of other code, versions or data: trained again, and never without a word."""

import os

import pytest
from conftest import ROOT, run_module
from faulty_package import write as write_package
from one_run import train_runs, write_plan

import ablate.runs.key
from ablate.planning.plan import Plan, PlanError
from ablate.runs.code_digest import Code
from ablate.runs.files import read_json, write_json
from ablate.runs.folder import Run
from ablate.runs.key import provenance, run_key
from ablate.runs.manifest import log_look, read_manifest


def finish(planned: Plan, status: str = "done", ended: str = "2025-01-01") -> list[Run]:
    """Record a plan and end its runs by hand, as their workers would."""
    write_plan(planned)
    cells = {cell.id: cell for cell in planned.manifest.cells}
    todo = [run for run in planned.manifest.runs if run.path in planned.todo]
    for planned_run in todo:
        run, cell = Run(planned.results, planned_run.path), cells[planned_run.cell]
        run.folder.mkdir(parents=True, exist_ok=True)
        run.weights_file.touch()
        write_json(run.provenance_file, provenance(cell.config, planned_run.seed, cell.task).as_json())
        write_json(run.result_file, {"status": status, "final": {"test/loss": 2.0}, "error": None, "ended": ended})
    return [Run(planned.results, run.path) for run in todo]


@pytest.fixture
def edit(monkeypatch):
    """Makes a definition another one, for the cells that use it, as an edit would; or all as they are."""
    real = ablate.runs.key.code_of

    def edited(name: str | None, digest: str = "edited") -> None:
        def code_of(config, user_code=None):
            found = real(config, user_code)
            if name not in found.definitions:
                return found
            return Code(f"{found.content}, {name} {digest}", found.definitions | {name: digest})

        monkeypatch.setattr("ablate.runs.key.code_of", code_of)

    return edited


def notes(planned: Plan) -> str:
    return "\n".join([*planned.notes, *(note for cell in planned.manifest.cells for note in cell.notes)])


RMS = "ablate.model.norm.RMSNorm"  # which attention may use, too
pytestmark = pytest.mark.usefixtures("untried", "uncounted")
SCALE = "ablate.model.norm.ScaleNorm"


def test_a_changed_definition_trains_its_cells_again_and_says_so(plan, edit):
    finish(plan("norm=ln,scale", "seeds=2"))
    edit(SCALE)
    again = plan("norm=ln,scale", "seeds=2")
    assert len(again.todo) == 2 and {path.split("-")[0] for path in again.todo} == {"scale"}
    assert f"2 runs of this study were trained with other code ({SCALE}); trained again" in notes(again)
    edit("ablate.training.trainer.Trainer")
    assert len(plan("norm=ln,scale", "seeds=2").todo) == 4
    edit(None)
    assert notes(plan("norm=ln,scale", "seeds=2")) == "", "nothing is missing"


def test_other_versions_and_unknown_ones_are_named(plan, monkeypatch):
    [run] = finish(plan("norm=rms", "seeds=1"))
    monkeypatch.setattr("torch.__version__", "9.9")
    told = read_json(run.provenance_file)["versions"]["torch"]
    assert f"1 run of this study was trained with torch {told} (now 9.9); trained again" in notes(
        plan("norm=rms", "seeds=1")
    )
    run.provenance_file.unlink()
    assert "trained with a provenance.json that is gone or damaged; trained again" in notes(plan("norm=rms", "seeds=1"))


def test_changed_data_are_named(plan, text, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(text.read_text())
    given = [f"data.path={file}", "norm=ln,rms", "seeds=1"]
    finish(plan(*given, "study=mine"))
    finish(plan(*given))
    file.write_text(text.read_text() + "one more line")
    with pytest.raises(PlanError, match=r"mine was trained on other data: byte LM on text is no longer \w{8} but"):
        plan(*given, "study=mine")
    assert "2 runs of these configurations were trained before the data changed; trained again" in notes(plan(*given))
    assert notes(plan("norm=ln,rms", "seeds=1")) == "", "another file is no changed one"
    with pytest.raises(PlanError, match="mine holds 2 other configurations"):
        plan("ffn=gelu,swiglu", "study=mine")


def test_none_shares_with_no_other_study_and_still_resumes(plan):
    shared = finish(plan("norm=rms", "seeds=1"))
    own = plan("norm=rms", "seeds=1", "study=mine", "reuse=none")
    assert len(own.todo) == 1 and own.todo != [run.path for run in shared]
    write_plan(own)
    [cell] = own.manifest.cells
    assert train_runs(own) == ["done"], "its worker finds the same key"
    assert own.todo[0].endswith(run_key(cell.config, 0, cell.task))
    assert plan("norm=rms", "seeds=1", "study=mine", "reuse=none").todo == []
    assert len(plan("norm=rms", "seeds=1", "study=other", "reuse=none").todo) == 1
    assert len(plan("norm=rms", "seeds=1", "reuse=none").todo) == 1
    assert "1 run of this study was trained under reuse=none" not in notes(plan("norm=rms", "seeds=1", "study=mine"))
    back = plan("norm=rms", "seeds=2", "study=mine")
    assert len(back.todo) == 1 and back.manifest.runs[0].path == shared[0].path


def test_a_command_that_ends_later_brings_no_second_run_of_a_seed_into_the_study(plan, edit):
    first = plan("norm=ln,rms", "seeds=2")
    finish(first)
    edit(RMS)
    finish(plan("norm=ln,rms", "seeds=2"))
    log_look(first.results, first.manifest, "2025-01-02")
    runs = read_manifest(first.results, first.manifest.study).runs
    assert len({(run.cell, run.seed) for run in runs}) == len(runs) == 4


@pytest.mark.slow
def test_a_worker_refuses_user_code_that_was_edited_after_the_plan(small, tmp_path):
    conf, file = str(write_package(tmp_path)), str(tmp_path / "mistakes_of_mine.py")
    code = f"""
import pathlib
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from faulty_package import write as write_package
from one_run import train_runs, write_plan
from ablate.execution.launcher import run_orders
from ablate.execution.train_run import train_run
words = ("norm=bywidth", "seeds=2", "train.parallel=1", "user=[mistakes_of_mine]", *{small!r})
plan = plan_study(words, {conf!r})
write_plan(plan)
first, second = plan.orders()
assert train_run(first, lambda: False) == "done"
file = pathlib.Path({file!r})
file.write_text(file.read_text().replace("dim**-0.5", "dim**-0.4"))
assert [answer.status for answer in run_orders([second])] == ["failed"]
result = Run(plan.results, plan.todo[1]).result()
assert "changed after the plan was made" in result.error.message
"""
    (tmp_path / "edit.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "tests" / "helpers")])
    done = run_module("edit", cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
