"""Attention: both backends against a loop of its own in float64; masks, biases, dropout."""

from __future__ import annotations

import math

import pytest
import torch
from test_variants import read, variants
from torch import Tensor

from ablate.build import bind
from ablate.model.attention import MHA, attend, attend_explicit, attend_fused
from ablate.model.dropout import Dropout, rekey
from ablate.model.position import Position, RoPE

B, H, T, S, D = 3, 2, 6, 6, 4


def some(*shape: int, seed: int = 0) -> Tensor:
    """Numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def triple(queries: int = T, keys: int = S) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    return some(B, H, queries, D, seed=1), some(B, H, keys, D, seed=2), some(B, H, keys, D, seed=3)


def some_mask(where: str) -> Tensor | None:
    """(B, S), 1 at real keys."""
    mask = torch.ones(B, S)
    if where == "right":
        mask[1, 4:], mask[2, 1:] = 0, 0
    elif where == "holes":
        mask[1, 2:4], mask[2, 1::2] = 0, 0
    elif where == "left":
        mask[1, :2], mask[2, :5] = 0, 0
    return None if where == "none" else mask


def naive(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, bias: Tensor | None, mask: Tensor | None
) -> dict[tuple[int, int, int], Tensor]:
    """Attention, one query at a time, for those queries that see a key at all."""
    found = {}
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for t in range(query.shape[2]):
                seen = [s for s in range(key.shape[2]) if (mask is None or mask[b, s]) and (s <= t or not causal)]
                scores = [float(query[b, h, t] @ key[b, h, s]) / math.sqrt(query.shape[-1]) for s in seen]
                if bias is not None:
                    full = bias.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
                    scores = [score + float(full[b, h, t, s]) for score, s in zip(scores, seen, strict=True)]
                if seen:
                    weights = [math.exp(score - max(scores)) for score in scores]
                    mean = sum(w * value[b, h, s] for w, s in zip(weights, seen, strict=True)) / sum(weights)
                    found[b, h, t] = mean  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("backend", [attend_explicit, attend_fused, attend])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("biased", [(), (H, T, S), (1, H, T, S), (B, 1, T, S), (T, S)], ids=str)
@pytest.mark.parametrize("where", ["none", "right", "left", "holes"])
def test_backends_are_the_naive_loop(backend, causal: bool, biased: tuple[int, ...], where: str) -> None:  # type: ignore[no-untyped-def]
    query, key, value = triple()
    bias, mask = some(*biased, seed=4) if biased else None, some_mask(where)
    got = backend(query, key, value, causal, bias, mask)
    assert got.shape == query.shape and got.isfinite().all()
    expected = naive(query, key, value, causal, bias, mask)
    assert len(expected) >= B * H * T // 2
    for place, row in expected.items():
        torch.testing.assert_close(got[place], row, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", [attend_explicit, attend_fused])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("keys", [3, 9])
def test_queries_and_keys_of_different_number(backend, biased: bool, keys: int) -> None:  # type: ignore[no-untyped-def]
    query, key, value = triple(keys=keys)
    bias = some(H, T, keys, seed=4) if biased else None
    for causal in (False, True):
        got = backend(query, key, value, causal, bias, None)
        for place, row in naive(query, key, value, causal, bias, None).items():
            torch.testing.assert_close(got[place], row, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("where", ["none", "right", "left"])
def test_backends_have_the_same_gradients(biased: bool, where: str) -> None:
    mask = some_mask(where)
    real = torch.ones(B, S, dtype=torch.bool) if mask is None else mask.bool()
    grads = []
    for backend in (attend_explicit, attend_fused):
        inputs = [x.requires_grad_() for x in (*triple(), some(H, T, S, seed=4))]
        y = backend(*inputs[:3], True, inputs[3] if biased else None, mask)
        y.transpose(1, 2)[real].sin().sum().backward()  # a padded query may have any output
        grads.append([x.grad for x in inputs if x.grad is not None])
    assert len(grads[0]) == 3 + biased
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("backend", [attend_explicit, attend_fused])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wide", [False, True], ids=["bias", "float32 bias"])
def test_a_query_that_sees_nothing_stays_finite(backend, dtype: torch.dtype, wide: bool) -> None:  # type: ignore[no-untyped-def]
    """Its output is nobody's, but a value that is no number would reach others in the next layer through 0 · nan."""
    query, key, value = (x.to(dtype) for x in triple())
    for bias in (None, some(H, T, S, seed=4).to(torch.float32 if wide else dtype)):
        for causal in (True, False):
            mask = some_mask("left")
            assert mask is not None
            mask[2] = 0
            y = backend(query, key, value, causal, bias, mask)
            assert y.isfinite().all() and y.dtype == dtype


@pytest.mark.parametrize("backend", [attend_explicit, attend_fused])
def test_large_scores_do_not_overflow(backend) -> None:  # type: ignore[no-untyped-def]
    query, key, value = (x.float() for x in triple())
    got = backend(100 * query, 100 * key, value, True, None, None)
    assert got.isfinite().all()
    best = (query @ key.mT).masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(), -math.inf).argmax(-1)
    torch.testing.assert_close(got, value.gather(2, best[..., None].expand(-1, -1, -1, D)), rtol=1e-3, atol=1e-3)


def test_dropout_falls_on_the_shares() -> None:
    query, key, value = triple()
    dropout = Dropout(0.4)
    rekey(torch.nn.ModuleDict({"dropout": dropout}), 0, 0)
    shares = (query @ key.mT / math.sqrt(D)).softmax(-1)
    expected = dropout(shares) @ value
    torch.testing.assert_close(attend(query, key, value, False, dropout=dropout), expected)
    dropout.eval()
    torch.testing.assert_close(attend(query, key, value, False, dropout=dropout), shares @ value)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("position", [Position(), RoPE(4, 10000.0)], ids=["none", "rope"])
def test_multi_head_attention_formula(bias: bool, causal: bool, position: Position) -> None:
    """concat_h(softmax(Q_h K_hᵀ / √D) V_h) W_out, head h being features h · D … (h + 1) · D − 1 of the projections."""
    mha, x = MHA(8, 2, 0.0, bias).double(), some(3, 5, 8)
    if bias:
        for linear in (mha.query, mha.key, mha.value, mha.out):
            torch.nn.init.normal_(linear.bias)
    heads = []
    for h in range(2):
        part = slice(4 * h, 4 * h + 4)
        query, key, value = (f(x)[..., part] for f in (mha.query, mha.key, mha.value))
        query, key = position.rotate(query[:, None])[:, 0], position.rotate(key[:, None])[:, 0]
        scores = torch.einsum("btd,bsd->bts", query, key) / math.sqrt(4)
        if causal:
            scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        heads.append(scores.softmax(-1) @ value)
    expected = torch.cat(heads, -1) @ mha.out.weight.T + (mha.out.bias if bias else 0)
    torch.testing.assert_close(mha(x, position, causal), expected)


def test_a_position_s_bias_reaches_the_scores() -> None:
    class Recency(Position):
        def bias(self, queries: int, keys: int) -> Tensor:
            return -100.0 * (torch.arange(queries)[:, None] - torch.arange(keys)).abs().double()

    mha, x = MHA(8, 2, 0.0, False).double(), some(3, 5, 8)
    for causal in (False, True):  # everybody looks at itself alone
        torch.testing.assert_close(mha(x, Recency(), causal), mha.out(mha.value(x)), rtol=1e-6, atol=1e-6)


def test_without_positions_and_causality_order_does_not_matter() -> None:
    mha, x, order = MHA(8, 2, 0.0, False).double(), some(3, 5, 8), [3, 1, 4, 0, 2]
    y = mha(x, Position(), False)
    torch.testing.assert_close(mha(x[:, order], Position(), False), y[:, order])


@pytest.mark.parametrize(("dim", "heads"), [(64, 3), (8, 16)])
def test_heads_must_divide_the_width(dim: int, heads: int) -> None:
    with pytest.raises(ValueError, match=rf"model\.dim={dim}.*model\.heads={heads}"):
        MHA(dim, heads, 0.0, False)


@pytest.mark.parametrize("variant", variants("attention"))
@pytest.mark.parametrize("training", [False, True])
def test_padded_keys_are_never_looked_at(variant: str, training: bool) -> None:
    offered = {"dim": 8, "heads": 2, "head_dim": 4, "layers": 2, "dropout": 0.3, "context": 12}
    attention = bind("attention", read("attention", variant), offered)().double().train(training)
    rekey(torch.nn.ModuleDict({"attention": attention}), 0, 0)
    x, mask = some(B, S, 8), some_mask("holes")
    assert mask is not None
    real = mask.bool()
    other = torch.where(real[..., None], x, 1e3 * some(B, S, 8, seed=5))
    for causal in (False, True):
        before, after = (attention(z, Position(), causal, mask) for z in (x, other))
        torch.testing.assert_close(before[real], after[real])
