"""Runs on disk of other code, versions or data: trained again, and never without a word."""

import re

import pytest
from one_run import train_runs, write_plan
from planned_rounds import finish, notes_of

import ablate.runs.key
from ablate.planning.plan import PlanError
from ablate.runs.code_digest import Code
from ablate.runs.files import read_json
from ablate.runs.key import run_key
from ablate.runs.manifest import log_look, read_manifest

RMS = "ablate.model.norm.RMSNorm"  # which attention may use, too
SCALE = "ablate.model.norm.ScaleNorm"
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


@pytest.fixture
def edit(monkeypatch):
    """Makes a definition another one, for the cells that use it, as an edit would; or all as they are."""
    real = ablate.runs.key.code_of

    def edited(name):
        def code_of(config, user_code=None):
            code = real(config, user_code)
            if name not in code.definitions:
                return code
            return Code(f"{code.content}, {name} edited", code.definitions | {name: "edited"})

        monkeypatch.setattr("ablate.runs.key.code_of", code_of)

    return edited


def test_a_changed_definition_trains_its_cells_again_and_says_so(plan, edit):
    finish(plan("norm=ln,scale", "seeds=2"))
    edit(SCALE)
    again = plan("norm=ln,scale", "seeds=2")
    assert {path.split("-")[0] for path in again.todo} == {"scale"} and len(again.todo) == 2
    assert f"2 runs of these configurations were trained with other code ({SCALE}); trained again" in notes_of(again)
    edit("ablate.training.trainer.Trainer")
    assert len(plan("norm=ln,scale", "seeds=2").todo) == 4
    edit(None)
    assert notes_of(plan("norm=ln,scale", "seeds=2")) == "", "nothing is missing"


def test_other_versions_are_named(plan, monkeypatch):
    [run] = finish(plan("norm=rms", "seeds=1"))
    version = read_json(run.provenance_file)["versions"]["torch"]
    monkeypatch.setattr("torch.__version__", "9.9")
    note = f"1 run of these configurations was trained with torch {version} (now 9.9); trained again"
    assert note in notes_of(plan("norm=rms", "seeds=1"))


def test_changed_data_are_named(plan, text, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(text.read_text())
    words = [f"data.path={file}", "norm=ln,rms", "seeds=1"]
    finish(plan(*words, "study=mine"))
    finish(plan(*words))
    file.write_text(text.read_text() + "one more line")
    with pytest.raises(PlanError, match=r"mine holds 2 other configurations; .* on the same data"):
        plan(*words, "study=mine")
    note = "2 runs of these configurations were trained before the data changed; trained again"
    assert note in notes_of(plan(*words))
    assert notes_of(plan("norm=ln,rms", "seeds=1")) == "", "another file is no changed one"


def test_a_study_of_other_configurations_is_not_replaced(plan):
    finish(plan("norm=ln,rms", "study=mine", "seeds=1"))
    with pytest.raises(PlanError, match=re.escape("study: mine holds 2 other configurations; add to its")):
        plan("ffn=gelu,swiglu", "study=mine")


def test_none_shares_with_no_other_study_and_still_resumes(plan):
    [shared] = finish(plan("norm=rms", "seeds=1"))
    private = plan("norm=rms", "seeds=1", "study=mine", "reuse=none")
    [path] = private.todo
    assert path != shared.path
    write_plan(private)
    assert train_runs(private) == ["done"], "its worker finds the same key"
    [cell] = private.manifest.cells
    assert path.endswith(run_key(cell.config, 0, cell.task))
    assert plan("norm=rms", "seeds=1", "study=mine", "reuse=none").todo == []
    assert len(plan("norm=rms", "seeds=1", "study=other", "reuse=none").todo) == 1
    assert len(plan("norm=rms", "seeds=1", "reuse=none").todo) == 1
    back = plan("norm=rms", "seeds=2", "study=mine")
    assert len(back.todo) == 1 and back.manifest.runs[0].path == shared.path
    assert "reuse=none" not in notes_of(back), "the shared run is there"


def test_a_command_that_ends_later_brings_no_second_run_of_a_seed_into_the_study(plan, edit):
    first = plan("norm=ln,rms", "seeds=2")
    finish(first)
    edit(RMS)
    finish(plan("norm=ln,rms", "seeds=2"))
    log_look(first.results, first.manifest, "2025-01-02")
    runs = read_manifest(first.results, first.manifest.study).runs
    assert len({(run.cell, run.seed) for run in runs}) == len(runs) == 4
