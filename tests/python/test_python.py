"""What Python calls: a study planned and run, and who is told about it."""

import contextlib

import pytest
from conftest import latest
from one_run import here

import ablate
from ablate import api
from ablate.config.errors import PlanError, Refused


class Listener:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def remark(self, text: str) -> None:
        self.events.append(text)

    @contextlib.contextmanager
    def training(self, plan):
        self.events.append(f"{len(plan.todo)} to train")
        yield
        self.events.append("trained")

    def ended(self, plan, study, seconds) -> None:
        self.events.append(f"{len(study.runs)} runs, {'trained' if seconds is not None else 'nothing to train'}")


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(api, "run_plan", here)


def test_a_study_is_what_was_planned_as_tables_and_prints_nothing(small, in_this_process, capfd):
    words, listener = latest("norm=ln,rms", "seeds=1", *small), Listener()
    plan = ablate.plan(*words)
    assert len(plan.todo) == 2 and not plan.results.exists()
    study = ablate.run(*words, reporter=listener)
    assert list(study.runs["status"]) == ["done", "done"] and study.runs["test/loss"].notna().all()
    assert {"step", "val/loss"} <= {*study.curves}
    assert listener.events == ["2 to train", "trained", "2 runs, trained"]
    assert ablate.plan(*words).todo == [] and capfd.readouterr() == ("", "")
    again = Listener()
    assert len(ablate.run(*words, reporter=again).runs) == 2 and again.events == ["2 runs, nothing to train"]


def test_a_mistake_is_raised_before_anything_is_written(small, tmp_path):
    for words in (["nrom=ln"], ["norm=ln,rmss"], ["hydra/launcher=nowhere"], ["hydra.mode=RUN"]):
        with pytest.raises(PlanError) as refused:
            ablate.run(*small, *words)
        [problem] = refused.value.problems
        assert words[0].partition("=")[0] in str(problem)
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_cannot_be_written_is_refused(small, in_this_process, monkeypatch):
    def full(*_) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(api, "renew_manifest", full)
    with pytest.raises(Refused, match=r"results_dir: .*results cannot be written \(Permission denied"):
        ablate.run("seeds=1", *small)


def test_only_what_there_is_is_offered():
    assert {"load", "plan", "run"} <= {*ablate.__all__}
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = ablate.rum
