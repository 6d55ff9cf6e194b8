"""Parts of a batch, as asked for or when out of memory: the gradient of the whole batch; halved chunks."""

import copy

import pytest
import torch
from cyclic_task import SETTING, VOCAB, Cycles
from cyclic_task import model as cyclic
from one_run import after, train, write_plan
from parts_of_batches import by_parts, of_model
from reference_config import CONFIG
from torch import nn

from ablate.config.schema import typed
from ablate.data.task import IGNORE, Batch, HeldOut, build_task
from ablate.model.build import build_objective, initialised_model
from ablate.model.dropout import rekey, seed_torch
from ablate.model.objective import MultiToken, Objective
from ablate.training import gradients as gradients_module
from ablate.training.devices import TooLarge
from ablate.training.diagnostics import diagnose
from ablate.training.evaluation import Setting, score
from ablate.training.ranks import ALONE, Ranks

CPU = torch.device("cpu")
FP32 = Setting(0, CPU, "fp32")
pytestmark = pytest.mark.usefixtures("untried")


FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later", 2),
]
OTHER = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    torch.AcceleratorError("CUDA error: device-side assert triggered", 710),
]


TERMS = {"loss", "label_smoothing", "z_loss", "multi_token", "objective"}


class Memory:
    """Room for so many rows: a hook that raises an error above, or in training only."""

    def __init__(self, model: nn.Module, rows: int, always: bool = True, error: Exception = FULL[0]):
        self.rows = rows
        self.always = always
        self.error = error
        self.seen = []
        model.register_forward_pre_hook(lambda *given: self.look(*given), with_kwargs=True)  # no part of its copies

    def look(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.always or module.training:
            rows = len(next(iter([*args, *kwargs.values()])))
            self.seen.append(rows)
            if rows > self.rows:
                raise self.error


@pytest.fixture
def made(config_of):
    """A model with dropout, in double precision, and a batch of 7 rows with unequal numbers of scored targets."""
    config = config_of("model.dropout=0.2")
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


def test_losses_and_gradients_by_parts_are_those_of_the_whole_batch(made, config_of):
    _, batch = made
    config = config_of("objective=multi_token", "model.dropout=0.2")
    model = initialised_model(config, build_task(config), 0).double()
    rekey(model, 0, 0)
    split = copy.deepcopy(model)
    objective = MultiToken(0.1, 1e-2, 4, 0.5)
    whole = by_parts(model, objective, batch, 1)[0]
    Memory(split, 2)
    parts, needed = by_parts(split, objective, batch, 1)
    assert needed == 4 and whole.keys() == parts.keys() == TERMS
    for name, loss in whole.items():
        assert parts[name].item() == pytest.approx(loss.item(), rel=1e-5), name
    summed = sum(loss.item() for name, loss in whole.items() if name != "objective")
    assert summed == pytest.approx(whole["objective"].item())
    for name, gradient in gradients(model).items():
        # Logits are float32 whatever the model is, so this is rounding; other dropout masks would be 10 % and more.
        assert (gradients(split)[name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def test_ranks_share_the_parts_of_one_device_and_draw_by_their_first_rows(made):
    model, batch = made
    rows: dict[str, list[int]] = {"alone": [], "first of two": [], "second of two": []}
    for place, ranks in zip(rows, (ALONE, Ranks(0, 2), Ranks(1, 2)), strict=True):
        computed = of_model(model, Objective(), 4, ranks)
        computed.seed_user_code = rows[place].append
        computed.accumulate(batch)
    assert rows["alone"] == [0, 2, 4, 6] == rows["first of two"] + rows["second of two"]
    draws = []
    for row in (0, 2, 2):
        seed_torch(0, 5, CPU, row)
        draws.append(torch.rand(()).item())
    assert draws[0] != draws[1] == draws[2]


def test_a_batch_with_fewer_rows_than_devices_is_refused(made):
    model, batch = made
    first_row = Batch({name: tensor[:1] for name, tensor in batch.inputs.items()}, batch.targets[:1])
    with pytest.raises(ValueError, match=r"a batch of 1 cannot be shared by train\.devices=2"):
        of_model(model, Objective(), 4, Ranks(0, 2)).accumulate(first_row)


def test_code_of_a_compiled_loss_does_not_depend_on_the_number_of_targets(monkeypatch):
    """Which differs between batches of masked tokens: it would be compiled anew for each, up to a limit."""

    class OnGPU(torch.Tensor):
        is_cuda = True

    settings = set()

    def compiled(model, inputs, targets, *others):
        settings.add(others)
        return model(**inputs).mean(), None

    monkeypatch.setattr(gradients_module, "compiled_loss", lambda: compiled)
    model = nn.Linear(3, 5)
    model._compiled_call_impl = model.forward
    objective = build_objective(typed(CONFIG))
    targets = torch.zeros(4, dtype=torch.long).as_subclass(OnGPU)
    for scored in (3, 4):
        gradients_module.backward(model, objective, {"input": torch.ones(4, 3)}, targets, scored, "fp32", 0.5)
    assert len(settings) == 1


def test_draws_after_the_parts_of_a_rank_are_those_of_all_ranks(config_of, monkeypatch):
    """A step of one's own that adds noise would give each rank other weights."""
    monkeypatch.setattr(Ranks, "any", lambda ranks, flags: flags)
    monkeypatch.setattr(Ranks, "add", lambda ranks, tensors: None)
    config = config_of("train.parts=4", "train.batch_size=6")
    task = build_task(config)
    draws = set()
    for ranks in (ALONE, Ranks(0, 2), Ranks(1, 2)):
        model = initialised_model(config, task, 0)
        computed = gradients_module.Gradients(model, build_objective(config), config.train, 0, True, print, ranks)
        computed.begin_step(3)
        computed(task.batch(0, 0, 6))
        draws.add(torch.rand(1).item())
    assert len(draws) == 1


def test_nothing_is_half_applied(made):
    """Out of memory in the third of four parts: what the first two have added must be gone."""
    model, batch = made
    whole = copy.deepcopy(model)
    by_parts(whole, Objective(), batch, 8)
    calls = iter(range(100))

    def strike(module, args):
        if next(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model.register_forward_pre_hook(strike)
    assert by_parts(model, Objective(), batch, 4)[1] == 8
    assert all(torch.equal(gradient, gradients(model)[name]) for name, gradient in gradients(whole).items())


@pytest.mark.parametrize("norm", ["bn", "powernorm"])
def test_norms_over_the_batch_are_refused(norm, config_of):
    config = config_of(f"norm={norm}")
    task = build_task(config)
    model = initialised_model(config, task, 0)
    Memory(model, 2)
    with pytest.raises(TooLarge, match=r"train\.batch_size=4: \w+ normalises by the whole batch"):
        by_parts(model, Objective(), task.batch(0, 0, 4), 1)


def test_one_example_that_does_not_fit_is_an_error(made):
    model, batch = made
    memory = Memory(model, 0)
    with pytest.raises(TooLarge, match=r"one example at a time.*\(CUDA out of memory\. Tried to allocate 2"):
        by_parts(model, Objective(), batch, 1)
    assert memory.seen == [7, 4, 2, 1]


def test_evaluation_halves_its_chunks(made):
    model, batch = made
    held_out = HeldOut(batch.inputs, batch.targets, None, [])
    whole = score(model, held_out, FP32._replace(chunk=16 * 5))
    memory = Memory(model, 2)
    halved = score(model, held_out, FP32._replace(chunk=16 * 5))
    assert memory.seen == [5, 3, 2, 2, 2, 1]
    assert halved.loss == pytest.approx(whole.loss, rel=1e-6) and (halved.right == whole.right).all()
    memory.rows = 0
    with pytest.raises(torch.OutOfMemoryError):
        score(model.train(), held_out, FP32)
    assert model.training, "it is put back"


def test_parts_outlive_a_stop(plan, monkeypatch, capfd):
    """A resumed run goes on in parts without finding out anew; its numbers are those of a run in one go."""
    torch.set_num_threads(1)
    planned = plan("seeds=1", "model.dropout=0.2", "train.steps=6")
    write_plan(planned)
    memories: list[Memory] = []

    def scarce(*arguments):
        model = initialised_model(*arguments)
        memories.append(Memory(model, 2, always=False))
        return model

    monkeypatch.setattr("ablate.training.trainer.initialised_model", scarce)
    status, run = train(planned)
    assert status == "done" and memories[-1].seen == [4, *[2, 2] * 6]
    whole = run.result()
    run.result_file.unlink()
    assert train(planned, after(5))[0] == "interrupted" and memories[-1].seen[0] == 4
    assert train(planned)[0] == "done" and set(memories[-1].seen) == {2}
    assert run.result().final == whole.final and run.result().accumulation == 2
    said = [line for line in capfd.readouterr().err.splitlines() if "out of memory" in line]
    assert len(said) == 2 and all("from step 0 on batches of 4 are computed in 2 parts" in line for line in said)


def test_balance_of_unequal_parts_is_weighted_by_their_rows(made, config_of):
    """7 rows in two parts are 4 and 3: the loss that balances experts is of each part, weighted 4/7 and 3/7."""
    _, batch = made
    config = config_of("ffn=moe")
    model = initialised_model(config, build_task(config), 0).double()
    losses = []
    for rows in (slice(0, 4), slice(4, 7), slice(0, 7)):
        part = Batch({name: tensor[rows] for name, tensor in batch.inputs.items()}, batch.targets[rows])
        parts = 2 if len(part.targets) == 7 else 1
        losses.append(by_parts(copy.deepcopy(model), Objective(), part, parts)[0]["balance"].item())
    assert losses[2] == pytest.approx((4 * losses[0] + 3 * losses[1]) / 7, rel=1e-6) and losses[0] != losses[1]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_out_of_memory_in_whatever_words_goes_on_by_parts(error):
    model = cyclic("ln")
    memory = Memory(model, 2, error=error)
    _, parts = by_parts(model, Objective(), Cycles(VOCAB).batch(0, 0, 4), 1)
    assert parts == 2 and memory.seen == [4, 2, 2]


@pytest.mark.parametrize("error", OTHER, ids=str)
def test_what_is_wrong_otherwise_is_raised(error):
    model = cyclic("ln")
    task = Cycles(VOCAB)
    Memory(model, 0, error=error)
    with pytest.raises(RuntimeError, match=str(error)):
        by_parts(model, Objective(), task.batch(0, 0, 4), 1)
    with pytest.raises(RuntimeError, match=str(error)):
        diagnose(model, task.held_out("val", 400), 5, SETTING)
