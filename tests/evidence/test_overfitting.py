"""Divergence is about training: what ends a run, what is only noted of it, and that it is said wherever results are."""

import random

from fake_studies import study_of
from one_run import train, write_plan

from ablate import evidence
from ablate.cli.summary import summary
from ablate.runs.records import Overfits
from ablate.runs.study import load_study
from analysis.writing import tables


def test_a_run_that_memorises_keeps_its_endpoint_and_says_so(plan, untried, tmp_path):
    pick, noise = random.Random(0), tmp_path / "noise.txt"
    noise.write_text("".join(chr(pick.randrange(35, 115)) for _ in range(1500)))
    shape = ["model.dim=32", "train.batch_size=16", "train.steps=150", "train.eval_every=25", "train.log_every=25"]
    planned = plan(f"data.path={noise}", "data.tokenizer=char", *shape, "optim.lr=1e-2", "seeds=1")
    write_plan(planned)
    status, run = train(planned)
    rows = [row for row in run.metrics()[0] if "val/loss" in row]
    assert rows[-1]["val/loss"] > 1.1 * rows[0]["val/loss"] and rows[-1]["train/loss"] < 3, "it memorises"
    result = run.result()
    assert status == "done" and result is not None and result.final["test/loss"] > 4
    lowest = min(rows, key=lambda row: row["val/loss"])
    times = round(rows[-1]["val/loss"] / lowest["val/loss"], 4)
    assert result.overfits == Overfits(times=times, step=lowest["step"])
    said = summary(load_study(planned.results, planned.manifest.study), planned.results)
    assert "overfits: 1 run" in said and "1 run: 1 done" in said


def test_overfitting_stands_in_summary_and_tables():
    study = study_of({"norm": ["ln", "rms"]})
    study.runs.loc[:1, "overfits"] = 1.31
    line = "overfits: 2 runs: ln (2): val/loss ends up to 1.31 times its lowest while train/loss fell"
    assert line in evidence.overfitting(study) and line in summary(study)
    assert any(line in note for note in tables.remarks(study))
    assert evidence.cells(study)["diverged"].sum() == 0
