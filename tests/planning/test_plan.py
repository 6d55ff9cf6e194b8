"""Seeds, looks and confirmations of a study: planned for real, with results written by hand instead of trained."""

import math
import re
import sys
from typing import Any

import pytest
from composed import composed
from one_run import carry_out, write_plan
from planned_rounds import Score, write

from ablate.config.errors import PlanError
from ablate.config.groups import default_choices
from ablate.config.study_file import quoted
from ablate.execution.launcher import launch
from ablate.execution.pool import Order, line, order_of
from ablate.planning.plan import Plan, plan_study
from ablate.runs.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def by_seed(levels: dict[str, Any], lr: float, seed: int) -> float:
    return 2.0 + (seed + len(levels["norm"])) % 3 / 100


def finish(planned: Plan, score: Score = by_seed) -> int:
    """Write a result for every run that is to do, and conclude as after a sweep; the exit code."""
    write(planned, score)
    return carry_out(planned, None, lambda: planned)


def test_seeds_are_numbered_or_listed(plan):
    assert plan().manifest.seeds == [0, 1, 2, 3, 4]
    assert plan("seeds=3").manifest.seeds == [0, 1, 2]
    assert plan("seeds=[7,3]").manifest.seeds == [3, 7]


def test_settings_name_a_study_and_seeds_do_not(plan):
    name = plan("seeds=3").manifest.study
    assert plan("seeds=[7,3]").manifest.study == name
    assert plan("seeds=3", "model.layers=2").manifest.study != name


def test_a_run_reaches_its_worker_with_every_setting(plan):
    """Those of an optimiser's class, too, which the base schema does not know."""
    orders = plan("optim=sgd", "optim.momentum=0.0,0.9").orders()
    assert {order.cell.config.arguments("optim")["momentum"] for order in orders} == {0.0, 0.9}
    assert [order_of(line(order)) for order in orders] == orders


def test_a_results_folder_of_any_name_reaches_the_jobs(plan, tmp_path, monkeypatch):
    folder = tmp_path / "it's a\\'b\\" / "results"
    planned = plan("norm=ln,rms", f"results_dir={quoted(str(folder))}")
    assert planned.results == folder
    assert [order.results for order in planned.orders()] == [str(folder)] * 10
    assert all(order_of(line(order)) == order for order in planned.orders())
    seen: list[Order] = []
    monkeypatch.setattr("ablate.execution.launcher.run_alone", lambda order, number: seen.append(order) or "done")
    assert launch(["hydra/launcher=basic"], planned.orders()[:2]) is None and seen == planned.orders()[:2]


def test_what_is_done_is_not_to_do_and_failures_are_tried_again(plan):
    first = plan("norm=ln,rms", "seeds=2")
    assert len(first.todo) == 4 and finish(first) == 0
    assert plan("norm=ln,rms", "seeds=2").todo == []
    assert len(plan("norm=ln,rms,bn", "seeds=3").todo) == 5, "a new variant and a new seed, and nothing else"
    assert finish(plan("norm=ln,rms", "seeds=3"), lambda *_: None) == 1
    assert len(plan("norm=ln,rms", "seeds=3").todo) == 2
    assert finish(plan("norm=ln,rms", "seeds=3"), lambda *_: math.nan) == 0, "a diverged run is a result"
    assert plan("norm=ln,rms", "seeds=3").todo == []


def test_seeds_added_after_a_look_are_said_to_be_and_stay(plan, capsys):
    finish(plan("norm=ln,rms", "seeds=2"))
    assert "unadjusted" not in capsys.readouterr().out
    finish(plan("norm=ln,rms", "seeds=3"))
    assert "unadjusted" in capsys.readouterr().out
    fewer = plan("norm=ln,rms", "seeds=[0]")
    assert fewer.manifest.seeds == [0, 1, 2] and any("stay in the study" in note for note in fewer.notes)
    assert [look.seeds for look in fewer.manifest.looks] == [[0, 1], [0, 1, 2]]


def test_a_look_of_another_study_at_the_same_runs_counts(plan, capsys):
    finish(plan("norm=ln,rms", "seeds=2"))
    finish(plan("norm=ln,rms", "seeds=2", "study=again"))
    finish(plan("norm=ln,rms,bn", "seeds=2"))
    assert "unadjusted" not in capsys.readouterr().out
    for more in (["norm=ln,rms", "study=again"], ["norm=ln,rms,bn"]):
        finish(plan(*more, "seeds=4"))
        assert "unadjusted" in capsys.readouterr().out
    finish(plan("norm=ln,rms", "seeds=3", "study=own", "reuse=none"))  # the same runs, trained again
    assert "unadjusted: intervals do not allow for interim analyses at" in capsys.readouterr().out


def test_another_command_cannot_take_seeds_out_of_a_running_study(plan):
    running = plan("norm=ln,rms", "seeds=3")

    def trained_meanwhile(_):
        write_plan(plan("norm=ln,rms", "seeds=1"))
        write(running, by_seed)

    assert carry_out(running, trained_meanwhile, lambda: running) == 0
    kept = read_manifest(running.results, running.manifest.study)
    assert kept.seeds == [0, 1, 2] and {run.path for run in kept.runs} == {run.path for run in running.manifest.runs}


def test_confirm_takes_fresh_seeds_as_a_study_of_its_own(plan):
    base = plan("norm=ln,rms", "seeds=[0,4]")
    finish(base)
    confirmed = plan("norm=ln,rms", "seeds=[0,4]", "confirm=2")
    name = base.manifest.study
    assert confirmed.manifest.seeds == [5, 6] and len(confirmed.todo) == 4
    assert confirmed.manifest.study == f"{name}-confirm-2" and confirmed.manifest.confirms == name
    finish(confirmed)
    again = plan("norm=ln,rms", "seeds=[0,4]", "confirm=2")
    assert again.manifest.seeds == [5, 6] and again.todo == [], "the same command is the same confirmation"
    assert plan("norm=ln,rms", "seeds=[0,4]", "confirm=3").manifest.seeds == [7, 8, 9]
    assert read_manifest(base.results, name).seeds == [0, 4]
    other = plan("norm=ln,bn", "confirm=1").manifest
    assert other.seeds == [7], "a seed that was trained for any of the cells is not fresh"


@pytest.mark.parametrize(
    ("sweep", "is_paired"),
    [
        ("optim.lr=1e-3,2e-3", True),
        ("norm=ln,bn", True),
        ("seed.init=0,1", True),
        ("train.batch_size=2,4", False),
        ("data.context=8,16", False),
        ("seed.data=0,1", False),
    ],
)
def test_pairing_is_decided_by_what_changes_the_batches(plan, sweep, is_paired):
    first, second = plan(sweep, "seeds=1").manifest.cells
    assert (first.batches == second.batches) == is_paired


def test_several_tracking_services_are_part_of_no_run_and_each_has_its_own_keys(plan, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[tensorboard]'")
    wandb = {"_target_": "ablate.execution.tracking.wandb.WandB", "project": "mine", "entity": None}
    both = [wandb, {"_target_": "ablate.execution.tracking.tensorboard.TensorBoard"}]

    def planned(*words):
        return plan("seeds=1", *words, "track.project=mine").manifest

    single = planned("track=wandb")
    several = planned("track=[wandb,tensorboard]", "norm=ln,rms")
    assert single.cells[0].config.track == wandb and all(cell.config.track == both for cell in several.cells)
    assert several.runs[0].path == single.runs[0].path
    usual = default_choices() | {"track": ["wandb", "tensorboard"]}
    monkeypatch.setattr("ablate.config.compose.default_choices", lambda: usual)
    assert composed("norm=ln", "track.project=mine").config.track == both
    assert composed("track=wandb", "track.project=mine").config.track == wandb


def test_a_tracking_service_that_is_not_installed_is_a_line(plan, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "ablate.execution.tracking.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(PlanError) as raised:
        plan("track=[wandb,tensorboard]")
    [problem] = raised.value.problems
    assert problem.message.startswith("track=tensorboard needs tensorboard, which is not installed; ")
    assert problem.message.endswith("pip install -e '.[tensorboard]'")


@pytest.mark.parametrize("project", ["'50% c:d#'", "x" * 129, "''"])
def test_a_project_that_wandb_refuses_is_refused_before_training(project, refused):
    [line] = refused("track=wandb", f"track.project={project}")
    assert "W&B takes names of 1 to 128 characters without / \\ # ? % :" in line


def test_optimisers_at_one_learning_rate_are_remarked_upon(plan):
    def notes(*words):
        return "\n".join(plan("optim=adamw,lion", "seeds=1", *words).notes)

    assert re.search("optimisers are compared at one learning rate, .*; tune.key=optim.lr", notes())
    assert "one learning rate" not in notes("optim.lr=1e-3,3e-3")
    assert "one learning rate" not in notes("tune.key=optim.lr", "tune.values=[1e-3,3e-3]")


def test_a_warm_up_that_never_ends_is_remarked_upon(plan):
    note = (
        "optim.warmup=6 lasts for all of train.steps=6: the learning rate never stops rising; for a tenth of the steps"
    )
    assert f"{note} write optim.warmup=1" in plan("optim.warmup=6,2", "seeds=1").notes


def test_a_task_that_is_solved_or_not_is_compared_by_the_share_solved(tmp_path):
    words = ["norm=ln,rms", "scale=tiny", "data=mqar", f"results_dir={tmp_path}"]
    manifest = plan_study(words).manifest
    [task] = manifest.tasks.values()
    assert list(task.metrics)[:2] == ["solved", "accuracy"] and task.solved_at == 0.99
    assert task.shares[0] == "solved" and task.beside[0] == "accuracy" and task.measured == "accuracy"
    without = plan_study([*words, "data.solved_at=null"]).manifest
    [task] = without.tasks.values()
    assert without.runs == manifest.runs and task.measured == "accuracy"
