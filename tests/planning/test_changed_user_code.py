"""Runs of user code that has changed: planned again, refused, or trained as edited; and runs of an earlier format."""

import os
import py_compile
import sys
from pathlib import Path

import pytest
from conftest import run_fresh
from one_run import train, train_runs, write_plan

from ablate.config.errors import BadComponent
from ablate.planning.plan import Plan
from ablate.runs.files import read_json
from ablate.training.load import load_run

NORMS = """
from ablate.model.norm import RMSNorm
from {helper} import SCALE


class Half(RMSNorm):
    def forward(self, x, mask=None):
        return SCALE * super().forward(x, mask)
"""
VARIANT = "# half\n_target_: {package}.norms.Half\n_partial_: true\neps: 1.0e-5\n"
FEW = ("norm=half", "seeds=1", "train.parallel=1")
pytestmark = pytest.mark.usefixtures("uncounted")


class UserCode:
    """A package with a norm, a helper beside it, and the words of a study with the norm."""

    def __init__(self, folder: Path):
        unique = folder.name.replace("-", "_")
        self.folder = folder
        self.package = f"pk_{unique}"
        self.helper = folder / f"helper_{unique}.py"
        self.norms = folder / self.package / "norms.py"
        self.norms.parent.mkdir()
        self.norms.write_text(NORMS.format(helper=self.helper.stem))
        self.helper.write_text("SCALE = 0.5\n")
        self.conf = folder / "conf"
        (self.conf / "norm").mkdir(parents=True)
        (self.conf / "norm" / "half.yaml").write_text(VARIANT.format(package=self.package))
        self.words = (*FEW, f"user=[{self.package}]")


@pytest.fixture
def code(tmp_path, monkeypatch) -> UserCode:
    monkeypatch.syspath_prepend(str(tmp_path))
    return UserCode(tmp_path)


def end(plan: Plan) -> None:
    """Train the runs of a plan in this process, which then forgets the user code."""
    write_plan(plan)
    assert train_runs(plan) == ["done"] * len(plan.todo)


def test_an_edited_helper_trains_the_cells_that_import_it_again_and_the_plan_names_it(plan, code):
    words = [word.replace("norm=half", "norm=rms,half") for word in code.words]
    first = plan(*words, "study=mine", config_dir=str(code.conf))
    end(first)
    code.helper.write_text("SCALE = 0.7\n")
    again = plan(*words, "study=mine", config_dir=str(code.conf))
    assert len(first.todo) == 2 and [path.split("-")[0] for path in again.todo] == ["half"]
    assert (
        f"1 run of these configurations was trained with other code ({code.helper.stem}); trained again" in again.notes
    )


def test_a_cell_of_user_code_records_what_it_imports(plan, code):
    """Also where its width is chosen, and where its task is built in."""
    words = [word.replace("norm=half", "norm=rms,half") for word in code.words]
    built_in, half = plan(*words, "match=params", config_dir=str(code.conf)).manifest.cells
    assert built_in.user_code is None
    assert list(half.user_code.packages) == [f"{code.package}/norms.py"]
    assert list(half.user_code.modules) == [code.helper.stem]
    assert half.user_code.ablate == ["ablate.model.norm.RMSNorm"]


def test_runs_of_an_earlier_format_are_named_in_one_line(plan, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ablate.runs.key.FORMAT", 1)
        earlier = plan("norm=ln,rms", "seeds=1", "train.steps=2", "study=mine")
        end(earlier)
    again = plan("norm=ln,rms", "seeds=1", "train.steps=2", "study=mine")
    assert len(again.todo) == 2 and not {*again.todo} & {*earlier.todo}
    assert "2 runs of these configurations were trained with other code" in "\n".join(again.notes)


@pytest.mark.usefixtures("checks_here")
def test_a_class_that_is_gone_is_named_when_its_run_is_loaded(plan, code):
    planned = plan(*code.words, config_dir=str(code.conf))
    end(planned)
    code.norms.write_text(code.norms.read_text().replace("class Half", "class Other"))
    for name in (code.package, f"{code.package}.norms"):
        sys.modules.pop(name, None)
    run = load_run(planned.results / "runs" / planned.todo[0], [code.package])
    with pytest.raises(BadComponent, match=rf"^'{code.package}.norms.Half' cannot be found \([^\n]*\)$"):
        run.model()


def test_a_module_that_training_alone_imports_fails_the_run_by_name(plan, code):
    (code.folder / f"late_{code.package}.py").write_text("TWO = 2\n")
    late = (
        f"        if 8 < self.steps:\n            import late_{code.package}\n        self.steps += 1\n        return"
    )
    source = code.norms.read_text().replace("        return", late)
    code.norms.write_text(source.replace("class Half(RMSNorm):", "class Half(RMSNorm):\n    steps = 0"))
    planned = plan(*code.words, "train.steps=30", config_dir=str(code.conf))
    write_plan(planned)
    status, run = train(planned)
    result = run.result()
    assert status == "failed" and result and result.error
    assert f"user code imported late_{code.package} in training, not in the plan" in result.error.message
    assert not run.checkpoint_file.exists()


def test_user_code_that_is_edited_after_the_plan_fails_the_run(plan, code):
    planned = plan(*code.words, config_dir=str(code.conf))
    write_plan(planned)
    code.helper.write_text("SCALE = 0.7\n")
    status, run = train(planned)
    assert status == "failed" and "changed after the plan was made" in run.result().error.message


@pytest.mark.slow
def test_a_helper_edited_to_the_same_size_at_the_same_time_runs_as_edited(code, small):
    """Python would go by the bytecode of before."""
    command = ["-m", "--config-dir", str(code.conf), *code.words, *small]
    losses = {}
    for text in ("SCALE = 0.5\n", "SCALE = 9.5\n"):
        code.helper.write_text(text)
        os.utime(code.helper, (10**9, 10**9))
        if not losses:
            py_compile.compile(str(code.helper), doraise=True)
        done = run_fresh("ablate", *command, cwd=code.folder, PYTHONPATH=str(code.folder))
        assert done.returncode == 0, done.stderr
        for file in (code.folder / "results" / "runs").glob("half*/*/result.json"):
            losses[file.parent.name] = read_json(file)["final"]["test/loss"]
    assert len(losses) == len(set(losses.values())) == 2
