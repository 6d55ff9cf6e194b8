"""Linear layers through oneDNN: the numbers of torch's own, forward and backward, compiled too."""

import copy
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from ablate.model import products
from ablate.model.products import PRODUCTS, OneDNNLinear, PaddedLinear, product_seconds, use, whole_logits

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8, bias=False))


def computed(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Output and all gradients of a loss."""
    x = x.clone().requires_grad_()
    y = model(x)
    (y.float() ** 2).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


@needs_onednn
@pytest.mark.parametrize(("rows", "compiled"), [((5,), False), ((2, 3, 4), False), ((2, 3, 4), True)])
def test_outputs_and_gradients_are_torchs(rows: tuple[int, ...], compiled: bool) -> None:
    ours = copy.deepcopy(torchs := network())
    use("onednn", ours)
    assert [type(layer) for layer in ours if isinstance(layer, nn.Linear)] == [OneDNNLinear] * 2
    if compiled:
        ours.compile(backend="aot_eager", fullgraph=True)
    x = torch.randn(*rows, 24)
    for found, expected in zip(computed(ours, x), computed(torchs, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert found.is_contiguous()


def test_outputs_and_gradients_of_padded_products_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "WIDE", 30)
    ours = copy.deepcopy(torchs := nn.Sequential(nn.Linear(24, 50), nn.Linear(50, 33, bias=False), nn.Linear(33, 64)))
    use("torch", ours, "cuda")
    assert [type(layer) for layer in ours] == [PaddedLinear, PaddedLinear, nn.Linear]
    for found, expected in zip(*(computed(each, torch.ones(2, 3, 24)) for each in (ours, torchs)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_and_gradients_of_whole_logits_are_those_of_logits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, bias: bool
) -> None:
    monkeypatch.setattr(products, "WIDE", 30)
    given, targets, found = torch.randn(6, 24), torch.tensor([0, 32, 5, -100, 7, 32]), []
    model = nn.Module()
    model.head, model.soft_cap = nn.Linear(24, 33, bias), None
    use("torch", model, "cuda")
    for whole in (False, True):
        x = given.clone().requires_grad_()
        with whole_logits(model) if whole else nullcontext(), torch.autocast("cpu", dtype, enabled=dtype != x.dtype):
            logits = model.head(x)
        assert logits.shape == (6, 64 if whole else 33)
        loss = nn.functional.cross_entropy(logits.float(), targets)
        found.append([loss.detach(), *torch.autograd.grad(loss, [x, *model.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert model.head(given).shape == (6, 33), "evaluations read the vocabulary alone"


@pytest.mark.parametrize("more", [{"soft_cap": 5.0}, {}], ids=["capped", "of one's own"])
def test_logits_that_a_model_computes_with_are_never_whole(monkeypatch: pytest.MonkeyPatch, more: Any) -> None:
    """c · tanh(−∞ / c) is a score like another."""
    monkeypatch.setattr(products, "WIDE", 30)
    model = nn.Module()
    model.__dict__ |= more
    model.head = nn.Linear(24, 33)
    use("torch", model, "cuda")
    with whole_logits(model):
        assert model.head(torch.ones(2, 24)).shape == (2, 33)


@needs_onednn
def test_products_are_true_float32() -> None:
    """An error of 2⁻⁹, bf16's, would show."""
    x, weight = torch.randn(64, 256), torch.randn(32, 256)
    exact = x.double() @ weight.double().t()
    error = (PRODUCTS["onednn"](x, weight) - exact).abs().max() / exact.abs().max()
    assert error < 1e-6


def test_other_types_are_torchs_and_so_is_the_default() -> None:
    ours = copy.deepcopy(torchs := network().double())
    use("onednn", ours)
    x = torch.randn(3, 24, dtype=torch.float64)
    assert torch.equal(ours(x), torchs(x)) and ours.state_dict().keys() == torchs.state_dict().keys()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours.float()(x.float()), torchs.float()(x.float()))
    use("torch", plain := network())
    assert type(plain[0]) is nn.Linear
    assert 0 < product_seconds(Counter({(24, 40): 1}), 10) < 1
