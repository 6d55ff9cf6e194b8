"""The product of attention: both backends against a loop of its own in float64; masks, biases, windows, dropout."""

import math
from typing import Any

import pytest
import torch
from tensors import B, D, H, S, T, some, some_mask
from torch import Tensor

from ablate.model.attend import Rules, attend, attend_explicit, attend_fused, in_float32
from ablate.model.dropout import Dropout, rekey


def triple(queries: int = T, keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    return some(B, H, queries, D, seed=1), some(B, H, keys, D, seed=2), some(B, H, keys, D, seed=3)


def naive(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, bias: Any, mask: Any, scale: Any, window: Any
) -> dict[tuple[int, int, int], Tensor]:
    """Attention, one query at a time, for those queries that see a key at all."""
    found = {}
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for t in range(query.shape[2]):
                seen = [s for s in range(key.shape[2]) if (mask is None or mask[b, s]) and (s <= t or not causal)]
                seen = [s for s in seen if window is None or abs(t - s) < window]
                factor = query.shape[-1] ** -0.5 if scale is None else scale
                scores = [float(query[b, h, t] @ key[b, h, s]) * factor for s in seen]
                if bias is not None:
                    full = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
                    scores = [score + float(full[b, h, t, s]) for score, s in zip(scores, seen, strict=True)]
                if seen:
                    weights = [math.exp(score - max(scores)) for score in scores]
                    mean = sum(w * value[b, h, s] for w, s in zip(weights, seen, strict=True)) / sum(weights)
                    found[b, h, t] = mean  # type: ignore[assignment]
    return found


# (shape of the bias, padding, scale, window, number of keys): each alone, and together.
GIVEN: list[tuple[tuple[int, ...], str, float | None, int | None, int]] = [
    ((), "none", None, None, S),
    ((H, T, S), "right", None, None, S),
    ((B, 1, T, S), "left", 1.0, None, S),
    ((T, S), "holes", 0.3, None, S),
    ((), "left", None, 3, S),
    ((), "none", 0.3, 1, S),
    ((H, T, S), "right", 0.3, 5, S),
    ((T, S), "holes", None, 50, S),
    ((), "none", None, 3, 3),
    ((H, T, 9), "none", None, 3, 9),
    ((), "none", None, None, 9),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("biased", "where", "scale", "window", "keys"), GIVEN)
def test_backends_are_the_naive_loop(causal, biased, where, scale, window, keys):
    bias, mask = some(*biased, seed=4) if biased else None, some_mask(where)
    expected = naive(*triple(keys=keys), causal, bias, mask, scale, window)
    assert len(expected) >= B * H * T // 3
    for backend in (attend_explicit, attend_fused, attend):
        got = backend(*triple(keys=keys), causal, Rules(bias, mask, scale=scale, window=window))
        assert got.shape == (B, H, T, D) and got.isfinite().all()
        found = torch.stack([got[place] for place in expected])  # of queries that see a key
        torch.testing.assert_close(found, torch.stack([*expected.values()]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", [attend_explicit, attend_fused])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_query_that_sees_nothing_stays_finite(backend, dtype):
    """Its output is nobody's, but a value that is no number would reach others in the next layer through 0 · nan."""
    query, key, value = (x.to(dtype) for x in triple())
    mask = torch.tensor([[1] * S, [0, 0] + [1] * (S - 2), [0] * S])
    for bias in (None, some(H, T, S, seed=4).to(dtype), some(H, T, S, seed=4).float()):
        for causal in (True, False):
            inputs = [x.detach().requires_grad_() for x in (query, key, value)]
            y = backend(*inputs, causal, Rules(bias, mask))
            assert y.isfinite().all() and y.dtype == dtype
            y.float().sin().sum().backward()
            assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs)


def test_dropout_falls_on_the_shares():
    query, key, value = triple()
    dropout = Dropout(0.4)
    rekey(torch.nn.ModuleDict({"dropout": dropout}), 0, 0)
    shares = (query @ key.mT / math.sqrt(D)).softmax(-1)
    expected = dropout(shares) @ value
    torch.testing.assert_close(attend(query, key, value, False, Rules(dropout=dropout)), expected)
    scaled = (query @ key.mT * 0.2).masked_fill(torch.ones(T, S).triu(1).bool(), -math.inf)
    got = attend(query, key, value, True, Rules(dropout=dropout, scale=0.2))
    torch.testing.assert_close(got, dropout(scaled.softmax(-1)) @ value)
    dropout.eval()
    torch.testing.assert_close(attend(query, key, value, False, Rules(dropout=dropout)), shares @ value)


def test_scores_keep_float32_under_autocast():
    query, key = (x.to(torch.bfloat16) for x in triple()[:2])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, rounded = in_float32(query, key), query @ key.transpose(-2, -1)
    assert found.dtype == torch.float32 and rounded.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), query.double() @ key.double().mT, rtol=1e-6, atol=1e-6)
    assert in_float32(*triple()[:2]).dtype == torch.float64
