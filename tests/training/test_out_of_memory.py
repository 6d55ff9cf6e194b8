"""Out of memory, in whatever words: what counts as it, messages, and what goes on with less at a time."""

import pytest
import torch
from test_evaluation import CPU, SETTING, VOCAB, Cycles, model
from torch import nn

from ablate.model.objective import Objective
from ablate.training import devices
from ablate.training.devices import TooLarge
from ablate.training.diagnostics import diagnose
from ablate.training.gradients import backward_by_parts
from ablate.training.optim import adamw, optimizer_step

FULL = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be reported later", 2),
]
OTHER = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    torch.AcceleratorError("CUDA error: device-side assert triggered", 710),
    ValueError("CUDA error: out of memory"),
]


def test_room_is_made_on_the_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append("cuda"))
    devices.make_room(CPU)
    assert freed == []
    devices.make_room(torch.device("cuda"))
    assert freed == ["cuda"]


def short_of(made: nn.Module, rows: int, error: Exception) -> list[int]:
    """Have a model raise an error for more than so many rows; the rows that it was asked for."""
    asked: list[int] = []

    def look(module: nn.Module, args: tuple[torch.Tensor, ...], kwargs: dict[str, torch.Tensor]) -> None:
        asked.append(len([*args, *kwargs.values()][0]))
        if asked[-1] > rows:
            raise error

    made.register_forward_pre_hook(look, with_kwargs=True)
    return asked


@pytest.mark.parametrize("error", FULL, ids=str)
def test_a_step_goes_on_by_parts(error: Exception) -> None:
    made = model("ln")
    asked = short_of(made, 2, error)
    _, parts = backward_by_parts(made, Objective(), Cycles(VOCAB).batch(0, 0, 4), 1, CPU, "fp32")
    assert parts == 2 and asked == [4, 2, 2]


def test_diagnostics_go_on_with_half_as_many_examples() -> None:
    made, held_out = model("ln"), Cycles(VOCAB).held_out("val", 400)
    expected = diagnose(made, held_out, 2, SETTING)
    asked = short_of(made, 2, FULL[1])
    assert diagnose(made, held_out, 5, SETTING) == expected and asked == [5, 3, 2]


@pytest.mark.parametrize("error", OTHER[:2], ids=str)
def test_what_is_wrong_otherwise_is_raised(error: Exception) -> None:
    made, task = model("ln"), Cycles(VOCAB)
    short_of(made, 0, error)
    with pytest.raises(RuntimeError, match=str(error)):
        backward_by_parts(made, Objective(), task.batch(0, 0, 4), 1, CPU, "fp32")
    with pytest.raises(RuntimeError, match=str(error)):
        diagnose(made, task.held_out("val", 400), 5, SETTING)


def test_an_optimiser_whose_state_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def step() -> None:
        raise errors.pop()

    optimiser = adamw(nn.Linear(2, 2), 1e-3, [0.9, 0.99], 0.1)
    monkeypatch.setattr(optimiser, "step", step)
    errors = [OTHER[0], FULL[0]]
    with pytest.raises(TooLarge, match=r"the optimiser's step.*write a smaller model \(CUDA out of memory"):
        optimizer_step(optimiser)
    with pytest.raises(RuntimeError, match="illegal"):
        optimizer_step(optimiser)
