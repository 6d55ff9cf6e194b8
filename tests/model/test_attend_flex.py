"""Attention by rules, as a GPU's kernel takes them, in float64 on the CPU; where it is taken, and in whole models."""

import copy
import itertools
from typing import Any

import pytest
import torch
from model_variants import LM, built, jitter, loss_of, some_inputs
from tensors import some
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import flex_attention

from ablate.model import attend as module
from ablate.model.attend import Rules, attend, attend_explicit, attend_flex, takes_rules
from ablate.model.dropout import Dropout
from ablate.model.position import ALiBi

HEADS, T = 3, 9
RULES = [*itertools.product((True, False), (None, 3), (False, True))]
CAPPED = [(0.5, False), (None, True), (0.5, True), (None, False)]  # soft cap, sink


@pytest.fixture
def gradients(monkeypatch) -> None:
    """FlexAttention with gradients on the CPU, where it has no kernel for them but knows how to compute them."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda query, key, value: None)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def given() -> list[Tensor]:
    """Queries, keys and values."""
    return [some(2, HEADS, T, 5, seed=i).requires_grad_() for i in range(3)]


@pytest.mark.usefixtures("gradients")
@pytest.mark.parametrize(
    ("causal", "window", "sloped", "soft_cap", "sunk"),
    [(*rule, *capped) for i, rule in enumerate(RULES) for capped in (CAPPED[3], CAPPED[i % 3])],
)
def test_rules_are_the_explicit_bias_and_mask(causal, window, sloped, soft_cap, sunk):
    """Outputs and gradients."""
    sink = some(HEADS, seed=4) if sunk else None
    places = ALiBi(HEADS).places(torch.zeros(1, T, 1, dtype=torch.float64), causal)
    one, other = given(), given()
    more: dict[str, Any] = {"scale": 0.3, "window": window, "soft_cap": soft_cap, "sink": sink}
    more["chunk"] = None if soft_cap is None else 4
    by_rules = attend_flex(*one, causal, Rules(slopes=places.slopes if sloped else None, **more))
    explicit = attend_explicit(*other, causal, Rules(places.bias if sloped else None, **more))
    found, expected = (
        [out, *torch.autograd.grad(out.sin().sum(), inputs)] for out, inputs in ((by_rules, one), (explicit, other))
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("gradients")
@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_model_that_is_told_rules_computes_the_same(causal, monkeypatch):
    """In one graph without a break, as on a GPU; the eager model beside it has explicit products."""
    form, cell = LM if causal else ("encoder", "mlm"), {"position": "alibi", "attention": "window"}
    eager = jitter(built(cell, form=form, layers=1).double(), 0.05)
    by_rules, calls, inputs = copy.deepcopy(eager), [], some_inputs(form)
    torch._dynamo.reset()

    def counted(*args: Any, **how: Any) -> Tensor:
        calls.append(args)
        return attend_flex(*args, **how)

    monkeypatch.setattr(module, "attend_flex", counted)
    monkeypatch.setattr(module, "takes_rules", lambda query: torch.compiler.is_compiling())
    by_rules.compile(backend="eager", fullgraph=True)
    losses = [loss_of(model, inputs) for model in (eager, by_rules)]
    for loss in losses:
        loss.backward()
    assert calls
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=0)
    for (name, mine), theirs in zip(eager.named_parameters(), by_rules.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.usefixtures("gradients")
def test_what_a_norm_made_of_queries_and_keys_is_of_the_type_of_the_values():
    query, key, value = (x.detach().float() for x in given())
    found = attend_flex(query, key, value.bfloat16(), True)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), attend_explicit(query, key, value, True), rtol=0.05, atol=0.05)


def test_rules_are_for_gpus_and_compiled_models(monkeypatch):
    with FakeTensorMode():
        wide, narrow = (torch.empty(1, 1, 4, size, device="cuda") for size in (16, 8))
    assert not takes_rules(wide), "eagerly"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert takes_rules(wide) and not takes_rules(narrow) and not takes_rules(torch.empty(1, 1, 4, 16))


def test_padding_dropout_and_trained_biases_keep_other_kernels(monkeypatch):
    def never(*args: object, **how: object) -> Tensor:
        raise AssertionError("by rules")

    monkeypatch.setattr(module, "takes_rules", lambda query: True)
    monkeypatch.setattr(module, "attend_flex", never)
    places = ALiBi(HEADS).places(torch.zeros(1, T, 1), True)
    everything = [x.detach() for x in given()]
    attend(*everything, True)
    attend(*everything, True, Rules(places.bias, window=3))  # of such a bias, as T5's, nothing is known
    attend(*everything, True, Rules(places.bias, torch.ones(2, T), slopes=places.slopes))
    attend(*everything, True, Rules(places.bias, dropout=Dropout(0.5), slopes=places.slopes))
    with pytest.raises(AssertionError, match="by rules"):
        attend(*everything, True, Rules(places.bias, slopes=places.slopes))
