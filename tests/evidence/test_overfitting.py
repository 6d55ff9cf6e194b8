"""Divergence is about training: what ends a run, what is only noted of it, and that it is said wherever results are."""

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest
from fake_studies import study_of
from one_run import train, write_plan
from test_weight_averaging import trainer

from ablate import evidence
from ablate.cli.summary import summary
from ablate.results.records import Overfits
from ablate.results.study import load_study
from ablate.training.divergence import Diverged, check_divergence, overfits
from ablate.training.trainer import Interrupted
from analysis.case import case_of
from analysis.writing import tables
from analysis.writing.methods import markdown


def losses(run: Any, values: list[float], first: float = 4.0, steps: int = 400) -> int:
    """Judge training losses that were logged every ten steps; how many were before the run was called diverged."""
    run.loop = dataclasses.replace(run.loop, steps=steps, log_every=10)
    run.progress.first_loss = first
    for i, value in enumerate(values):
        try:
            check_divergence({"step": 10 * (i + 1), "train/loss": value}, run.progress, run.loop)
        except Diverged:
            return i
    return len(values)


def test_a_run_that_memorises_keeps_its_endpoint_and_says_so(plan: Any, untried: None, tmp_path: Path) -> None:
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
    assert "overfits: 1 run" in said and "0 diverged" in said


@pytest.mark.parametrize(
    ("values", "before"),
    [
        ([5.0] * 40, 3),  # a tenth of 400 steps
        ([9.0, 9.0, 9.0, 3.0] * 10, 40),  # spikes from which it comes back
        ([3.0] * 38 + [5.0, 5.0], 39),  # the last two of the run
        ([3.0] * 39 + [5.0], 40),  # a single batch
        ([4.0, 4.3, 3.8, 4.2] * 10, 40),  # stuck at the start, which is no divergence
        ([3.0, math.nan], 1),
    ],
)
def test_a_training_loss_that_stays_above_its_first_value_diverges(small, tmp_path, values, before):
    assert losses(trainer(small, tmp_path), values) == before


def test_a_validation_loss_ends_no_run_unless_it_is_no_number(small: list[str], tmp_path: Path) -> None:
    run = trainer(small, tmp_path)
    for step in range(0, 40, 5):
        check_divergence({"step": step, "val/loss": 4.0 + step}, run.progress, run.loop)
    with pytest.raises(Diverged, match="val/loss is inf at step 40"):
        check_divergence({"step": 40, "val/loss": math.inf}, run.progress, run.loop)


def test_the_first_training_loss_survives_a_checkpoint(small: list[str], tmp_path: Path) -> None:
    run = trainer(small, tmp_path)
    stops = iter([False] * 6 + [True])
    with pytest.raises(Interrupted):
        run.train(lambda: next(stops))
    first = run.progress.first_loss
    assert first == pytest.approx(run.run.metrics()[0][0]["val/loss"], rel=0.1)
    again = trainer(small, tmp_path)
    assert again.progress.step == 6 and again.progress.first_loss == first


def test_a_real_run_whose_training_loss_climbs_diverges(plan: Any, untried: None) -> None:
    planned = plan("optim.lr=5", "train.steps=40", "train.log_every=5", "seeds=1")
    write_plan(planned)
    status, run = train(planned)
    result = run.result()
    assert status == "diverged" and result is not None and result.error.message.startswith("train/loss")


def curve(validation: list[float], training: list[float]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"step": 0, "val/loss": validation[0]}]
    for i, loss in enumerate(training):
        rows.append({"step": i + 1, "train/loss": loss, "val/loss": validation[i + 1]})
    return rows


@pytest.mark.parametrize(
    ("validation", "training", "found"),
    [
        ([4.0, 3.0, 3.1, 3.6], [3.9, 3.0, 2.0], {"times": 1.2, "step": 1}),
        ([4.0, 4.4, 4.8, 5.0], [3.9, 3.0, 2.0], {"times": 1.25, "step": 0}),
        ([4.0, 3.0, 2.9, 2.94], [3.9, 3.0, 2.0], None),  # less than 2 %
        ([4.0, 3.0, 3.1, 3.6], [3.0, 3.2, 3.6], None),  # the training loss rises, too
        ([4.0, 3.0, 2.0, 1.9], [3.9, 3.0, 2.0], None),
    ],
)
def test_overfitting_is_a_rising_validation_loss_over_a_falling_training_loss(validation, training, found):
    assert overfits(curve(validation, training)) == (found and Overfits(**found))
    assert overfits([]) is None and overfits([{"step": 0, "val/loss": None}, {"step": 5, "train/loss": 1.0}]) is None


def test_overfitting_stands_in_summary_tables_and_methods() -> None:
    study = study_of({"norm": ["ln", "rms"]})
    study.runs.loc[:1, "overfits"] = 1.31
    line = "overfits: 2 runs: ln (2): val/loss ends up to 1.31 times its lowest while train/loss fell"
    assert line in evidence.overfitting(study) and line in summary(study)
    assert any(line in note for note in tables.remarks(study))
    assert "Overfitting was seen in 2 runs: LayerNorm (2)" in markdown(case_of(study, Path()))
    assert evidence.cells(study)["diverged"].sum() == 0
