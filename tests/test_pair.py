"""Generators and initial values for a script of one's own: what one variant adds changes nothing of the others."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import ablate
from ablate import pair


class Net(nn.Module):
    """Initial values of several distributions; a layer and dropout can be added before all others."""

    def __init__(self, layers: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.added = nn.ModuleList([nn.Linear(64, 64) for _ in range(layers)])
        self.embedding = nn.Embedding(64, 64, padding_idx=0)
        self.block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(dropout), nn.LayerNorm(64))
        self.attention = nn.MultiheadAttention(64, 2)
        self.truncated = nn.Parameter(torch.empty(64, 64))
        nn.init.trunc_normal_(self.truncated, std=0.02)
        self.head = nn.Linear(64, 64, bias=False)
        nn.init.normal_(self.head.weight, std=0.002)


def build(layers: int = 0, dropout: float = 0.0, seed: int = 0) -> dict[str, torch.Tensor]:
    """The parameters of a model after `initialise`, from another state of the global generator in each call."""
    torch.rand(1)
    return dict(pair.initialise(lambda: Net(layers, dropout), seed).named_parameters())


@pytest.mark.parametrize("added", [{"layers": 1}, {"dropout": 0.1}, {"layers": 2, "dropout": 0.5}])
def test_a_module_or_dropout_leaves_the_initial_values_of_others(added):
    values = build()
    with_more = build(**added)  # type: ignore[arg-type]
    assert all(torch.equal(values[name], with_more[name]) for name in values)


def test_values_differ_between_seeds_and_between_parameters_of_one_shape_and_none_is_named(recwarn):
    values = build(layers=2)
    assert not torch.equal(values["added.0.weight"], values["added.1.weight"])
    assert not torch.equal(values["head.weight"], build(layers=2, seed=1)["head.weight"])
    assert not recwarn.list


def test_distributions_are_those_of_the_model():
    values = build()
    plain = dict(Net().named_parameters())
    for name, parameter in plain.items():
        assert float(values[name].std().detach()) == pytest.approx(float(parameter.std().detach()), rel=0.15), name
    assert values["truncated"].abs().max() <= 2
    assert not values["embedding.weight"][0].any(), "the row of the padding stays zero"
    assert values["block.0.weight"].abs().max() <= 1 / 8, "uniform"


def linear(init: Callable[[torch.Tensor], object]) -> nn.Linear:
    """A layer whose weight begins as `init` leaves it."""
    layer = nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        init(layer.weight)
    return layer


@pytest.mark.parametrize(
    "init",
    [
        pytest.param(lambda weight: weight.copy_(torch.linspace(0, 1, 64).view(8, 8)), id="of no draw"),
        pytest.param(nn.init.orthogonal_, id="orthogonal"),
        pytest.param(lambda weight: weight.normal_().div_(weight.norm(dim=1, keepdim=True)), id="of their own draw"),
    ],
)
def test_values_that_are_computed_stay_as_they_are_and_are_named(init):
    with pytest.warns(UserWarning, match=r"stay as they are: weight$"):
        layer = ablate.pair.initialise(lambda: linear(init), 0)
    torch.testing.assert_close(layer.weight.norm(dim=1), linear(init).weight.norm(dim=1))


def test_batches_do_not_depend_on_what_else_is_drawn():
    def batches(dropout: bool) -> list[list[int]]:
        draws = pair.generator(3, "batches")
        indices = []
        for _ in range(3):
            indices.append(torch.randint(100, (4,), generator=draws).tolist())
            if dropout:
                nn.functional.dropout(torch.ones(10))
        return indices

    assert batches(dropout=False) == batches(dropout=True)


def test_generators_of_other_names_or_seeds_differ():
    first = {
        int(torch.randint(2**40, (1,), generator=pair.generator(*key)))
        for key in [(0, "train"), (0, "val"), (1, "train"), (0, "train", 1)]
    }
    assert len(first) == 4
