"""Studies of tasks that are no language modelling: accuracies, endless data, tasks that every variant solves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_studies import TASK, fabricate

from ablate import evidence
from ablate.cli.summary import summary
from ablate.results.study import Study, load_study
from analysis import figures
from analysis.case import case_of
from analysis.writing import tables

RECALL = TASK | {
    "title": "recall of 16 pairs",
    "kind": "lm",
    "token": "class",
    "metrics": {"accuracy": "max", "loss": "min"},
    "yardsticks": {"chance": 0.0625},
    "train_tokens": None,
}
FFNS: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"]}


def made(results: Path, score: Callable[[dict[str, Any], int], float], **options: Any) -> Study:
    options = {"seeds": range(5), "tasks": {"f0": RECALL}} | options
    return load_study(results, fabricate(results, FFNS, score=score, **options))


def everything_said(study: Study, folder: Path) -> str:
    """The summary and the tables, written."""
    case = case_of(study, folder)
    assert figures.tables(case)
    files = tables.write(case, folder)
    assert all(file.stat().st_size for file in files)
    return summary(study, folder) + "".join(file.read_text() for file in files if file.suffix == ".md")


def better(levels: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.3 * (levels["ffn"] == "swiglu") + 0.01 * ((seed * 7 + len(levels["ffn"])) % 5)


def test_more_accuracy_is_better(tmp_path: Path) -> None:
    study = made(tmp_path, better)
    assert evidence.endpoint(study.manifest) == "test/accuracy"
    [row] = evidence.effects(study).itertuples()
    assert row.verdict == "better" and row.mean == pytest.approx(0.3, abs=0.05) and row.higher == 5
    said = everything_said(study, tmp_path)
    assert "better (higher accuracy)" in said and "test/accuracy, last step\n" in said  # yardsticks are losses
    worse = made(tmp_path / "other", lambda levels, seed: 1 - better(levels, seed))
    assert [row.verdict for row in evidence.effects(worse).itertuples()] == ["worse"]


def test_data_that_never_repeat_have_no_passes(tmp_path: Path) -> None:
    said = summary(made(tmp_path, better), tmp_path)
    assert "800 steps (fresh data)" in said and "pass" not in said


def test_a_loss_is_per_what_the_task_predicts(tmp_path: Path) -> None:
    classes = RECALL | {"metrics": {"loss": "min", "accuracy": "max"}}
    assert "test/loss, nats per class, last step" in summary(made(tmp_path, better, tasks={"f0": classes}), tmp_path)


@pytest.mark.parametrize(("score", "paired"), [(1.0, True), (0.0, False)])
def test_a_task_that_all_solve_or_none_decides_nothing(tmp_path: Path, score: float, paired: bool) -> None:
    study = made(tmp_path, lambda *_: score, batches=lambda levels: "b" if paired else levels["ffn"])
    [row] = evidence.effects(study).itertuples()
    assert (row.verdict, row.note, row.mean) == ("undecided", "equal in every seed", 0)
    said = everything_said(study, tmp_path)
    assert "undecided: equal in every seed" in said
    general = ("P(A>B): how often the level is better", "Collapses at most: the largest share")
    told = [line for line in said.splitlines() if not line.startswith(general)]
    assert not any(word in line for line in told for word in ("nan", "better", "worse", "inf"))
    assert evidence.noise(evidence.effects(study)) == []


@pytest.mark.parametrize("best", ["mlp", "swiglu"])
def test_an_exact_difference_without_spread_has_no_interval(tmp_path: Path, best: str) -> None:
    study = made(tmp_path, lambda levels, seed: float(levels["ffn"] == best))
    [row] = evidence.effects(study).itertuples()
    assert row.verdict == "undecided" and row.note.startswith("no spread") and abs(row.mean) == 1
    assert "nan" not in everything_said(study, tmp_path)


def test_one_side_solved_is_compared_all_the_same(tmp_path: Path) -> None:
    study = made(tmp_path, lambda levels, seed: 1.0 if levels["ffn"] == "swiglu" else better(levels, seed))
    [row] = evidence.effects(study).itertuples()
    assert row.verdict == "better" and row.low > 0
    assert "nan" not in everything_said(study, tmp_path)
