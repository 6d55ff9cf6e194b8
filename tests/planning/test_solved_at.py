"""Which tasks are solved or not: what a plan keeps of them, and that no run's key depends on it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ablate.config.errors import PlanError
from ablate.planning.cells import describe_task, solved_at
from ablate.planning.plan import plan_study


def test_the_plan_of_a_recall_task_is_compared_by_the_share_solved(tmp_path: Path) -> None:
    asked = ("data=mqar", "norm=ln,rms", "scale=tiny", f"results_dir={tmp_path}")
    manifest = plan_study(asked).manifest
    (task,) = manifest.tasks.values()
    assert list(task.metrics)[:2] == ["solved", "accuracy"] and task.solved_at == 0.99
    assert task.shares[0] == "solved" and task.beside[0] == "accuracy" and task.measured == "accuracy"
    assert "solved_at" not in str(manifest.cells[0].config.as_json()), "nothing that a key is made of"


def test_a_task_of_ones_own_says_so_itself_and_a_loss_is_never_solved() -> None:
    fields = dict.fromkeys(("name", "title", "kind", "token", "train_tokens", "positions"))
    facts = {"shares": ["accuracy"], "units": {}, "beside": []}
    fields |= {"name": "own", "title": "", "kind": "lm", "token": "", "yardsticks": {}}
    own = SimpleNamespace(**fields, metrics={"accuracy": "max"}, metric_facts=lambda: facts, solved_at=0.9)
    assert solved_at(own) == 0.9 and describe_task(own).solved_at == 0.9
    for wrong in (
        SimpleNamespace(**vars(own) | {"metrics": {"loss": "min"}}),
        *(SimpleNamespace(**vars(own) | {"solved_at": at}) for at in (2, "0.9", [1], True)),
    ):
        with pytest.raises(PlanError, match="data: solved_at of own"):
            describe_task(wrong)
    assert solved_at(SimpleNamespace()) is None
