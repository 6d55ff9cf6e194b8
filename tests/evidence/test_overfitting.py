"""What is noted of a run whose validation loss rises while its training loss falls is said wherever results are."""

from fake_studies import study_of
from one_run import train, write_plan

from ablate import evidence
from ablate.cli.summary import summary
from ablate.runs.records import Overfits
from ablate.runs.study import load_study
from analysis.writing import tables


def test_overfitting_stands_in_summary_and_tables():
    study = study_of({"norm": ["ln", "rms"]})
    study.runs.loc[:1, "overfits"] = 1.31
    line = "overfits: 2 runs: ln (2): val/loss ends up to 1.31 times its lowest while train/loss fell"
    assert line in evidence.overfitting(study) and line in summary(study)
    assert any(line in note for note in tables.remarks(study))
    assert evidence.cells(study)["diverged"].sum() == 0


def test_what_a_run_notes_of_its_losses_is_in_its_result_and_in_the_summary(plan, untried, monkeypatch):
    noted = Overfits(times=1.3, step=3)
    monkeypatch.setattr("ablate.execution.train_run.overfits", lambda rows: noted if rows[-1]["step"] == 6 else None)
    planned = plan("seeds=1")
    write_plan(planned)
    status, run = train(planned)
    assert status == "done" and run.result().overfits == noted
    assert "overfits: 1 run" in summary(load_study(planned.results, planned.manifest.study), planned.results)
