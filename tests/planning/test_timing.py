"""timing=isolated: runs of their own, one at a time and in turn, and what is refused because it could not hold."""

import pytest
from conftest import latest
from one_run import sweep_here
from planned_rounds import finish

import ablate
from ablate import evidence
from ablate.config.errors import PlanError
from ablate.runs.folder import Run
from ablate.runs.key import run_key
from ablate.runs.study import load_study
from analysis.case import further_tables

TIMED = "timing=isolated"
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def test_the_cells_of_a_seed_are_trained_in_turn_and_every_other_seed_backwards(plan):
    planned = plan("norm=ln,rms,none", "seeds=[4,7,9]", TIMED)
    order = [f"{each.cell.label} {each.seed}" for each in planned.orders()]
    assert order == ["ln 4", "rms 4", "none 4", "none 7", "rms 7", "ln 7", "ln 9", "rms 9", "none 9"]
    assert all(cell.config.train.parallel == 1 for cell in planned.manifest.cells)
    assert planned.manifest.timing == "isolated" and plan("norm=ln,rms").manifest.timing is None


def test_timed_runs_are_those_of_one_study_and_of_no_other(plan):
    shared = plan("norm=ln,rms")
    timed = plan("norm=ln,rms", TIMED)
    assert shared.manifest.study != timed.manifest.study
    paths = {run.path for run in timed.manifest.runs}
    for other in (shared, plan("norm=ln,rms", TIMED, "study=other"), plan("norm=ln,rms,none", TIMED)):
        assert paths.isdisjoint(run.path for run in other.manifest.runs)
    config = shared.manifest.cells[0].config
    assert run_key(config, 0, "f") == run_key(config.with_value("study", "x"), 0, "f")


@pytest.mark.parametrize(
    ("words", "start", "part"),
    [
        ([TIMED, "train.parallel=2"], "train.parallel: ", "one run at a time"),
        ([TIMED, "data.path=null"], "data.path: ", ""),  # the missing file alone: nobody wrote train.parallel
        (["timing=shared,isolated"], "timing", "whole study"),
        (["timing=alone"], "timing: ", "must be shared or isolated"),
    ],
)
def test_what_could_not_hold_is_refused(refused, words, start, part):
    [line] = refused(*words)
    assert line.startswith(start) and part in line


def test_a_launcher_cannot_time_runs_alone(small):
    with pytest.raises(PlanError, match=r"timing: .*hydra/launcher"):
        ablate.plan(*latest(*small, TIMED, "hydra/launcher=basic"))


def test_cells_that_come_later_are_not_timed_in_turn(plan, refused):
    finish(plan("norm=ln,rms", "study=mine", "seeds=3", TIMED))
    assert plan("norm=ln,rms", "study=mine", "seeds=5", TIMED).todo, "further seeds are"
    for words in (["norm=ln,rms,none", TIMED], ["norm=ln,rms"]):
        [line] = refused(*words, "study=mine")
        assert line.startswith("study: ") and "another name" in line


def test_a_timed_sweep_compares_speed_and_leaves_losses_as_they_are(small, tmp_path, monkeypatch, capsys):
    words = [*small, "norm=ln,rms", "seeds=2", "train.parallel=1"]
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))  # or sweeps of other tests would be waited for
    assert sweep_here(*words) == 0 and "seconds of a training step" not in capsys.readouterr().out
    assert sweep_here(*words, TIMED) == 0
    done = capsys.readouterr()
    assert "seconds of a training step" in done.out
    assert done.err.count("timing=isolated: one run at a time") == 1
    results = tmp_path / "results"
    loaded = [load_study(results, file.parent.name) for file in results.glob("studies/*/manifest.json")]
    shared, timed = sorted(loaded, key=lambda study: study.manifest.timing or "")
    losses = [study.runs.set_index(["label", "seed"])["test/loss"].to_dict() for study in (shared, timed)]
    assert losses[0] == losses[1] and not timed.notes
    assert "train/step_seconds" not in shared.runs and (timed.runs["train/step_seconds"] > 0).all()
    ended = [Run(results, path).result() for path in timed.runs["path"]]
    assert {run.timing for run in ended} == {"isolated"}
    assert len({run.sitting for run in ended}) == 1
    assert evidence.speed(shared).empty and set(evidence.speed(timed)["metric"]) == {"train/step_seconds"}
    assert "speed" in further_tables(timed)
