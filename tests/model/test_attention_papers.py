"""Differential and latent attention against loops of their own in float64, and what they refuse."""

import math
from typing import Any

import pytest
import torch
from attentions import DIM, HEADS, SHAPE, randomised, turned
from model_variants import built
from tensors import some
from torch import Tensor

from ablate.model.attention import MLA, Differential
from ablate.model.position import PartialRoPE, Places, RoPE, thinned

B, T, D = 2, 5, 4


def rms(x: Tensor, norm: Any) -> Tensor:
    """x / √(mean x² + ε) · g."""
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def shares(query: Tensor, keys: Tensor, scale: float, t: int, causal: bool) -> Tensor:
    """What each key gets of a query (D,)."""
    weights = (keys @ query * scale).exp()
    weights = weights * (torch.arange(len(keys)) <= t) if causal else weights
    return weights / weights.sum()


def rotations(x: Tensor, where: str) -> Places:
    """RoPE on each of D features by the base 100, or nothing."""
    return RoPE(D, 100.0).places(x, True) if where == "turned" else Places()


@pytest.mark.parametrize(("kv_heads", "layer"), [(None, 0), (2, 3), (1, 3)])
@pytest.mark.parametrize("where", ["turned", "none", "across"])
def test_differential_attention_formula(kv_heads, where, layer):
    """Of head h: (1 − λ₀) · norm((A₁ − λ A₂) V), whose queries and keys are the halves of its D features."""
    a: Any = randomised(Differential(SHAPE, layer, kv_heads, True, None, 1e-5))
    x, causal = some(B, T, DIM), where != "across"
    source = x if causal else some(B, 7, DIM, seed=5)
    start, half = 0.8 - 0.6 * math.exp(-0.3 * layer), D // 2
    factor = math.exp(a.lambdas[0] @ a.lambdas[1]) - math.exp(a.lambdas[2] @ a.lambdas[3]) + start
    query, key, value = a.query(x), a.key(source), a.value(source)
    expected = torch.zeros(B, T, HEADS * D, dtype=torch.float64)
    for b in range(B):
        for h in range(HEADS):
            g = h * (kv_heads or HEADS) // HEADS
            for t in range(T):
                both = []
                for part in range(2):
                    q = query[b, t, h * D + part * half :][:half]
                    k = key[b, :, g * D + part * half :][:, :half]
                    if where == "turned":  # two features, one angle: that of t itself
                        q, k = turned(q, t), torch.stack([turned(each, s) for s, each in enumerate(k)])
                    both.append(shares(q, k, half**-0.5, t, causal) @ value[b, :, g * D : g * D + D])
                expected[b, t, h * D : h * D + D] = (1 - start) * rms(both[0] - factor * both[1], a.norm)
    got = a(x, rotations(x, where), causal, None, None if causal else source)
    assert float((got - a.out(expected)).abs().max()) < 1e-10


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_rotation_of_fewer_features_is_that_of_its_own_size(size):
    x = some(1, 6, 16)
    whole, own = RoPE(16, 100.0).places(x, True).rotation, RoPE(size, 100.0).places(x, True).rotation
    share = PartialRoPE(32, 100.0, 0.5).places(x, True).rotation
    assert whole is not None and own is not None and share is not None
    for rotation in (whole, share):
        for part, expected in zip(thinned(rotation, size), own, strict=True):
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-12)
        with pytest.raises(ValueError, match=f"rotates 16 features .* {size - 1}"):
            thinned(rotation, size - 1)


def test_lambdas_are_drawn_by_seed_and_each_layer_has_its_start():
    one, other, again = (built({"attention": "differential", "init": "torch"}, seed) for seed in (0, 1, 0))
    drawn = [torch.cat([*(x for n, x in m.named_parameters() if "lambdas" in n)]) for m in (one, other, again)]
    assert torch.equal(drawn[0], drawn[2]) and not torch.equal(drawn[0], drawn[1])
    assert 0.05 < float(torch.cat(drawn[:2]).std()) < 0.15
    starts = [block.attention.start for block in one.blocks]  # type: ignore[union-attr]
    assert starts == [0.8 - 0.6 * math.exp(-0.3 * layer) for layer in range(2)]


def test_what_cannot_be():
    with pytest.raises(ValueError, match="must be even"):
        Differential(SHAPE.__class__(**{**vars(SHAPE), "head_dim": 3}), 0, None, False, None, 1e-5)
    for name in ("kv_rank", "query_rank", "rope_dim"):
        sizes: dict[str, Any] = dict.fromkeys(("kv_rank", "query_rank", "rope_dim")) | {name: 0}
        with pytest.raises(ValueError, match=f"^{name} must be ≥ 1"):
            MLA(SHAPE, **sizes, bias=False, scale=None, eps=1e-6)
