"""Norms against formulas of their own, in float64; padding and neighbours that must not matter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_variants import read, variants
from torch import Tensor, nn

from ablate.build import bind
from ablate.model.norm import BatchNorm, LayerNorm, RMSNorm

DIM, EPS = 6, 1e-3
OFFERED = {"dim": DIM, "heads": 2, "head_dim": 3, "layers": 2, "dropout": 0.0, "context": 12}
every = pytest.mark.parametrize("variant", variants("norm"))


def some(*shape: int, seed: int = 0) -> Tensor:
    """Skewed numbers off the origin, float64."""
    drawn = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return 3 + 2 * drawn + 0.5 * drawn.square()


def some_mask(batch: int = 4, length: int = 5) -> Tensor:
    """1 at real positions: rows with none, some and most of them padded."""
    mask = torch.ones(batch, length)
    mask[1, 3:], mask[2, 1:], mask[3, ::2] = 0, 0, 0
    return mask


def trained(norm: nn.Module) -> Any:
    """A norm in float64 with gains and shifts that are not 1 and 0."""
    with torch.no_grad():
        for i, parameter in enumerate(norm.parameters()):
            parameter.copy_(1 + 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    return norm.double()


def from_disk(variant: str) -> Any:
    """A variant as its YAML describes it."""
    return trained(bind("norm", read("norm", variant), OFFERED)())


def test_layer_norm_formula() -> None:
    norm, x = trained(LayerNorm(DIM, EPS)), some(4, 5, DIM)
    for b in range(4):
        for t in range(5):
            v = x[b, t]
            mean = sum(v) / DIM
            var = sum((a - mean) ** 2 for a in v) / DIM
            expected = (v - mean) / (var + EPS) ** 0.5 * norm.weight + norm.bias
            torch.testing.assert_close(norm(x)[b, t], expected)


def test_rms_norm_formula() -> None:
    norm, x = trained(RMSNorm(DIM, EPS)), some(4, 5, DIM)
    for b in range(4):
        for t in range(5):
            v = x[b, t]
            expected = v / (sum(a * a for a in v) / DIM + EPS) ** 0.5 * norm.weight
            torch.testing.assert_close(norm(x)[b, t], expected)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_rms_norm_of_small_and_large_numbers() -> None:
    """ε stands inside the root, and no square overflows on the way."""
    norm = RMSNorm(2, 1e-5)
    tiny = torch.tensor([[[1e-4, -1e-4]]])
    torch.testing.assert_close(norm(tiny), tiny / (1e-8 + 1e-5) ** 0.5)
    torch.testing.assert_close(norm(torch.tensor([[[3e4, 4e4]]])), torch.tensor([[[0.6, 0.8]]]) * 2**0.5)


@pytest.mark.parametrize("masked", [False, True])
def test_batch_norm_is_torch_s_over_the_real_positions_alone(masked: bool) -> None:
    """Outputs, gradients and running statistics of several steps, against nn.BatchNorm1d on gathered rows."""
    ours, theirs = trained(BatchNorm(DIM, EPS, 0.3)), nn.BatchNorm1d(DIM, EPS, 0.3).double()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    mask = some_mask() if masked else None
    real = torch.ones(4, 5, dtype=torch.bool) if mask is None else mask.bool()
    for step in range(3):
        x, y = some(4, 5, DIM, seed=step).requires_grad_(), some(4, 5, DIM, seed=step).requires_grad_()
        mine, other = ours(x, mask)[real], theirs(y[real])
        torch.testing.assert_close(mine, other)
        (mine.sin().sum()).backward()
        (other.sin().sum()).backward()
        torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    x = some(4, 5, DIM, seed=7)
    torch.testing.assert_close(ours.eval()(x, mask)[real], theirs.eval()(x[real]))


def test_batch_norm_formula_and_running_statistics() -> None:
    norm, x, mask, m = trained(BatchNorm(DIM, EPS, 0.3)), some(4, 5, DIM), some_mask(), 0.3
    rows = [x[b, t] for b in range(4) for t in range(5) if mask[b, t]]
    n = len(rows)
    mean = sum(rows) / n
    square = sum((row - mean) ** 2 for row in rows)
    y = norm(x, mask)
    for b, t in mask.nonzero().tolist():
        expected = (x[b, t] - mean) / (square / n + EPS).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(y[b, t], expected)
    torch.testing.assert_close(norm.running_mean, m * mean)
    torch.testing.assert_close(norm.running_var, (1 - m) + m * square / (n - 1))  # unbiased
    norm.eval()
    torch.testing.assert_close(
        norm(x), (x - norm.running_mean) / (norm.running_var + EPS).sqrt() * norm.weight + norm.bias
    )


def test_batch_norm_evaluates_without_moving_its_statistics() -> None:
    norm = trained(BatchNorm(DIM, EPS, 0.3))
    norm(some(4, 5, DIM))
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    norm.eval()(some(4, 5, DIM, seed=1))
    assert all(torch.equal(buffer, before[name]) for name, buffer in norm.named_buffers())


def test_batch_norm_with_one_real_position_stays_finite() -> None:
    norm, mask = BatchNorm(DIM, EPS, 0.3), torch.zeros(4, 5)
    mask[2, 1] = 1
    assert norm(some(4, 5, DIM).float(), mask).isfinite().all()
    assert norm.running_mean.isfinite().all() and norm.running_var.isfinite().all()


def test_batch_norm_with_no_real_position_keeps_its_statistics_finite() -> None:
    norm = BatchNorm(DIM, EPS, 0.3)
    norm(some(4, 5, DIM).float(), torch.zeros(4, 5))
    assert norm.running_mean.isfinite().all() and norm.running_var.isfinite().all()


@pytest.mark.parametrize("variant", ["ln", "rms", "bn"])
def test_starts_as_a_plain_normalisation(variant: str) -> None:
    norm = bind("norm", read("norm", variant), OFFERED | {"dim": 64})()
    for name, parameter in norm.named_parameters():
        assert (parameter == (name == "weight")).all()
    y = norm(some(32, 16, 64).float())
    assert y.shape == (32, 16, 64)
    assert 0.8 < y.square().mean() < 1.2


@every
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64, torch.int64])
def test_what_stands_at_padding_never_matters(variant: str, training: bool, kind: torch.dtype) -> None:
    norm, x, mask = from_disk(variant).train(training), some(4, 5, DIM), some_mask()
    real = mask.bool()
    y = norm(torch.where(real[..., None], x, 1e6 * some(4, 5, DIM, seed=1)), mask.to(kind))
    torch.testing.assert_close(y[real], norm(x, mask.to(kind))[real])


@every
def test_a_mask_of_ones_is_no_mask(variant: str) -> None:
    for training in (False, True):
        norm, x = from_disk(variant).train(training), some(4, 5, DIM)
        torch.testing.assert_close(norm(x, torch.ones(4, 5)), norm(x))


@every
def test_evaluation_ignores_other_tokens(variant: str) -> None:
    norm, x = from_disk(variant), some(4, 5, DIM)
    norm(x)
    y = norm.eval()(x)
    for b, t in ((0, 0), (2, 3), (3, 4)):
        torch.testing.assert_close(norm(x[b : b + 1, t : t + 1])[0, 0], y[b, t])


@pytest.mark.parametrize("variant", ["ln", "rms"])
def test_layer_and_rms_norm_ignore_other_tokens_in_training(variant: str) -> None:
    norm, x = from_disk(variant), some(4, 5, DIM)
    torch.testing.assert_close(norm(x[1:2, 2:3])[0, 0], norm(x)[1, 2])


@every
@pytest.mark.parametrize("masked", [False, True])
def test_gradients(variant: str, masked: bool) -> None:
    norm, mask = from_disk(variant), some_mask(4, 3) if masked else None
    if masked:
        mask[3] = 0
    x = some(4, 3, DIM).requires_grad_()
    parameters = list(norm.parameters())

    def forward(x: Tensor, *parameters: Tensor) -> Tensor:
        names = [name for name, _ in norm.named_parameters()]
        y = torch.func.functional_call(norm, dict(zip(names, parameters, strict=True)), (x, mask))
        return y if mask is None else y[mask.bool()]

    assert torch.autograd.gradcheck(forward, (x, *parameters))


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_keeps_the_type_of_its_input(variant: str, dtype: torch.dtype) -> None:
    for training in (True, False):
        norm = from_disk(variant).to(dtype).train(training)
        y = norm(some(4, 5, DIM).to(dtype))
        assert y.dtype == dtype and y.isfinite().all()


@pytest.mark.parametrize(
    ("variant", "key", "value"),
    [("ln", "eps", -1.0), ("rms", "eps", -1.0), ("bn", "eps", -1.0), ("bn", "momentum", -0.1), ("bn", "momentum", 1.5)],
)
def test_impossible_settings_are_refused(variant: str, key: str, value: float) -> None:
    make = bind("norm", read("norm", variant) | {key: value}, OFFERED)
    with pytest.raises(ValueError, match=rf"norm\.{key}"):
        make()
