"""What Python calls: keywords as words, a study planned and run, who is told about it, and what a notebook shows."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pandas
import pytest
import torch
from conftest import ROOT, SHAPE, STEPS
from one_run import here

import ablate
from ablate import api, evidence
from ablate.cli.preview import preview
from ablate.cli.summary import summary
from ablate.config.errors import PlanError, Refused
from ablate.python import Study, words_of
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

WORDS = ("norm=ln,rms", "ffn=mlp,swiglu")
pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    """Runs are trained without further processes."""
    monkeypatch.setattr(api, "run_plan", here)


@pytest.fixture(scope="module")
def study(text, tmp_path_factory) -> Iterator[Study]:
    folder = tmp_path_factory.mktemp("shown") / "results"
    small = [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={folder}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "run_plan", here)
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        yield ablate.run(*WORDS, *small, seeds=2)


@pytest.mark.usefixtures("in_this_process")
def test_a_reporter_is_told_when_training_begins_and_ends(small, capfd):
    reporter = MagicMock()
    ablate.run("norm=ln", "seeds=1", *small, reporter=reporter)
    assert [call[0] for call in reporter.method_calls] == ["training", "ended"]
    assert len(reporter.training.call_args.args[0].todo) == 1
    assert reporter.training.return_value.__exit__.called
    _, study, seconds = reporter.ended.call_args.args
    assert len(study.runs) == 1
    assert seconds > 0
    again = MagicMock()
    ablate.run("norm=ln", "seeds=1", *small, reporter=again)
    assert [call[0] for call in again.method_calls] == ["ended"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("word", ["nrom=ln", "norm=ln,rmss", "hydra/launcher=nowhere", "hydra.mode=RUN"])
def test_a_mistake_is_raised_before_anything_is_written(word, small, tmp_path):
    with pytest.raises(PlanError) as refused:
        ablate.run(*small[-3:], word)  # its data, and where results would go
    [problem] = refused.value.problems
    assert word.partition("=")[0] in str(problem)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_is_refused_where_a_study_is_wanted(small, tmp_path):
    with pytest.raises(ablate.PlanError, match="dry_run: trains nothing"):
        ablate.run("norm=ln", *small, dry_run=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("in_this_process")
def test_a_study_that_cannot_be_written_is_refused(small, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(api, "renew_manifest", refuse)
    with pytest.raises(Refused, match=r"results_dir: .*results cannot be written \(Permission denied"):
        ablate.run("seeds=1", *small)


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = ablate.rum


def test_a_plan_shows_the_table_of_a_dry_run(small, tmp_path):
    plan = ablate.plan(*WORDS, *small, seeds=2)
    assert repr(plan) == preview(plan)
    assert not plan.results.exists()


@pytest.mark.parametrize("table", ["runs", "curves"])
def test_a_table_has_a_column_for_each_factor(table, study):
    assert study.runs["test/loss"].notna().all() and {"step", "val/loss"} <= {*study.curves}
    rows = getattr(study, table)[["norm", "ffn", "label"]].drop_duplicates()
    assert len(rows) == 4
    assert (rows["label"] == rows["norm"] + " + " + rows["ffn"]).all()


def test_an_effect_has_the_levels_that_it_compares(study):
    effects = study.effects.set_index("label")[["norm", "ffn"]].fillna("")
    assert list(effects.loc["norm: rms − ln"]) == ["rms", ""]
    assert list(effects.loc["rms + swiglu against ln + mlp"]) == ["rms", "swiglu"]
    assert list(effects.loc["norm × ffn"]) == ["", ""]


def test_effects_are_those_of_the_evidence_the_verdict_first(study):
    plain = evidence.effects(study)
    pandas.testing.assert_frame_equal(study.effects[list(plain)], plain)
    assert [*study.effects][:6] == ["label", "mean", "low", "high", "n", "verdict"]


def test_a_study_shows_its_summary(study):
    assert repr(study) == summary(study, study.results)
    assert "rms is not told apart from ln" in repr(study)


def test_a_run_of_a_study_has_its_model(study):
    run = study.run("rms + mlp", 1)
    assert run.config.seeds == [1]
    assert run.result.status == "done"
    assert sum(weight.numel() for weight in run.model().parameters()) == run.result.params


def test_a_study_is_loaded_by_its_folder(study):
    loaded = ablate.load(study.results / "studies" / study.manifest.study, user="my_package")
    run = loaded.run("rms + mlp", 1)
    assert run.run.path == study.run("rms + mlp", 1).run.path
    assert run.config.user == ["my_package"]
    assert loaded.run("rms + mlp", 1, []).config.user == []


@pytest.mark.parametrize(
    ("label", "seed", "message"), [("rms + mpl", 1, r"did you mean rms \+ mlp"), ("rms + mlp", 5, "there are 0, 1")]
)
def test_a_run_that_there_is_not_is_answered(label, seed, message, study):
    with pytest.raises(KeyError, match=message):
        study.run(label, seed)


def test_a_model_that_is_built_has_the_weights_of_step_0(small, tmp_path):
    [cell] = ablate.plan("norm=rms", "ffn=swiglu", *small, seeds=1).manifest.cells
    expected = Trainer(Run(tmp_path / "at", "cell/run"), cell.config, 3).model.state_dict()
    with torch.device("meta"):
        model = ablate.build("norm=rms", *small[:-1], ffn="swiglu", seed=3, results_dir="/proc/none")
    torch.testing.assert_close(dict(model.state_dict()), dict(expected), rtol=0, atol=0)
    assert model(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 256)


def test_building_a_model_leaves_the_callers_draws_alone(small):
    before = torch.get_rng_state()
    ablate.build(*small)
    assert torch.equal(torch.get_rng_state(), before)


# Words and keys that are of a study, and how `build` answers.
NO_MODEL = [
    ("norm=ln,rms", {}, "norm: takes one value here, since only one model is made"),
    ("seeds=5", {}, "seeds is given twice"),
    ("-m", {}, "-m: is an option of the command line; leave -m out"),
    ("norm=ln", {"seed": [1, 2]}, "^seed: must be a whole number"),
    ("norm=ln", {"seed": -1}, "^seed: must be a whole number"),
]


@pytest.mark.parametrize(("word", "keys", "message"), NO_MODEL)
def test_one_model_is_built_of_what_describes_one(word, keys, message, small):
    with pytest.raises(PlanError, match=message):
        ablate.build(word, *small, **keys)


@pytest.mark.usefixtures("in_this_process")
def test_a_notebook_shows_progress_as_a_line_that_is_replaced(small, monkeypatch):
    handle = MagicMock()
    display = SimpleNamespace(display=MagicMock(return_value=handle))
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    ablate.run("norm=ln", *small, seeds=1)
    assert display.display.call_count == 1
    assert handle.update.call_args.args == ({"text/plain": "1 run: 1 done"},)


def test_a_process_that_has_loaded_ipython_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not ablate.python.in_notebook()


def test_committed_tables_are_a_study_without_runs():
    study = ablate.load(ROOT / "experiments" / "results" / "rms_norm")
    assert set(study.manifest.factors) <= set(study.curves) & set(study.effects)
    with pytest.raises(FileNotFoundError, match="kept tables"):
        study.run(study.manifest.cells[0].id, study.manifest.seeds[0])


WORDS_OF = [
    ({"norm": ["ln", "rms"]}, "norm=ln,rms"),
    ({"optim.lr": [np.float64(1e-3), np.float64(3e-3)]}, "optim.lr=0.001,0.003"),
    ({"model.layers": range(1, 4)}, "model.layers=1,2,3"),
    ({"optim.betas": [(0.9, 0.95), (0.9, 0.99)]}, "optim.betas=[0.9,0.95],[0.9,0.99]"),
    ({"seeds": [3, 7]}, "seeds=[3,7]"),  # whose value is a list
    ({"study": "true"}, "study='true'"),
    ({"data.path": Path("/a folder/text,1.txt")}, "data.path='/a folder/text,1.txt'"),
]


@pytest.mark.parametrize(("keys", "word"), WORDS_OF)
def test_a_keyword_is_a_word_and_a_list_sweeps(keys, word):
    assert words_of([], keys) == [word]


def test_all_that_cannot_be_a_word_is_said_at_once():
    with pytest.raises(PlanError) as refused:
        words_of(["seeds=1", ["norm=ln"]], {"norm": [], "optim.lr": object(), "data.path": {"a": b"x"}})  # type: ignore[list-item]
    assert [problem.key for problem in refused.value.problems] == ["", "norm", "optim.lr", "data.path"]
