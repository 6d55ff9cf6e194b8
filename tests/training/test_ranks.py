"""One run on several devices: the numbers of one device within rounding, and what happens when a process is lost."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from one_run import after, rows_of, train, trained_anew, write_plan
from safetensors.torch import load_file

from ablate.config.errors import PlanError
from ablate.execution.train_run import follow, train_run
from ablate.model.build import initialised_model
from ablate.planning.plan import Plan
from ablate.runs.folder import Run
from ablate.runs.lock import LeaseLost
from ablate.training import ranks as module
from ablate.training.devices import configure_torch
from ablate.training.ranks import RankLost, Ranks, join

pytestmark = pytest.mark.usefixtures("untried")
ALONE = ["seeds=1", "train.parts=4", "train.batch_size=6", "model.dropout=0.2", "train.average=ema"]
TWO = [*ALONE, "train.devices=2"]
ENDED = "another process of the run has ended"


def together(count: int, folder: Path, body: Callable[[Ranks], Any]) -> list[Any]:
    """What a function returns in each of so many processes that have joined; None where the process ended."""

    def begin(rank: int) -> None:
        configure_torch()
        torch.save(body(join(rank, count, folder / "address", "cpu", True)), folder / f"returned-{rank}.pt")

    folder.mkdir(exist_ok=True)
    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=begin, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode is not None
    files = [folder / f"returned-{rank}.pt" for rank in range(count)]
    return [torch.load(file, weights_only=False) if file.exists() else None for file in files]


def trained(plan: Plan, count: int, folder: Path, steps: int | None = None) -> list[str]:
    """How a plan's run ended in each of so many processes that train it, stopped after so many steps."""
    write_plan(plan)
    [order] = plan.orders()

    def body(ranks: Ranks) -> str:
        should_stop = after(steps) if steps else lambda: False
        try:
            if ranks.rank:
                return follow(order, should_stop, ranks, folder / f"files-{ranks.rank}")
            return ranks.from_first(train_run(order, should_stop, ranks))
        except RankLost as error:
            return str(error)

    return together(count, folder, body)


def assert_close(run: Run, expected: Run) -> None:
    """All that two runs have measured and saved is equal within rounding."""
    result = run.result()
    other = expected.result()
    assert result and other and result.status == other.status == "done"
    assert result.final == pytest.approx(other.final, rel=1e-5)
    assert result.documents["test"].loss == pytest.approx(other.documents["test"].loss, rel=1e-5)
    for row, other_row in zip(rows_of(run), rows_of(expected), strict=True):
        assert row == pytest.approx(other_row, rel=1e-5)
    weights = load_file(run.weights_file)
    other_weights = load_file(expected.weights_file)
    for name, weight in weights.items():
        assert torch.allclose(weight, other_weights[name], rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(["ffn=moe", "objective=multi_token", "train.diagnostics=true"], marks=pytest.mark.slow),
        pytest.param(["model=encoder", "data=mlm", "attention=gated", "optim=muon"], marks=pytest.mark.slow),
        pytest.param(["step=sam"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_twenty_steps_on_two_devices_have_the_numbers_of_one(words, plan, tmp_path):
    steps = ["train.steps=20", "train.eval_every=10", "train.log_every=5", "optim.lr=3e-4"]
    alone = plan(*ALONE, *words, *steps, f"results_dir={tmp_path / 'alone'}")
    two = plan(*TWO, *words, *steps)
    assert two.manifest.runs == alone.manifest.runs, "devices are in no key"
    assert trained(two, 2, tmp_path / "ranks") == ["done"] * 2
    run = Run(two.results, two.manifest.runs[0].path)
    assert_close(run, trained_anew(alone))
    assert run.result().device.startswith("2 × ")


def test_a_run_can_go_on_with_another_number_of_devices(plan, tmp_path):
    alone = plan(*ALONE, "train.steps=8")
    two = plan(*TWO, "train.steps=8")
    expected = trained_anew(plan(*ALONE, "train.steps=8", f"results_dir={tmp_path / 'undisturbed'}"))
    write_plan(alone)
    assert train(alone, after(3))[0] == "interrupted"
    assert trained(two, 2, tmp_path / "two", steps=4) == ["interrupted"] * 2
    status, run = train(alone)
    assert status == "done" and run.result().resumed == 2
    assert_close(run, expected)


def test_norms_over_the_batch_are_refused(plan):
    with pytest.raises(PlanError, match="normalise by the whole batch"):
        plan(*TWO, "norm=bn")


def test_a_run_that_another_host_takes_over_ends_all(plan, tmp_path, monkeypatch):
    def lost(run):
        if run.lease and len(run.metrics()[0]) > 2:
            raise LeaseLost("taken over")

    monkeypatch.setattr(Run, "check", lost)
    assert trained(plan(*TWO, "train.steps=8"), 2, tmp_path / "two") == ["taken over", ENDED]


def test_a_rank_out_of_memory_splits_the_batch_for_all(plan, tmp_path, monkeypatch, capfd):
    def scarce(*arguments):
        model = initialised_model(*arguments)

        def refuse(module, args, kwargs):
            last = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 1
            if module.training and len(kwargs["tokens"]) > 1 and last:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        model.register_forward_pre_hook(refuse, with_kwargs=True)
        return model

    monkeypatch.setattr("ablate.training.trainer.initialised_model", scarce)
    alone = trained_anew(plan(*ALONE, "train.steps=8", f"results_dir={tmp_path / 'alone'}"))
    two = plan(*TWO, "train.steps=8")
    assert trained(two, 2, tmp_path / "two") == ["done"] * 2
    run = Run(two.results, two.manifest.runs[0].path)
    assert run.result().accumulation == alone.result().accumulation == 8
    assert_close(run, alone)
    assert capfd.readouterr().err.count("out of memory") == 2, "once for each run"


def test_who_cannot_reach_the_others_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.3)
    with pytest.raises(RankLost, match=r"process 2 of 2 could not reach the others within 0\.3 s \(the first was not"):
        join(1, 2, tmp_path / "address", "cpu", False)


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("it has four corners\nand more"), "process 2: ValueError: it has four corners"), (None, ENDED)],
)
def test_a_rank_that_ends_is_a_line_for_the_others(error, line, tmp_path):
    def body(ranks):
        if ranks.rank == 1:
            if error:
                ranks.leave_error(error)
            os._exit(0)
        with pytest.raises(RankLost) as lost:
            ranks.any([False])
        return str(lost.value)

    assert together(2, tmp_path, body)[0] == line


def test_who_locks_a_run_removes_leftovers_but_not_the_file_over_which_another_job_meets(tmp_path):
    run = Run(tmp_path, "cell/s0-key")
    run.folder.mkdir(parents=True)
    meeting = run.folder / ".ranks.another-job.tmp"
    leftover = run.folder / ".checkpoint.pt.1.tmp"
    meeting.touch()
    leftover.touch()
    with run.lock(lambda: False) as is_locked:
        assert is_locked and meeting.exists() and not leftover.exists()
