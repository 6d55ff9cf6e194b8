"""One run on several devices: numbers that do not depend on how many, and what happens when one of them is lost."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import latest
from one_run import after, rows_of, train, trained_anew, write_plan

from ablate.execution.train_run import follow, train_run
from ablate.model.build import initialised_model
from ablate.planning.checks.child import Child, start
from ablate.planning.plan import Plan, plan_study
from ablate.results.lease import LeaseLost
from ablate.results.run import Run
from ablate.training import evaluation
from ablate.training import ranks as module
from ablate.training.devices import configure_torch
from ablate.training.ranks import RankLost, Ranks, join

pytestmark = pytest.mark.usefixtures("untried")
WORDS = ["seeds=1", "train.parts=4", "train.batch_size=6", "model.dropout=0.2", "train.average=ema", "train.steps=8"]
ENDED = "another process of the run has ended"
BETWEEN = [
    ["model=encoder_decoder", "data=sort", "data.length=5", "step=sam"],
    ["ffn=moe", "train.diagnostics=true", "objective=multi_token"],
    ["model=encoder", "data=mlm", "attention=gated", "optim=muon"],
]


def together(count: int, folder: Path, body: Callable[[Ranks], Any]) -> list[Any]:
    """What a function returns in each of so many processes that have joined."""

    def begin(rank: int, channel: Any) -> None:
        configure_torch()
        torch.save(body(join(rank, count, folder / "address", "cpu", True)), folder / f"found-{rank}.pt")

    children: list[Child] = [start(partial(begin, rank)) for rank in range(count)]
    for child in children:
        assert child.receive(60) == ""
        child.end(1)
    return [torch.load(folder / f"found-{rank}.pt", weights_only=False) for rank in range(count)]


def trained(plan: Plan, count: int, folder: Path, steps: int | None = None) -> list[str]:
    """How a plan's run ended in each of so many processes that train it, stopped after so many steps."""
    write_plan(plan)
    [order] = plan.orders()

    def body(ranks: Ranks) -> str:
        stop = after(steps) if steps else lambda: False
        try:
            if ranks.rank:
                return follow(order, stop, ranks, folder / f"files-{ranks.rank}")
            return ranks.from_first(train_run(order, stop, ranks))
        except RankLost as error:
            return str(error)

    folder.mkdir()
    return together(count, folder, body)


def numbers(run: Run) -> tuple[Any, ...]:
    """All that a run has measured and saved, but for seconds."""
    result = run.result()
    assert result and result.status == "done", result
    return result.final, result.documents, rows_of(run), run.weights_file.read_bytes()


def test_one_rank_then_two_then_one_have_the_numbers_of_one(plan, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 48)  # so that there are several to share
    planned, alone = plan(*WORDS, "train.devices=2"), plan(*WORDS)
    assert planned.manifest.runs == alone.manifest.runs, "devices are in no key"
    write_plan(alone)
    assert train(alone, after(3))[0] == "interrupted"
    assert trained(planned, 2, tmp_path / "two", steps=4) == ["interrupted"] * 2
    status, run = train(alone)
    assert status == "done" and run.result().resumed == 2
    assert numbers(run) == numbers(trained_anew(alone))


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], *BETWEEN], ids=" ".join)
@pytest.mark.parametrize("count", [2, 4])
def test_numbers_do_not_depend_on_the_number_of_devices(count, words, small, tmp_path):
    given = [word for word in small if "data=sort" not in words or not word.startswith("data")]
    given = latest(*given, *WORDS, *words)
    whole = numbers(trained_anew(plan_study(given)))
    planned = plan_study(latest(*given, f"train.devices={count}", f"results_dir={tmp_path / 'shared'}"))
    assert trained(planned, count, tmp_path / "ranks") == ["done"] * count
    run = Run(planned.results, planned.manifest.runs[0].path)
    assert numbers(run) == whole and run.result().device.startswith(f"{count} × ")


def test_a_run_that_another_host_takes_over_ends_all(plan, tmp_path, monkeypatch):
    def lost(run: Run) -> None:
        if run.lease and len(run.metrics()[0]) > 2:
            raise LeaseLost("taken over")

    monkeypatch.setattr(Run, "check", lost)
    assert trained(plan(*WORDS, "train.devices=2"), 2, tmp_path / "two") == ["taken over", ENDED]


def test_a_rank_out_of_memory_splits_the_batch_for_all(plan, tmp_path, monkeypatch, capfd):
    def scarce(*arguments: Any) -> torch.nn.Module:
        model = initialised_model(*arguments)

        def refuse(module: torch.nn.Module, args: tuple, kwargs: dict[str, torch.Tensor]) -> None:
            last = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 1
            if module.training and len(kwargs["tokens"]) > 1 and last:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        model.register_forward_pre_hook(refuse, with_kwargs=True)
        return model

    monkeypatch.setattr("ablate.training.trainer.initialised_model", scarce)
    whole = trained_anew(plan(*WORDS))
    planned = plan(*WORDS, "train.devices=2", f"results_dir={tmp_path / 'shared'}")
    assert trained(planned, 2, tmp_path / "two") == ["done"] * 2
    run = Run(planned.results, planned.manifest.runs[0].path)
    assert run.result().accumulation == whole.result().accumulation == 8 and numbers(run) == numbers(whole)
    assert capfd.readouterr().err.count("out of memory") == 2, "once for each run"


def test_sums_over_ranks_are_taken_in_a_tree(tmp_path):
    """Of tensors of several shapes and types, larger than what is sent at a time, to the last bit."""
    draws = torch.Generator().manual_seed(0)
    given = [[torch.randn(5, 3, generator=draws), torch.randn(7, generator=draws).double()] for _ in range(4)]

    def body(ranks: Ranks) -> tuple[Any, ...]:
        own = given[ranks.rank]
        ranks.add(own)
        return own, ranks.most([ranks.rank, -ranks.rank]), ranks.gather([ranks.rank] * ranks.rank), ranks.rows(7)

    found = together(4, tmp_path, body)
    for i, sums in enumerate(zip(*(tensors for tensors, *_ in found), strict=True)):
        expected = (given[0][i] + given[1][i]) + (given[2][i] + given[3][i])
        assert all(torch.equal(each, expected) for each in sums)
    assert [other[1:3] for other in found] == [([3, 0], [1, 2, 2, 3, 3, 3])] * 4
    assert [other[3] for other in found] == [(0, 2), (2, 4), (4, 6), (6, 7)], "as parts are"
    with pytest.raises(ValueError, match=r"a batch of 1 cannot be shared by train\.devices=2"):
        Ranks(1, 2).rows(1)


def test_who_cannot_reach_the_others_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REACH", 0.3)
    with pytest.raises(RankLost, match=r"process 2 of 2 could not reach the others within 0\.3 s \(the first was not"):
        join(1, 2, tmp_path / "address", "cpu", False)


def test_the_error_of_a_lost_rank_is_told(tmp_path):
    def body(ranks: Ranks) -> str:
        if ranks.rank == 1:
            ranks.tell(ValueError("it has four corners\nand more"))
            return ""
        with pytest.raises(RankLost) as error:
            ranks.most([0])
        return str(error.value)

    assert together(2, tmp_path, body)[0] == "process 2: ValueError: it has four corners"
