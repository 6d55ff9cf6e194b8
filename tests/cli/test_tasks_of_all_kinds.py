"""Studies of tasks that are no language modelling: accuracies, endless data, tasks that every variant solves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_studies import TASK, fabricate

from ablate import evidence
from ablate.cli.summary import summary
from ablate.results.study import Study, load_study
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


def better(levels: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.3 * (levels["ffn"] == "swiglu") + 0.01 * ((seed * 7 + len(levels["ffn"])) % 5)


# Scores, whether they are paired, the verdict, and how its note begins.
CASES: dict[str, tuple[Callable[[dict[str, Any], int], float], bool, str, str]] = {
    "higher": (better, True, "better", ""),
    "lower": (lambda levels, seed: 1 - better(levels, seed), True, "worse", ""),
    "all solve it": (lambda *_: 1.0, True, "undecided", "equal in every seed"),
    "none solves it": (lambda *_: 0.0, False, "undecided", "equal in every seed"),
    "one solves it": (lambda levels, seed: float(levels["ffn"] == "mlp"), True, "undecided", "no spread"),
    "one solves it, the other sometimes": (
        lambda levels, seed: 1.0 if levels["ffn"] == "swiglu" else better(levels, seed),
        *(True, "better", ""),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_accuracies_have_verdicts_where_seeds_differ(tmp_path: Path, case: str) -> None:
    score, paired, verdict, note = CASES[case]
    study = made(tmp_path, score, batches=lambda levels: "b" if paired else levels["ffn"])
    assert evidence.endpoint(study.manifest) == "test/accuracy"
    [row] = evidence.effects(study).itertuples()
    assert row.verdict == verdict and row.note.startswith(note) and (row.low > 0 or verdict != "better")
    files = tables.write(case_of(study, tmp_path), tmp_path)
    shown = summary(study, tmp_path) + "".join(file.read_text() for file in files if file.suffix == ".md")
    assert "nan" not in shown and "test/accuracy, last step\n" in shown  # yardsticks are losses
    assert "800 steps (fresh data)" in shown and ("better (higher accuracy)" in shown) == (verdict == "better")
    if note == "equal in every seed":
        assert evidence.noise(evidence.effects(study)) == [] and "inf" not in summary(study, tmp_path)


def test_a_loss_is_per_what_the_task_predicts(tmp_path: Path) -> None:
    classes = RECALL | {"metrics": {"loss": "min", "accuracy": "max"}}
    assert "test/loss, nats per class, last step" in summary(made(tmp_path, better, tasks={"f0": classes}), tmp_path)
