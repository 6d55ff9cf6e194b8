"""Position encodings against formulas of their own, in float64."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch
from test_variants import read, variants
from torch import Tensor, nn

from ablate.build import bind
from ablate.model.position import Learned, Position, RoPE, Sinusoidal

OFFERED = {"dim": 8, "heads": 2, "head_dim": 4, "layers": 2, "dropout": 0.0, "context": 12}
every = pytest.mark.parametrize("variant", variants("position"))


def some(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def from_disk(variant: str) -> Any:
    """A variant as its YAML describes it."""
    return bind("position", read("position", variant), OFFERED)()


def test_rope_turns_each_pair_by_its_angle() -> None:
    head_dim, base = 6, 100.0
    x = some(2, 3, 9, head_dim)
    y = RoPE(head_dim, base).rotate(x)
    for t in range(9):
        for i in range(head_dim // 2):
            turn = cmath.exp(1j * t / base ** (2 * i / head_dim))
            before = torch.complex(x[..., t, i], x[..., t, i + head_dim // 2])
            after = torch.complex(y[..., t, i], y[..., t, i + head_dim // 2])
            torch.testing.assert_close(after, before * turn)


def test_rope_leaves_lengths_and_the_first_position_alone() -> None:
    x = some(2, 3, 50, 8)
    y = RoPE(8, 10000.0).rotate(x)
    torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(y[..., 0, :], x[..., 0, :])


def test_rope_scores_depend_on_the_distance_alone() -> None:
    length, rope = 40, RoPE(8, 10000.0)
    query, key = (some(1, 1, 1, 8, seed=seed).expand(1, 1, length, 8) for seed in (1, 2))
    scores = (rope.rotate(query) @ rope.rotate(key).mT)[0, 0]  # the same vectors at every position
    for distance in range(-length + 1, length):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert len({round(value, 9) for value in scores[:, 0].tolist()}) == length  # and differ between distances


def test_rope_takes_strided_heads() -> None:
    rope, x = RoPE(4, 10000.0), some(2, 7, 3, 4)
    torch.testing.assert_close(rope.rotate(x.transpose(1, 2)), rope.rotate(x.transpose(1, 2).contiguous()))


def test_rope_counts_far_in_low_precision() -> None:
    """bf16 cannot tell position 4001 from 4000; the angles must be computed in float32."""
    rope, x = RoPE(8, 10000.0), torch.ones(1, 1, 4002, 8)
    torch.testing.assert_close(rope.rotate(x.bfloat16()).float(), rope.rotate(x.double()).float(), rtol=0, atol=0.02)


@pytest.mark.parametrize("head_dim", [1, 3, 21])
def test_rope_refuses_an_odd_head_size(head_dim: int) -> None:
    with pytest.raises(ValueError, match=r"position=rope.* even"):
        RoPE(head_dim, 10000.0)


def test_sinusoidal_formula() -> None:
    dim, base = 6, 50.0
    x = some(2, 9, dim)
    y = Sinusoidal(dim, base).embed(x)
    for t in range(9):
        for i in range(dim // 2):
            angle = t / base ** (2 * i / dim)
            torch.testing.assert_close(y[:, t, 2 * i], x[:, t, 2 * i] + math.sin(angle))
            torch.testing.assert_close(y[:, t, 2 * i + 1], x[:, t, 2 * i + 1] + math.cos(angle))


def test_sinusoidal_refuses_an_odd_width() -> None:
    with pytest.raises(ValueError, match=r"position=sinusoidal.*model\.dim"):
        Sinusoidal(7, 10000.0)


def test_learned_adds_a_row_per_position() -> None:
    learned, x = Learned(8, 12).double(), some(2, 5, 8)
    y = learned.embed(x)
    for t in range(5):
        torch.testing.assert_close(y[:, t], x[:, t] + learned.table.weight[t])
    y.sum().backward()
    grad = learned.table.weight.grad
    assert torch.equal(grad[:5], torch.full_like(grad[:5], 2.0)) and not grad[5:].any()


def test_none_leaves_everything_alone() -> None:
    position, x = Position(), some(2, 5, 8)
    assert position.embed(x) is x and position.rotate(x) is x and position.bias(5, 5) is None
    assert not list(position.parameters()) and not list(position.buffers())


def test_none_on_disk_is_the_empty_contract() -> None:
    assert type(from_disk("none")) is Position


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_keeps_shapes_and_types(variant: str, dtype: torch.dtype) -> None:
    position = from_disk(variant).to(dtype)
    embedded, head = some(2, 7, 8).to(dtype), some(2, 2, 7, 4).to(dtype)
    for x, y in ((embedded, position.embed(embedded)), (head, position.rotate(head))):
        assert x.shape == y.shape and x.dtype == y.dtype and y.isfinite().all()
    bias = position.bias(7, 7)
    assert bias is None or torch.broadcast_shapes(bias.shape, (2, 2, 7, 7)) == (2, 2, 7, 7)


@every
def test_a_position_does_not_depend_on_the_length(variant: str) -> None:
    position = from_disk(variant).double()
    embedded, head = some(2, 12, 8), some(2, 2, 12, 4)
    torch.testing.assert_close(position.embed(embedded)[:, :5], position.embed(embedded[:, :5]))
    torch.testing.assert_close(position.rotate(head)[:, :, :5], position.rotate(head[:, :, :5]))


@every
def test_a_position_encoding_acts_where_it_says(variant: str) -> None:
    """Nothing at all for `none`; for all others one of the three places tells two positions apart."""
    position = from_disk(variant).double()
    for parameter in position.parameters():
        nn.init.normal_(parameter)
    same, head = torch.ones(1, 4, 8).double(), torch.ones(1, 1, 4, 4).double()
    told_apart = [y.std(-2).max() > 1e-6 for y in (position.embed(same), position.rotate(head))]
    assert (any(told_apart) or position.bias(4, 4) is not None) == (variant != "none")


@pytest.mark.parametrize("variant", ["rope", "sinusoidal"])
@pytest.mark.parametrize("base", [0.0, -10000.0])
def test_impossible_bases_are_refused(variant: str, base: float) -> None:
    make = bind("position", read("position", variant) | {"base": base}, OFFERED)
    with pytest.raises(ValueError, match=r"position\.base"):
        make()
