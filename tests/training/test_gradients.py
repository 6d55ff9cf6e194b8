"""Out of memory: parts of a batch have the gradient of the whole, chunks are halved, one example is the least."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F
from crashing_norm import hazard, start
from one_run import train_runs, write_plan
from torch import nn

from ablate.data.build import build_task
from ablate.data.task import IGNORE, Batch, HeldOut
from ablate.model.build import initialised_model
from ablate.model.dropout import rekey
from ablate.model.objective import MultiToken, Objective
from ablate.results.run import Run
from ablate.training.devices import TooLarge
from ablate.training.gradients import backward_by_parts
from ablate.training.scoring import score

CPU = torch.device("cpu")


class Memory:
    """Room for so many rows: a hook that is out of memory above, or in training only."""

    def __init__(self, model: nn.Module, rows: int, always: bool = True):
        self.rows, self.always, self.seen = rows, always, []
        model.register_forward_pre_hook(self.look, with_kwargs=True)

    def look(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.always or module.training:
            rows = len(next(iter([*args, *kwargs.values()])))
            self.seen.append(rows)
            if rows > self.rows:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words")


@pytest.fixture
def made(plan):
    """A model with dropout, in double precision, and a batch of 7 rows with unequal numbers of scored targets."""
    config = plan("model.dropout=0.2", "seeds=1").manifest.cells[0].config
    task = build_task(config)
    model = initialised_model(config, task, 0).double()
    batch = task.batch(0, 0, 7)
    targets = batch.targets.clone()
    targets[0, 2:] = IGNORE
    targets[4] = IGNORE
    rekey(model, 0, 0)
    return model, Batch(batch.inputs, targets)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("rows", "parts"), [(7, 1), (4, 2), (1, 8)])
def test_gradients_by_parts_are_those_of_the_whole_batch(made, rows, parts):
    model, batch = made
    whole = copy.deepcopy(model)
    loss = F.cross_entropy(whole(**batch.inputs).float().flatten(0, -2), batch.targets.flatten())
    loss.backward()
    Memory(model, rows)
    found, needed = backward_by_parts(model, Objective(), batch, 1, CPU, "fp32")
    assert needed == parts
    assert found.keys() == {"loss"} and found["loss"].item() == pytest.approx(loss.item(), rel=1e-6)
    expected, got = gradients(whole), gradients(model)
    assert expected.keys() == got.keys()
    for name, gradient in expected.items():
        # Logits are float32 whatever the model is, so this is rounding; other dropout masks would be 10 % and more.
        assert (got[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_terms_by_parts_are_those_of_the_whole_batch(made, plan):
    _, batch = made
    config = plan("objective=multi_token", "seeds=1").manifest.cells[0].config
    model = initialised_model(config, build_task(config), 0).double()
    split, objective = copy.deepcopy(model), MultiToken(0.1, 1e-2, 4, 0.5)
    whole = backward_by_parts(model, objective, batch, 1, CPU, "fp32")[0]
    parts = backward_by_parts(split, objective, batch, 4, CPU, "fp32")[0]
    assert whole.keys() == parts.keys() == {"loss", "label_smoothing", "z_loss", "multi_token", "objective"}
    for name, loss in whole.items():
        assert parts[name].item() == pytest.approx(loss.item(), rel=1e-5), name
    assert sum(loss.item() for name, loss in whole.items() if name != "objective") == pytest.approx(
        whole["objective"].item()
    )
    for name, gradient in gradients(model).items():
        assert (gradients(split)[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_nothing_is_half_applied(made):
    """Out of memory in the third of four parts: what the first two have added must be gone."""
    model, batch = made
    whole = copy.deepcopy(model)
    backward_by_parts(whole, Objective(), batch, 8, CPU, "fp32")
    calls = iter(range(100))

    def strike(module: nn.Module, args: tuple) -> None:
        if next(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(strike)
    assert backward_by_parts(model, Objective(), batch, 4, CPU, "fp32")[1] == 8
    assert all(torch.equal(gradient, gradients(model)[name]) for name, gradient in gradients(whole).items())


@pytest.mark.parametrize("norm", ["bn", "powernorm", "instance"])
def test_norms_over_the_batch_are_refused(norm, plan):
    config = plan(f"norm={norm}", "seeds=1").manifest.cells[0].config
    task = build_task(config)
    model = initialised_model(config, task, 0)
    Memory(model, 2)
    with pytest.raises(TooLarge, match=r"train\.batch_size=4: \w+ normalises by the whole batch"):
        backward_by_parts(model, Objective(), task.batch(0, 0, 4), 1, CPU, "fp32")


def test_one_example_that_does_not_fit_is_an_error(made):
    model, batch = made
    memory = Memory(model, 0)
    with pytest.raises(TooLarge, match=r"one example at a time.*\(CUDA out of memory\. Tried to allocate 2"):
        backward_by_parts(model, Objective(), batch, 1, CPU, "fp32")
    assert memory.seen == [7, 4, 2, 1]


def test_evaluation_halves_its_chunks(made):
    model, batch = made
    held_out = HeldOut(batch.inputs, batch.targets, None, [])
    whole = score(model, held_out, CPU, "fp32", chunk=16 * 5)
    memory = Memory(model, 2)
    halved = score(model, held_out, CPU, "fp32", chunk=16 * 5)
    assert memory.seen == [5, 3, 2, 2, 2, 1]
    assert halved.loss == pytest.approx(whole.loss, rel=1e-6) and (halved.right == whole.right).all()
    memory.rows = 0
    with pytest.raises(torch.OutOfMemoryError):
        score(model, held_out, CPU, "fp32")


def test_chunks_that_have_a_meaning_stay_whole(plan):
    config = plan("norm=bn", "seeds=1").manifest.cells[0].config
    task = build_task(config)
    model = initialised_model(config, task, 0)
    Memory(model, 2)
    with pytest.raises(torch.OutOfMemoryError):
        score(model, task.held_out("val", 256), CPU, "fp32", batch_statistics=True)


SHORT = "if self.training and len(x) > 2: raise torch.OutOfMemoryError('CUDA out of memory.')"


@pytest.mark.slow
def test_a_sweep_goes_on_by_parts_and_says_so(small, tmp_path):
    own = [*hazard(tmp_path, SHORT), "-m", "norm=hazard,ln", "seeds=2"]
    process = start(*small, *own, cwd=tmp_path)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    lines = [line for line in err.splitlines() if "out of memory" in line]
    assert len(lines) == 2 and all("from step 0 on batches of 4 are taken in 2 parts" in line for line in lines), err
    for path in tmp_path.glob("results/runs/*/*/result.json"):
        assert json.loads(path.read_text())["accumulation"] == (2 if "hazard" in str(path) else 1)


def test_parts_outlive_a_stop(plan, monkeypatch, capfd):
    """A resumed run goes on in parts without finding out anew; its numbers are those of a run in one go."""
    torch.set_num_threads(1)
    planned = plan("seeds=1", "model.dropout=0.2", "train.steps=6")
    write_plan(planned)
    memories: list[Memory] = []

    def scarce(*arguments: object) -> nn.Module:
        model = initialised_model(*arguments)
        memories.append(Memory(model, 2, always=False))
        return model

    monkeypatch.setattr("ablate.training.trainer.initialised_model", scarce)
    run = Run(planned.results, planned.manifest.runs[0].path)

    def train(asked: int) -> str:
        left = iter(range(asked))
        stop = lambda: next(left, None) is None  # noqa: E731
        return train_runs(planned, stop)[0]

    assert train(99) == "done" and memories[-1].seen == [4, *[2, 2] * 6]
    whole = run.result()
    run.result_file.unlink()
    assert train(5) == "interrupted" and memories[-1].seen[0] == 4
    assert train(99) == "done" and set(memories[-1].seen) == {2}
    assert run.result().final == whole.final and run.result().accumulation == 2
    assert capfd.readouterr().err.count("out of memory") == 2, "once for each run that found out"


def test_balance_of_unequal_parts_is_weighted_by_their_rows(made, plan):
    """7 rows in two parts are 4 and 3: the loss that balances experts is of each part, weighted 4/7 and 3/7."""
    _, batch = made
    config = plan("ffn=moe", "seeds=1").manifest.cells[0].config
    model = initialised_model(config, build_task(config), 0).double()
    each = []
    for rows in (slice(0, 4), slice(4, 7)):
        own = Batch({name: tensor[rows] for name, tensor in batch.inputs.items()}, batch.targets[rows])
        each.append(backward_by_parts(copy.deepcopy(model), Objective(), own, 1, CPU, "fp32")[0]["balance"].item())
    together = backward_by_parts(model, Objective(), batch, 2, CPU, "fp32")[0]["balance"].item()
    assert together == pytest.approx((4 * each[0] + 3 * each[1]) / 7, rel=1e-6) and each[0] != each[1]
