"""How long a dry run says that a sweep will take: from a few steps of each distinct shape."""

import dataclasses
from types import SimpleNamespace

import pytest

from ablate.cli.preview import preview
from ablate.planning import cache, measured
from ablate.planning.measured import Speed, expected_time, makespan, speed_of
from ablate.training import trainer

SPEED = Speed(setup=1.0, step=10.0, evaluation=2.0, last=3.0)
RUN = 1 + 6 * 10 + 2 * 2 + 3  # six steps; evaluations at steps 0 and 3, then the last ones
pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The cells that are measured, each of which takes four seconds of a clock that nobody waits for."""
    found: list[str] = []
    monkeypatch.setattr(measured, "speed_of", lambda cell, folder: found.append(cell.label) or SPEED)
    monkeypatch.setattr(measured, "time", SimpleNamespace(monotonic=lambda: 4.0 * len(found)))
    monkeypatch.setattr(measured, "ALL", 10.0)
    return found


def test_a_run_is_its_start_its_steps_and_its_evaluations(plan, asked):
    said = expected_time(plan("norm=ln,rms", "seeds=3", "train.parallel=2"))
    assert RUN == 68 and makespan([RUN] * 6, 2) == 204
    assert "3 min 24 s on 2 workers" in said and "a step of ln takes 10 s here" in said
    assert asked == ["ln", "rms"]
    expected_time(plan("optim.lr=1e-3,3e-3", "norm=ln,rms", "seeds=2"))
    assert len(asked) == 4, "cells that cost the same are measured once"
    assert "1 min 08 s on 1 worker " in expected_time(plan("seeds=1", "train.parallel=2"))
    uneven = expected_time(plan("seeds=1", "train.eval_every=4"))
    assert "1 min 08 s" in uneven, "evaluations at steps 0 and 4, then the last ones"


def test_what_there_is_no_time_to_measure_costs_by_its_flops(plan, asked):
    planned = plan("model.dim=8,16,24,32", "seeds=1", "train.parallel=1")
    flops = [cell.flops_per_step * cell.config.train.steps for cell in planned.manifest.cells]
    said = expected_time(planned)
    assert len(asked) == 3, "begun at 0, 4 and 8 seconds, not at 12"
    whole = 3 * RUN + 3 * RUN / sum(flops[:3]) * flops[3]
    assert said.startswith(f"about {int(whole // 60)} min {round(whole % 60):02d} s on 1 worker ")


def test_what_was_measured_before_is_not_measured_again(plan, asked, plan_cache):
    words = ("norm=ln,rms", "train.parallel=2")
    first = expected_time(plan(*words, "seeds=3"))
    assert expected_time(plan(*words, "seeds=3")) == first
    assert "6 min 48 s on 2 workers" in expected_time(plan(*words, "seeds=6"))
    assert "13 min 36 s on 1 worker " in expected_time(plan(*words, "seeds=6", "train.parallel=1"))
    assert asked == ["ln", "rms"]
    expected_time(plan(*words, "model.dim=32"))
    expected_time(plan(*words, "train.batch_size=2"))
    assert asked == ["ln", "rms"] * 3, "other models are measured"


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(measured, "cores", lambda: 1000), (cache, "machine_memory", lambda: 1e12), (cache, "OWN_CODE", "edited")],
    ids=["cores", "memory", "code"],
)
def test_on_another_machine_or_with_other_code_all_is_measured_again(
    plan, asked, plan_cache, monkeypatch, module, name, value
):
    planned = plan("norm=ln,rms")
    expected_time(planned)
    monkeypatch.setattr(module, name, value)
    expected_time(planned)
    assert asked == ["ln", "rms"] * 2


def test_a_gpu_is_measured_each_time(plan, asked, plan_cache, monkeypatch):
    monkeypatch.setattr(measured, "lacks_device", lambda plan: "")
    planned = plan("train.device=cuda", "seeds=1")
    assert expected_time(planned) == expected_time(planned)
    assert len(asked) == 2


def test_where_nothing_can_be_measured_it_says_so(plan, monkeypatch):
    def fails(cell, folder):
        raise RuntimeError("no step today")

    monkeypatch.setattr(measured, "speed_of", fails)
    assert "no estimate" in expected_time(plan("norm=ln,rms"))
    planned = plan("train.device=cuda")
    monkeypatch.setattr(measured, "lacks_device", lambda plan: plan is planned)
    assert "no GPU here" in expected_time(planned)


def test_user_code_counts_by_its_flops(plan, asked, monkeypatch):
    monkeypatch.setattr(measured, "is_foreign", lambda settings: "RMSNorm" in settings["norm"]["_target_"])
    assert expected_time(plan("norm=ln,rms", "seeds=1")).startswith("about ") and asked == ["ln"]
    assert expected_time(plan("norm=rms", "seeds=1")).startswith("no estimate")


def test_rounds_to_come_and_other_machines_are_told(plan, asked):
    planned = plan("seeds=2")
    assert "for this round" in expected_time(dataclasses.replace(planned, more=True))
    elsewhere = expected_time(dataclasses.replace(planned, launcher=["hydra/launcher=joblib"]))
    assert "2 min 16 s of computing" in elsewhere and "worker" not in elsewhere
    done = dataclasses.replace(planned, statuses=dict.fromkeys(planned.statuses, "done"))
    assert expected_time(done) == "" and "about" not in preview(done, "")


def test_of_a_large_model_a_part_of_the_batch_is_measured(plan, tmp_path, monkeypatch):
    cell, used = plan().manifest.cells[0], list[tuple[int, int]]()

    class Watched(trainer.Trainer):
        def __init__(self, run, config, seed):
            used.append((config.train.batch_size, config.eval.tokens))
            super().__init__(run, config, seed)

    monkeypatch.setattr(trainer, "Trainer", Watched)
    assert all(seconds > 0 for seconds in speed_of(cell, tmp_path / "whole"))
    monkeypatch.setattr(measured, "AFFORDABLE", {"cpu": cell.flops_per_token * 100})
    assert all(seconds > 0 for seconds in speed_of(cell, tmp_path / "part"))
    assert used == [(4, 256), (2, 100)], "3 × 2 × 16 positions to train, 100 to score"


def test_each_job_is_begun_by_the_first_worker_that_is_free():
    assert makespan([3, 1, 1, 4], 2) == 6, "3 | 1 1 4"
    assert makespan([3, 1, 1, 4], 1) == 9 and makespan([3, 1, 1, 4], 9) == 4
