"""Linear layers through oneDNN: the numbers of torch's own, forward and backward, compiled too."""

import copy
from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from ablate.data.task import build_task
from ablate.model import products
from ablate.model.build import initialised_model
from ablate.model.products import PRODUCTS, OneDNNLinear, PaddedLinear, as_given, padded_logits, product_seconds, use
from ablate.training.gradients import loss_of

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
@pytest.mark.parametrize(
    ("rows", "compiled"), [((5,), False), ((2, 3, 4), False), pytest.param((2, 3, 4), True, marks=pytest.mark.slow)]
)
def test_outputs_and_gradients_are_torchs(rows, compiled):
    ours = copy.deepcopy(torchs := network())
    use("onednn", ours)
    assert [type(layer) for layer in ours if isinstance(layer, nn.Linear)] == [OneDNNLinear] * 2
    if compiled:
        ours.compile(backend="aot_eager", fullgraph=True)
    x = torch.randn(*rows, 24)
    for found, expected in zip(computed(ours, x), computed(torchs, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert found.is_contiguous()


def test_outputs_and_gradients_of_padded_products_are_torchs(monkeypatch):
    monkeypatch.setattr(products, "MIN_OUTPUTS", 30)
    ours = copy.deepcopy(torchs := nn.Sequential(nn.Linear(24, 50), nn.Linear(50, 33, bias=False), nn.Linear(33, 64)))
    use("torch", ours, "cuda")
    assert [type(layer) for layer in ours] == [PaddedLinear, PaddedLinear, nn.Linear]
    for found, expected in zip(*(computed(each, torch.ones(2, 3, 24)) for each in (ours, torchs)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def decoder(plan: Any, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[nn.Module, Any]:
    """A model whose head is padded, and its task."""
    config = plan("seeds=1", *words).manifest.cells[0].config
    task = build_task(config)
    monkeypatch.setattr(products, "MIN_OUTPUTS", task.outputs)
    monkeypatch.setattr(products, "MULTIPLE", 64 if task.outputs % 64 else 37)
    model = initialised_model(config, task, 0)
    use("torch", model, "cuda")
    return model, task


@pytest.mark.parametrize("words", [[], ["model.tie_embeddings=false"], ["model.soft_cap=5"]], ids=" ".join)
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_losses_and_gradients_of_padded_logits_are_those_of_logits(plan, monkeypatch, words, compiled):
    model, task = decoder(plan, monkeypatch, *words)
    batch, capped, found = task.batch(0, 0, 4), "model.soft_cap=5" in words, []
    compile_ = partial(torch.compile, backend="aot_eager", fullgraph=True)
    for whole in (False, True):
        loss = (lambda *given: loss_of(*given)[0]) if not compiled else compile_(lambda *given: loss_of(*given)[0])
        with padded_logits(model) if whole else nullcontext():
            assert model(**batch.inputs).shape[-1] > task.outputs or not whole or capped
            value = loss(model, batch.inputs, batch.targets, "fp32", True)
        found.append([value.detach(), *torch.autograd.grad(value, [*model.parameters()])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert model(**batch.inputs).shape[-1] == task.outputs, "evaluations read the vocabulary alone"


def test_a_model_of_a_users_never_has_padded_logits(plan, monkeypatch):
    """It may compute with them."""
    model, task = decoder(plan, monkeypatch)
    model.__class__ = type("Mine", (type(model),), {"__module__": "mine"})
    with padded_logits(model):
        assert model(**task.batch(0, 0, 2).inputs).shape[-1] == task.outputs


@needs_onednn
def test_products_are_true_float32():
    """An error of 2⁻⁹, bf16's, would show."""
    x, weight = torch.randn(64, 256), torch.randn(32, 256)
    exact = x.double() @ weight.double().t()
    error = (PRODUCTS["onednn"](x, weight) - exact).abs().max() / exact.abs().max()
    assert error < 1e-6


def test_other_types_are_torchs_and_so_is_the_default():
    ours = copy.deepcopy(torchs := network().double())
    use("onednn", ours)
    x = torch.randn(3, 24, dtype=torch.float64)
    assert torch.equal(ours(x), torchs(x)) and ours.state_dict().keys() == torchs.state_dict().keys()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours.float()(x.float()), torchs.float()(x.float()))
    use("torch", plain := network())
    assert type(plain[0]) is nn.Linear
    assert 0 < product_seconds(Counter({(24, 40): 1}), 10) < 1


@pytest.mark.parametrize("half", [False, True])
def test_a_compiled_model_switches_autocast_off_only_where_it_is_on(half):
    """torch caches no compiled graph with such a context in it."""
    graphs = list[str]()

    def product(x: torch.Tensor) -> torch.Tensor:
        with as_given(x):
            return x @ x

    torch._dynamo.reset()
    compiled = torch.compile(product, backend=lambda graph, _: (graphs.append(str(graph.graph)), graph.forward)[1])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        assert compiled(torch.ones(2, 2)).dtype == product(torch.ones(2, 2)).dtype == torch.float32
    assert [("autocast" in graph) for graph in graphs] == [half]
