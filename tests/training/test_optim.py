"""Parameter groups and schedules."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from empty_task import Blank
from test_components import CONFIG, component, each_cell
from torch import nn

from ablate.config.schema import typed
from ablate.model.build import initialised_model
from ablate.model.init import role_of
from ablate.training.optim import adamw, learning_rate, lion, muon

KEYS: dict[str, Any] = {"lr": 0.1, "betas": [0.9, 0.99], "weight_decay": 0.5}


@each_cell
@pytest.mark.parametrize("tie", [False, True])
def test_every_parameter_is_in_one_group_and_matrices_alone_decay(config: dict[str, Any], tie: bool) -> None:
    model = initialised_model(typed(config | {"model": config["model"] | {"tie_embeddings": tie}}), Blank(11), 0)
    optimiser = adamw(model, **KEYS)
    grouped = [(p, group["weight_decay"]) for group in optimiser.param_groups for p in group["params"]]
    assert sorted(id(p) for p, _ in grouped) == sorted(id(p) for p in model.parameters())
    for parameter, decay in grouped:
        assert decay == (0.5 if parameter.ndim >= 2 else 0.0)
    assert all(group["lr"] == 0.1 and group["betas"] == (0.9, 0.99) for group in optimiser.param_groups)


def test_embeddings_decay_and_gains_do_not() -> None:
    config = CONFIG | {"position": component("position", "learned"), "norm": component("norm", "ln")}
    model = initialised_model(typed(config), Blank(11), 0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimiser = adamw(model, **KEYS)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for name, parameter in model.named_parameters():
        kept = 1 - 0.1 * 0.5 if parameter.ndim > 1 else 1
        torch.testing.assert_close(parameter.detach(), before[name] * kept, msg=name)


def test_steps_are_adamw_s() -> None:
    """Against Loshchilov & Hutter's algorithm 2, written once more."""
    linear = nn.Linear(3, 2).double()
    x = {name: p.detach().clone() for name, p in linear.named_parameters()}
    m = {name: torch.zeros_like(p) for name, p in x.items()}
    v = {name: torch.zeros_like(p) for name, p in x.items()}
    optimiser = adamw(linear, lr=0.1, betas=[0.8, 0.95], weight_decay=0.3)
    for t in range(1, 6):
        for i, (name, parameter) in enumerate(linear.named_parameters()):
            g = torch.randn(parameter.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(10 * t + i))
            parameter.grad = g
            m[name] = 0.8 * m[name] + 0.2 * g
            v[name] = 0.95 * v[name] + 0.05 * g * g
            step = (m[name] / (1 - 0.8**t)) / ((v[name] / (1 - 0.95**t)).sqrt() + 1e-8)
            x[name] = x[name] * (1 - 0.1 * (0.3 if name == "weight" else 0)) - 0.1 * step
        optimiser.step()
    for name, parameter in linear.named_parameters():
        torch.testing.assert_close(parameter.detach(), x[name])


def test_a_step_does_not_load_the_compiler() -> None:
    code = """
import sys
from torch import nn
from ablate.training.optim import adamw
linear = nn.Linear(3, 2)
optimiser = adamw(linear, lr=0.1, betas=[0.8, 0.95], weight_decay=0.3)
linear.weight.grad = linear.weight.detach().clone()
optimiser.step()
optimiser.zero_grad(set_to_none=True)
optimiser.load_state_dict(optimiser.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_model_of_vectors_alone_and_of_matrices_alone() -> None:
    assert len(adamw(nn.LayerNorm(4), **KEYS).param_groups) == 1
    assert len(adamw(nn.Linear(4, 4, bias=False), **KEYS).param_groups) == 1


def at(step: int, schedule: str = "cosine", steps: int = 101, warmup: int = 10, floor: float = 0.1) -> float:
    """The learning rate of one update, of a peak of 2."""
    return learning_rate(step, steps, 2.0, warmup, schedule, floor)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_warm_up_is_linear_and_reaches_the_peak(schedule: str) -> None:
    assert [at(step, schedule) for step in range(10)] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert at(9, schedule) == at(10, schedule) == 2.0
    assert at(0, schedule) > 0  # no update is wasted


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_without_warm_up_it_starts_at_the_peak(schedule: str) -> None:
    assert at(0, schedule, warmup=0) == 2.0


def test_cosine_at_key_steps() -> None:
    assert at(55) == pytest.approx(0.2 + 1.8 * 0.5)  # half way from 10 to 100
    assert at(40) == pytest.approx(0.2 + 1.8 * 0.75)  # cos 60° = 1/2
    assert at(100) == pytest.approx(0.2)
    assert at(100, floor=0.0) == pytest.approx(0, abs=1e-15) and at(100, floor=1.0) == 2.0


def test_linear_at_key_steps() -> None:
    assert at(55, "linear") == pytest.approx(1.1)
    assert at(32, "linear") == pytest.approx(2 - 1.8 * 22 / 90)
    assert at(100, "linear") == pytest.approx(0.2)


def test_constant_stays() -> None:
    assert {at(step, "constant") for step in range(10, 101)} == {2.0}


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 10, 99, 100, 101, 500])
def test_every_rate_is_positive_bounded_and_falls_after_the_peak(schedule: str, warmup: int) -> None:
    rates = [at(step, schedule, warmup=warmup) for step in range(101)]
    assert all(math.isfinite(rate) and 0 < rate <= 2.0 for rate in rates)
    peak = min(warmup, 100)
    assert rates[:peak] == sorted(rates[:peak]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    if warmup < 100 and schedule != "constant":
        assert rates[-1] == pytest.approx(0.2)


@pytest.mark.parametrize("steps", [1, 2])
def test_the_shortest_runs_train_at_the_peak_first(steps: int) -> None:
    assert at(0, steps=steps, warmup=0) == 2.0
    assert at(steps - 1, steps=steps, warmup=1) == 2.0


def model_of(seed: int = 0) -> nn.Module:
    """A small model with gradients that are keyed by a step."""
    return initialised_model(typed(CONFIG), Blank(11), seed)


def descended(model: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        for number, parameter in enumerate(model.parameters()):
            made = torch.Generator().manual_seed(1000 * step + number)
            parameter.grad = torch.randn(parameter.shape, generator=made)
        optimiser.step()


def test_lion_moves_by_the_sign_of_its_momentum() -> None:
    model, (b1, b2), lr = model_of(), KEYS["betas"], 0.1
    expected = [p.detach().clone().double() for p in model.parameters()]
    momenta = [torch.zeros_like(p) for p in expected]
    for step in range(3):
        for number, (p, m) in enumerate(zip(expected, momenta, strict=True)):
            g = torch.randn(p.shape, generator=torch.Generator().manual_seed(1000 * step + number)).double()
            decay = KEYS["weight_decay"] if p.ndim > 1 else 0.0
            p -= lr * (torch.sign(b1 * m + (1 - b1) * g) + decay * p)
            m.copy_(b2 * m + (1 - b2) * g)
    descended(model, lion(model, **KEYS), range(3))
    for p, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.double(), wanted, rtol=1e-5, atol=1e-6)


def test_muon_turns_hidden_matrices_and_leaves_the_rest_to_adamw() -> None:
    model, other = model_of(), model_of()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    descended(model, muon(model, 0.1, [0.9, 0.99], 0.0), range(1))
    descended(other, adamw(other, 0.1, [0.9, 0.99], 0.0), range(1))
    turned = {name for name, p in model.named_parameters() if role_of(p) in ("in", "out") and p.ndim == 2}
    assert turned and any("blocks" in name for name in turned) and not any("embed" in name for name in turned)
    for (name, p), (_, adam) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        if name not in turned:
            assert torch.equal(p, adam), name
            continue
        u, _, vh = torch.linalg.svd(p.grad.double(), full_matrices=False)
        update = (before[name] - p.detach()).double() / (0.1 * 0.2 * max(p.shape) ** 0.5)
        seen = u.T @ update @ vh.T  # nearly 1 for each singular direction of the gradient, but for the smallest
        assert seen.diagonal().median() > 0.65 and seen.diagonal().max() < 1.35, name
        assert (seen - seen.diagonal().diag()).abs().max() < 0.05, name


def test_muon_leaves_the_map_of_numeric_inputs_to_adamw() -> None:
    config = typed(
        CONFIG | {"model": CONFIG["model"] | {"_target_": "ablate.model.transformer.Encoder", "tie_embeddings": False}}
    )
    model = initialised_model(config, Blank(16, kind="classification", outputs=4, features=6), 0)
    matrices, others = (
        {id(p) for group in part.param_groups for p in group["params"]} for part in muon(model, **KEYS).parts
    )
    assert id(model.embed.weight) in others and not {id(model.embed.weight), id(model.head.weight)} & matrices
    assert id(model.blocks[0].ffn.up.weight) in matrices


def test_muon_takes_each_matrix_of_a_stack_by_itself() -> None:
    """As it takes them where each is a parameter of its own, and its gradient goes with the others'."""
    values, made = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0)), torch.Generator().manual_seed(1)
    stacked, apart = nn.Module(), nn.Module()
    stacked.all = nn.Parameter(values.clone())
    apart.all = nn.ParameterList(matrix.clone() for matrix in values)
    for model in (stacked, apart):
        model.vector, model.kernel = nn.Parameter(torch.zeros(2)), nn.Conv1d(2, 2, 3, bias=False)
        nn.init.ones_(model.kernel.weight)
    optimisers = [muon(model, 0.1, [0.9, 0.99], 0.5) for model in (stacked, apart)]
    for _ in range(3):
        grads = torch.randn(values.shape, generator=made)
        stacked.all.grad = grads
        for matrix, grad in zip(apart.all, grads, strict=True):
            matrix.grad = grad.clone()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        assert stacked.all.grad is None
    assert torch.equal(stacked.all, torch.stack([*apart.all])) and not torch.equal(stacked.all, values)
    assert all(p.ndim == 2 for p in optimisers[0].parts[0].param_groups[0]["params"])


@pytest.mark.parametrize("make", [adamw, lion, muon])
def test_an_optimiser_goes_on_from_its_state(make: Any) -> None:
    whole, parted = model_of(), model_of()
    descended(whole, make(whole, **KEYS), range(4))
    first = make(parted, **KEYS)
    descended(parted, first, range(2))
    second = make(parted, **KEYS)
    second.load_state_dict(first.state_dict())
    for group in second.param_groups:
        group["lr"] = KEYS["lr"]
    descended(parted, second, range(2, 4))
    for p, wanted in zip(parted.parameters(), whole.parameters(), strict=True):
        assert torch.equal(p, wanted)


def test_a_rate_that_is_written_into_a_group_of_muon_is_used() -> None:
    model = model_of()
    before = [p.detach().clone() for p in model.parameters()]
    optimiser = muon(model, **KEYS)
    optimiser.load_state_dict(optimiser.state_dict())
    for group in optimiser.param_groups:
        group["lr"] = 0.0
    descended(model, optimiser, range(2))
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
