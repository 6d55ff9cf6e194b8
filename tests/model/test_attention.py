"""Attention modules against formulas of their own in float64, over a sequence itself and over a memory."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from empty_task import some_shape
from test_attend import B, S, some, some_mask
from test_variants import read, variants
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.model.attend import attend_explicit
from ablate.model.attention import GQA, MHA, MQA, Gated, QKNorm, Window
from ablate.model.build import offered
from ablate.model.dropout import rekey
from ablate.model.position import Places, RoPE, rotate

DIM, HEADS = 12, 4
SHAPE = some_shape(DIM, HEADS, head_dim=4)  # a head is wider than dim / heads, so that nothing fits by chance
OFFERED = offered(SHAPE) | {"layer": 0}
NOWHERE = Places()
SCORING = [v for v in variants("attention") if ".mixers." not in read("attention", v)["_target_"]]  # test_mixers.py
every = pytest.mark.parametrize("variant", SCORING)


def randomised(attention: Any) -> Any:
    """In float64, biases and gains drawn, too."""
    for seed, parameter in enumerate(attention.double().parameters()):
        with torch.no_grad():
            parameter.copy_(0.5 * some(*parameter.shape, seed=seed))
    return attention


def from_disk(variant: str, **more: Any) -> Any:
    """A variant as its YAML describes it."""
    return randomised(bind("attention", read("attention", variant) | more, OFFERED)())


def by_hand(
    attention: Any,
    x: Tensor,
    places: Places,
    causal: bool,
    mask: Tensor | None = None,
    memory: Tensor | None = None,
    window: int | None = None,
    prepare: Any = lambda query, key: (query, key),
) -> Tensor:
    """What each head finds, side by side, from the weights alone: (B, T, H · D)."""
    source, heads = x if memory is None else memory, []
    size, count = attention.head_dim, attention.query.out_features // attention.head_dim
    shared = attention.query.out_features // attention.key.out_features
    query, key, value = F.linear(x, *wb(attention.query)), F.linear(source, *wb(attention.key)), attention.value(source)
    query, key = prepare(query, key)
    for h in range(count):
        q, (k, v) = (
            query[..., h * size : (h + 1) * size],
            (y[..., h // shared * size : (h // shared + 1) * size] for y in (key, value)),
        )
        q, k = rotate(q[:, None], places.rotation), rotate(k[:, None], places.rotation)
        bias = None if places.bias is None else places.bias[h]
        heads.append(attend_explicit(q, k, v[:, None], causal, bias, mask, None, attention.scale, window)[:, 0])
    return torch.cat(heads, -1)


def wb(linear: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias."""
    return linear.weight, linear.bias


def all_places(length: int) -> list[Places]:
    """None, a rotation, a bias, and both."""
    rotation, bias = RoPE(4, 100.0).places(some(1, length, DIM), True).rotation, some(HEADS, length, length, seed=8)
    return [NOWHERE, Places(rotation), Places(None, bias), Places(rotation, bias)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_multi_head_attention_formula(bias: bool, causal: bool, scale: float | None) -> None:
    """concat_h(softmax(Q_h K_hᵀ · scale) V_h) W_out, head h being features h · D … (h + 1) · D − 1."""
    mha, x = randomised(MHA(some_shape(8), bias, scale)), some(3, 5, 8)
    for places in (NOWHERE, RoPE(4, 10000.0).places(x, causal), Places(None, some(2, 5, 5, seed=3))):
        heads = []
        for h in range(2):
            part = slice(4 * h, 4 * h + 4)
            query, key, value = (f(x)[..., part] for f in (mha.query, mha.key, mha.value))
            query, key = (rotate(y[:, None], places.rotation)[:, 0] for y in (query, key))
            scores = torch.einsum("btd,bsd->bts", query, key) * (0.5 if scale is None else scale)
            scores = scores + (0 if places.bias is None else places.bias[h])
            if causal:
                scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(-1) @ value)
        expected = torch.cat(heads, -1) @ mha.out.weight.T + (mha.out.bias if bias else 0)
        torch.testing.assert_close(mha(x, places, causal), expected)


@pytest.mark.parametrize("kv_heads", [1, 2, 4, None])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_queries_are_multi_head_attention_with_repeated_weights(kv_heads: int | None, causal: bool) -> None:
    """Head h reads the keys and values of group ⌊h / (heads per group)⌋."""
    gqa, x = randomised(GQA(SHAPE, kv_heads, True, None)), some(2, 5, DIM)
    mha, groups = MHA(SHAPE, True, None).double(), kv_heads or HEADS
    assert gqa.key.weight.shape == gqa.value.weight.shape == (4 * groups, DIM)
    weights = dict(gqa.state_dict())
    for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
        by_group = weights[name].unflatten(0, (groups, 4))
        weights[name] = torch.stack([by_group[h * groups // HEADS] for h in range(HEADS)]).flatten(0, 1)
    mha.load_state_dict(weights)
    for places in all_places(5):
        torch.testing.assert_close(gqa(x, places, causal), mha(x, places, causal))


def test_multi_query_attention_is_one_group() -> None:
    mqa, gqa = (randomised(a) for a in (MQA(SHAPE, False, None), GQA(SHAPE, 1, False, None)))
    assert mqa.key.weight.shape == (4, DIM)
    torch.testing.assert_close(mqa(some(2, 5, DIM), NOWHERE, True), gqa(some(2, 5, DIM), NOWHERE, True), rtol=0, atol=0)


@pytest.mark.parametrize("variant", [v for v in variants("attention") if "kv_heads" in read("attention", v)])
@pytest.mark.parametrize("kv_heads", [0, 3, 8, -1])
def test_groups_must_divide_the_heads(variant: str, kv_heads: int) -> None:
    with pytest.raises(ValueError, match=rf"attention\.kv_heads={kv_heads} must divide model\.heads=4"):
        bind("attention", read("attention", variant) | {"kv_heads": kv_heads}, OFFERED)()


def rms(x: Tensor, gain: Tensor) -> Tensor:
    """x / √(mean x² + ε) · g."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain


@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("over", ["head", "all"])
def test_queries_and_keys_are_normed_before_they_turn(over: str, kv_heads: int | None) -> None:
    made: Any = QKNorm(SHAPE, kv_heads, True, None, over=over, eps=1e-6)  # type: ignore[arg-type]
    attention, x = randomised(made), some(2, 5, DIM)
    assert attention.query_norm.weight.shape == ((4,) if over == "head" else (16,))

    def prepare(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        gains = attention.query_norm.weight, attention.key_norm.weight
        if over == "all":
            return rms(query, gains[0]), rms(key, gains[1])
        pieces = [[rms(p, g) for p in y.split(4, -1)] for y, g in zip((query, key), gains, strict=True)]
        return torch.cat(pieces[0], -1), torch.cat(pieces[1], -1)

    for places in all_places(5):
        for causal in (False, True):
            expected = attention.out(by_hand(attention, x, places, causal, prepare=prepare))
            torch.testing.assert_close(attention(x, places, causal), expected)


@pytest.mark.parametrize("over", ["head", "all"])
def test_normed_scores_do_not_grow_with_the_weights(over: str) -> None:
    attention = from_disk("qk_norm", over=over, eps=1e-30)
    x, larger = some(2, 5, DIM), copy.deepcopy(attention)
    with torch.no_grad():
        larger.query.weight.mul_(1000)
        larger.key.weight.mul_(1000)
    torch.testing.assert_close(attention(x, NOWHERE, True), larger(x, NOWHERE, True), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_hides_what_is_farther_away(window: int, causal: bool) -> None:
    attention, x = randomised(Window(SHAPE, 2, False, None, window=window)), some(2, 7, DIM)
    for places in all_places(7):
        torch.testing.assert_close(
            attention(x, places, causal), attention.out(by_hand(attention, x, places, causal, window=window))
        )
    other = x.clone()
    other[:, 3] += 1
    moved = (attention(x, NOWHERE, causal) - attention(other, NOWHERE, causal)).abs().amax((0, 2)) > 1e-9
    reached = [t for t in range(7) if abs(t - 3) < window and (t >= 3 or not causal)]
    assert moved.nonzero().flatten().tolist() == reached


def test_what_lies_across_stacks_is_seen_whole() -> None:
    attention, x, memory = randomised(Window(SHAPE, 2, False, None, window=1)), some(2, 5, DIM), some(2, 9, DIM)
    whole = attention.out(by_hand(attention, x, NOWHERE, False, memory=memory))
    torch.testing.assert_close(attention(x, NOWHERE, False, None, memory), whole)


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_must_hold_its_own_position(window: int) -> None:
    with pytest.raises(ValueError, match=rf"attention\.window must be ≥ 1, not {window}"):
        Window(SHAPE, None, False, None, window=window)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_a_gate_of_the_query_s_token_closes_what_its_heads_found(bias: bool, across: bool) -> None:
    attention, x = randomised(Gated(SHAPE, 2, bias, None)), some(2, 5, DIM)
    memory = some(2, 9, DIM, seed=5) if across else None
    found = by_hand(attention, x, NOWHERE, not across, memory=memory)
    gate = 1 / (1 + (-(x @ attention.gate.weight.T + (attention.gate.bias if bias else 0))).exp())
    torch.testing.assert_close(attention(x, NOWHERE, not across, None, memory), attention.out(gate * found))


# ---- every variant on disk


@every
def test_without_positions_and_causality_order_does_not_matter(variant: str) -> None:
    attention, x, order = from_disk(variant), some(3, 5, DIM), [3, 1, 4, 0, 2]
    y = attention(x, NOWHERE, False)  # no window on disk is as narrow
    torch.testing.assert_close(attention(x[:, order], NOWHERE, False), y[:, order])


@every
def test_a_position_s_bias_reaches_the_scores(variant: str) -> None:
    """With a bias against all others everybody looks at itself alone."""
    attention, x, t = from_disk(variant), some(3, 5, DIM), torch.arange(5)
    alone = Places(None, -1e4 * (t[:, None] - t).abs().double().expand(HEADS, 5, 5))
    for causal in (False, True):
        one_by_one = torch.cat([attention(x[:, i : i + 1], NOWHERE, causal) for i in range(5)], 1)
        torch.testing.assert_close(attention(x, alone, causal), one_by_one)


@every
def test_a_memory_of_another_length_is_attended_to_with_its_own_mask(variant: str) -> None:
    attention, x, memory = from_disk(variant), some(B, 4, DIM), some(B, 6, DIM, seed=1)
    mask = some_mask("holes")
    assert mask is not None
    got = attention(x, NOWHERE, False, mask, memory)
    assert got.shape == x.shape
    for b in range(B):  # one example at a time, its padding cut out
        short = memory[b : b + 1, mask[b].bool()]
        torch.testing.assert_close(got[b : b + 1], attention(x[b : b + 1], NOWHERE, False, None, short))
    order = [2, 0, 5, 1, 4, 3]
    torch.testing.assert_close(got, attention(x, NOWHERE, False, mask[:, order], memory[:, order]))
    assert (got - attention(x, NOWHERE, False, None, memory))[1:].abs().amax(-1).min() > 1e-6


@every
def test_queries_come_from_the_stream_and_values_from_the_memory(variant: str) -> None:
    attention, x, memory = from_disk(variant), some(2, 4, DIM), some(2, 6, DIM, seed=1)
    torch.testing.assert_close(attention(x, NOWHERE, False, None, x), attention(x, NOWHERE, False))
    other = x.clone()
    other[:, 2] += 1
    moved = attention(x, NOWHERE, False, None, memory) - attention(other, NOWHERE, False, None, memory)
    assert moved.abs().amax((0, 2)).gt(1e-9).tolist() == [False, False, True, False]  # no token sees another's query


@every
@pytest.mark.parametrize("across", [False, True], ids=["self", "cross"])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_bf16_autocast_stays_finite_and_near(variant: str, across: bool, dropout: float) -> None:
    attention = from_disk(variant).float()
    attention.dropout.p = dropout
    rekey(nn.ModuleDict({"attention": attention}), 0, 0)
    x, mask = some(B, S, DIM).float().requires_grad_(), some_mask("left")
    places = NOWHERE if across else Places(RoPE(4, 100.0).places(x, True).rotation, some(HEADS, S, S).float())
    given = (x, places, not across, mask, some(B, S, DIM, seed=1).float() if across else None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = attention(*given)
    low.float().square().sum().backward()
    assert mask is not None and low.isfinite().all() and x.grad is not None and x.grad.isfinite().all()
    seen, full = mask.bool() | across, attention(*given).detach()
    torch.testing.assert_close(low[seen].float(), full[seen], rtol=0.1, atol=0.05 * float(full.abs().max()))


@every
@pytest.mark.parametrize("training", [False, True])
def test_padded_keys_are_never_looked_at(variant: str, training: bool) -> None:
    attention = from_disk(variant).train(training)
    attention.dropout.p = 0.3
    rekey(torch.nn.ModuleDict({"attention": attention}), 0, 0)
    x, mask = some(B, S, DIM), some_mask("holes")
    assert mask is not None
    real = mask.bool()
    other = torch.where(real[..., None], x, 1e3 * some(B, S, DIM, seed=5))
    for causal in (False, True):
        before, after = (attention(z, NOWHERE, causal, mask) for z in (x, other))
        torch.testing.assert_close(before[real], after[real])
