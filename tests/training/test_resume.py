"""Nothing is lost: kills, stops, damage, two sweeps at once; numbers must equal an undisturbed run's."""

import dataclasses
import errno
import json
import os
import shutil
import signal

import pytest
import torch
from conftest import SHAPE, STEPS, latest
from crashing_norm import start, training, wait_for, workers
from one_run import after, carry_out, here, rows_of, train, trained_anew, write_plan

from ablate.execution.train_run import train_run
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run

LONG = ["train.steps=12", "train.eval_every=4", "train.log_every=2", "train.checkpoint_seconds=0", "seeds=1"]


pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A study of one run with batch statistics, dropout and a learned table, its rows and its final metrics."""
    more = ["data=text", f"data.path={text}", f"results_dir={tmp_path_factory.mktemp('trained')}"]
    cell = ["norm=bn", "position=learned", "model.dropout=0.1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        plan = plan_study(tuple(latest(*cell, *SHAPE, *STEPS, *more, *LONG)))
    run = trained_anew(plan)
    return plan, (rows_of(run), run.result().final)


@pytest.fixture
def planned(trained):
    """The same study, recorded but not trained."""
    plan, _ = trained
    shutil.rmtree(plan.results, ignore_errors=True)
    write_plan(plan)
    return plan


@pytest.fixture
def undisturbed(trained):
    """Rows and final metrics of the planned run, trained in one go."""
    return trained[1]


def test_a_run_that_was_killed_after_its_last_checkpoint_has_all_its_numbers(small):
    """keep=all keeps a checkpoint of the last step; between it and the result weights are written, lengths tested."""
    plan = plan_study(tuple(latest("norm=bn", *small, "seeds=1", "keep=all", "train.average=ema")))
    write_plan(plan)
    status, run = train(plan)
    rows = rows_of(run)
    first = run.result()
    assert status == "done" and "test/loss_recalibrated" in first.final and first.documents["test"].loss
    run.result_file.unlink()
    earlier = torch.load(run.checkpoint_file, weights_only=True)["clock"]["cpu_seconds"]
    status, run = train(plan)
    again = run.result()
    assert (status, rows_of(run), again.resumed) == ("done", rows, 1)
    assert again.cpu_seconds >= round(earlier, 2) > 0, "what the first process took of the CPU counts, too"
    assert (again.final, again.documents) == (first.final, first.documents)


def test_a_stopped_run_continues_to_the_same_numbers(planned, undisturbed):
    """Stopped before its first step, in between, and before its last."""
    for steps in (0, 5, 8):
        status, run = train(planned, after(steps))
        assert status == "interrupted" and run.result() is None and run.checkpoint_file.exists() == (steps > 0)
    status, run = train(planned)
    assert status == "done" and run.result().resumed == 2
    assert (rows_of(run), run.result().final) == undisturbed


def test_each_group_has_its_rate_again(plan):
    """Under muP rates differ between groups, and are no part of the optimiser's state alone."""
    mup = ("parametrization=mup", "parametrization.base_dim=8", "model.dim=32", "model.heads=4", "seeds=1")
    planned = plan(*mup, "train.checkpoint_seconds=0", "attention=qk_norm", "schedule=linear")
    assert rows_of(trained_anew(planned, 3)) == rows_of(trained_anew(planned))


def test_rows_after_the_checkpoint_are_cut_and_written_again(planned, undisturbed):
    _, run = train(planned, after(6))
    with open(run.metrics_file, "ab") as file:
        rows = b'{"step": 999, "train/loss": 1.0}\n' * 1000  # more than what is still to be written covers
        file.write(rows + b'{"step": 1000, "tra')
    assert run.metrics()[1] == 1, "a reader passes over the torn line"
    assert train(planned)[0] == "done"
    assert (rows_of(run), run.result().final) == undisturbed


def test_a_checkpoint_without_its_log_is_named_set_aside_and_trained_again(planned, undisturbed, capfd):
    _, run = train(planned, after(6))
    run.metrics_file.unlink()
    assert train(planned)[0] == "done"
    assert (rows_of(run), run.result().final) == undisturbed
    assert "checkpoint.pt cannot be used" in capfd.readouterr().err
    assert (run.folder / "checkpoint.pt.corrupt").exists()


PASSING = {
    "memory of Python": MemoryError("no memory"),
    "memory of torch": RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
    "memory of a GPU": torch.OutOfMemoryError("CUDA out of memory"),
    "disk": OSError(errno.EIO, "Input/output error"),
}


@pytest.mark.parametrize("what", PASSING)
def test_a_checkpoint_that_cannot_be_read_now_stays_and_is_continued_later(planned, undisturbed, what, monkeypatch):
    _, run = train(planned, after(6))

    def fail(*_, **__):
        raise PASSING[what]

    with monkeypatch.context() as failing:
        failing.setattr(torch, "load", fail)
        assert train(planned)[0] == "failed"
    assert run.checkpoint_file.exists() and not list(run.folder.glob("*.corrupt"))
    assert train(planned)[0] == "done"
    assert run.result().resumed == 1
    assert (rows_of(run), run.result().final) == undisturbed


def test_a_full_disk_is_one_line_and_no_failure_of_the_run(planned, undisturbed, monkeypatch, capfd):
    """Full when each of its files is to be written, one after another."""
    run = Run(planned.results, planned.manifest.runs[0].path)
    for name in ("config.yaml", "checkpoint.pt", "weights.safetensors", "result.json"):

        def refuse(source, target, name=name, replace=os.replace):
            if os.path.basename(target) == name:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace(source, target)

        with monkeypatch.context() as full:
            full.setattr(os, "replace", refuse)
            assert carry_out(planned, here) == 1
        only, line = capfd.readouterr().err.splitlines()
        assert "only one variant" in only
        assert f"no space left for {planned.folder}: free some space" in line
        assert run.result() is None and run.holder() is None and not list(run.folder.glob(".*")), name
    assert train(planned)[0] == "done" and (rows_of(run), run.result().final) == undisturbed


MANY = ["-m", "norm=ln,bn", "train.steps=150", "train.eval_every=100", "train.checkpoint_seconds=0.1", "seeds=1"]


@pytest.mark.slow  # ten CPU-seconds each; test_pool.py has what the pool does, test_survival.py kills
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_takes_only_its_run_with_it_and_a_stopped_one_none(number, small, tmp_path):
    process = start(*small, *MANY, "train.parallel=2", cwd=tmp_path)
    wait_for(lambda: training(tmp_path / "results", 3))
    os.kill(workers(process.pid)[0], number)
    out, err = process.communicate(timeout=240)
    statuses = [json.loads(path.read_text())["status"] for path in tmp_path.glob("results/runs/*/*/result.json")]
    ended = (0, ["done", "done"]) if number == signal.SIGTERM else (1, ["done", "failed"])
    assert (process.returncode, sorted(statuses)) == ended, out + err
    assert ("killed by signal 9" in out) == (number == signal.SIGKILL)


def test_numbers_of_changed_code_do_not_pass_for_the_planned(planned, monkeypatch):
    monkeypatch.setattr("ablate.execution.train_run.run_key", lambda *_: "s0-of-other-code")
    status, run = train(planned)
    assert status == "failed" and "changed after the plan was made" in run.result().error.message
    monkeypatch.undo()
    assert train(planned)[0] == "done", "the next command tries again"


@pytest.mark.slow  # two sweeps of 100 steps; test_lock.py has the leases that they share
def test_two_sweeps_at_once_train_every_run_once(small, tmp_path):
    few = [*small, *MANY, "train.parallel=1", "train.steps=100", "train.checkpoint_seconds=1000"]
    both = [start(*few, cwd=tmp_path) for _ in range(2)]
    outputs = [process.communicate(timeout=240) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    results = [json.loads(path.read_text()) for path in tmp_path.glob("results/runs/*/*/result.json")]
    assert [result["resumed"] for result in results] == [0, 0]
    for path in tmp_path.glob("results/runs/*/*/metrics.jsonl"):
        steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
        assert steps == sorted(set(steps)) and steps[-1] == 100


def test_a_moved_results_folder_resumes_there(planned, undisturbed, tmp_path):
    _, run = train(planned, after(6))
    moved = tmp_path / "elsewhere"
    planned.results.rename(moved)
    [order] = planned.orders()
    status = train_run(dataclasses.replace(order, results=str(moved)), lambda: False)
    run = Run(moved, run.path)
    assert status == "done" and (rows_of(run), run.result().final) == undisturbed
