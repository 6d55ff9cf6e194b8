"""Parameter groups and steps."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from empty_task import Blank
from model_variants import COVER, built, name_of
from reference_config import CONFIG
from torch import Tensor, nn

from ablate.config.schema import typed
from ablate.model.build import initialised_model
from ablate.model.init import role_of
from ablate.training.optim import adafactor, adamw, lion, muon, sgd

KEYS: dict[str, Any] = {"lr": 0.1, "betas": [0.9, 0.99], "weight_decay": 0.5}


@pytest.mark.parametrize("cell", COVER, ids=name_of)
def test_every_parameter_is_in_one_group_and_matrices_alone_decay(cell):
    model = built(cell)
    optimiser = adamw(model, **KEYS)
    grouped = [(p, group["weight_decay"]) for group in optimiser.param_groups for p in group["params"]]
    assert sorted(id(p) for p, _ in grouped) == sorted(id(p) for p in model.parameters())
    for parameter, decay in grouped:
        assert decay == (0.5 if parameter.ndim >= 2 else 0.0)
    assert all(group["lr"] == 0.1 and group["betas"] == (0.9, 0.99) for group in optimiser.param_groups)


def model_of(seed: int = 0) -> nn.Module:
    """A small model with gradients that are keyed by a step."""
    return initialised_model(typed(CONFIG), Blank(11), seed)


def gradient(p: Tensor, step: int, number: int) -> Tensor:
    """The gradient of the parameter of a number in a step."""
    return torch.randn(p.shape, generator=torch.Generator().manual_seed(1000 * step + number))


def descended(model: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        for number, parameter in enumerate(model.parameters()):
            parameter.grad = gradient(parameter, step, number)
        optimiser.step()


def check(model: nn.Module, optimiser: torch.optim.Optimizer, move: Callable[[Tensor, Tensor, Tensor], None]) -> None:
    """Three steps against `move`, which changes a parameter and its state, zero at first, in double precision."""
    expected = [p.detach().clone().double() for p in model.parameters()]
    states = [torch.zeros_like(p) for p in expected]
    for step in range(3):
        for number, (p, state) in enumerate(zip(expected, states, strict=True)):
            move(p, gradient(p, step, number).double(), state)
    descended(model, optimiser, range(3))
    for p, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.double(), wanted, rtol=1e-5, atol=1e-6)


def test_lion_moves_by_the_sign_of_its_momentum():
    model = model_of()
    b1, b2 = KEYS["betas"]

    def move(p, g, m):
        p -= 0.1 * (torch.sign(b1 * m + (1 - b1) * g) + (0.5 if p.ndim > 1 else 0.0) * p)
        m.copy_(b2 * m + (1 - b2) * g)

    check(model, lion(model, **KEYS), move)


def test_muon_turns_hidden_matrices_and_leaves_the_rest_to_adamw():
    model = model_of()
    other = model_of()
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


PLAIN: dict[str, Any] = {name: value for name, value in KEYS.items() if name != "betas"}
FACTORED: dict[str, Any] = PLAIN | {"decay": 0.8, "threshold": 1.0, "eps": 1e-3}


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_s_steps(momentum, nesterov):
    """v ← μ v + g; θ ← θ − lr (v + λ θ), or with g + μ v in place of v."""

    def move(p, g, v):
        v.mul_(momentum).add_(g)
        p -= 0.1 * ((g + momentum * v if nesterov else v) + (0.5 if p.ndim > 1 else 0.0) * p)

    model = model_of()
    check(model, sgd(model, **PLAIN, momentum=momentum, nesterov=nesterov), move)
    with pytest.raises(ValueError, match=r"optim.nesterov=true needs optim.momentum"):
        sgd(model, **PLAIN, momentum=0.0, nesterov=True)


@pytest.mark.parametrize(("make", "keys"), [(muon, KEYS), (adafactor, FACTORED)])
def test_each_matrix_of_a_stack_is_taken_by_itself(make, keys):
    """As where each is a parameter of its own, and its gradient goes with the others'; a kernel is no stack."""
    values = gradient(torch.empty(3, 4, 6), 9, 0)
    stacked = nn.Module()
    separate = nn.Module()
    stacked.all = nn.Parameter(values.clone())
    separate.all = nn.ParameterList(matrix.clone() for matrix in values)
    for model in (stacked, separate):
        model.kernel = nn.Conv1d(2, 2, 3, bias=False)
    optimisers = [make(stacked, **keys), make(separate, **keys)]
    for step in range(3):
        stacked.all.grad = gradient(values, step, 0)
        for matrix, grad in zip(separate.all, stacked.all.grad, strict=True):
            matrix.grad = grad.clone()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        assert stacked.all.grad is None
    torch.testing.assert_close(stacked.all, torch.stack([*separate.all]))
    assert not torch.equal(stacked.all, values)
    if make is muon:
        assert all(p.ndim == 2 for p in optimisers[0].parts[0].param_groups[0]["params"])


LAYERS = {
    "linear": lambda: nn.Linear(6, 4),
    "convolution": lambda: nn.Conv1d(6, 6, 4),
    "depthwise": lambda: nn.Conv1d(6, 6, 4, groups=6),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_adafactor_s_steps_are_those_of_torch(layer):
    """The kernel of a convolution is one parameter, as in torch and the paper: RMS is of all its numbers."""
    module = LAYERS[layer]()
    with torch.no_grad():
        module.weight.view(len(module.weight), -1).mul_(torch.logspace(-2, 0, len(module.weight))[:, None])
    other = copy.deepcopy(module)
    ours = adafactor(module, **FACTORED)
    groups = [{"params": [other.weight], "weight_decay": 0.5}, {"params": [other.bias], "weight_decay": 0.0}]
    theirs = torch.optim.Adafactor(groups, lr=0.1, eps=(1e-15, 1e-3))
    for step in range(4):
        descended(module, ours, range(step, step + 1))
        descended(other, theirs, range(step, step + 1))
    for p, wanted in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("make", "keys"), [(lion, KEYS), (muon, KEYS), (adafactor, FACTORED)])
def test_an_optimiser_goes_on_from_its_state_at_the_rate_that_is_written_into_its_groups(make, keys):
    whole, parted = (model_of() for _ in range(2))
    undisturbed, first = make(whole, **keys), make(parted, **keys)
    descended(whole, undisturbed, range(2))
    descended(parted, first, range(2))
    second = make(parted, **keys)
    second.load_state_dict(first.state_dict())
    for optimiser in (undisturbed, second):
        for group in optimiser.param_groups:
            group["lr"] = 0.01
    descended(whole, undisturbed, range(2, 4))
    descended(parted, second, range(2, 4))
    for p, wanted in zip(parted.parameters(), whole.parameters(), strict=True):
        assert torch.equal(p, wanted)
