"""Which tasks are solved or not: a key of a task's YAML, which plans keep and no run's key depends on."""

from pathlib import Path

import pytest

from ablate.config.errors import PlanError
from ablate.planning.plan import check_study, plan_study
from ablate.runs.records import Manifest

ASKED = ("norm=ln,rms", "scale=tiny")
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def planned(folder: Path, *words: str, config_dir: str | None = None) -> Manifest:
    return plan_study((*ASKED, f"results_dir={folder}", *words), config_dir).manifest


def test_the_plan_of_a_recall_task_is_compared_by_the_share_solved(tmp_path: Path) -> None:
    manifest = planned(tmp_path, "data=mqar")
    (task,) = manifest.tasks.values()
    assert list(task.metrics)[:2] == ["solved", "accuracy"] and task.solved_at == 0.99
    assert task.shares[0] == "solved" and task.beside[0] == "accuracy" and task.measured == "accuracy"
    without = planned(tmp_path, "data=mqar", "data.solved_at=null")
    assert without.runs == manifest.runs and next(iter(without.tasks.values())).measured == "accuracy"


@pytest.mark.parametrize("at", ["0", "1.5", "'\"0.9\"'", "[1]", "true"])
def test_a_bar_is_a_share(at: str) -> None:
    with pytest.raises(PlanError, match=r"data\.solved_at: must be above 0 and at most 1, not"):
        check_study((*ASKED, "data=mqar", f"data.solved_at={at}"), None)


def test_a_bar_is_of_a_first_metric_that_is_a_share() -> None:
    with pytest.raises(PlanError, match=r"data\.solved_at: is for shares, which loss, its first metric, is not"):
        check_study((*ASKED, "+data.solved_at=0.5"), None)


def test_cells_of_one_task_have_one_bar() -> None:
    with pytest.raises(
        PlanError, match=r"data\.solved_at: is 0\.9 and 0\.8 in configurations of one task; write one for all"
    ):
        check_study((*ASKED, "data=mqar", "data.solved_at=0.9,0.8", "zip=[norm,data.solved_at]"), None)
