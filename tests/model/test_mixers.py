"""Mixers in attention's place against their recurrent definitions, token by token in float64, from weights alone."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attentions import from_disk
from empty_task import Blank
from model_variants import CONTEXT, ONE_WAY, SCORING, VOCAB, built, configuration, variants
from tensors import some
from torch import Tensor

from ablate.config.errors import BadComponent
from ablate.model.cost import count
from ablate.model.position import Places, RoPE, rotate

DIM, HEADS = 12, 4  # a head has 4 features
LONG = 150  # more than two chunks of 64, and no multiple of one
NOWHERE = Places()
TURNED = Places(RoPE(4, 100.0).places(some(1, LONG, DIM), True).rotation)
MIXERS = sorted({*variants("attention")} - {*SCORING})
every = pytest.mark.parametrize("variant", MIXERS)


def heads(x: Tensor) -> Tensor:
    """(B, T, H · D) -> (T, B, H, D)."""
    return x.unflatten(-1, (HEADS, -1)).transpose(0, 1)


def side_by_side(found: list[Tensor]) -> Tensor:
    """T of (B, H, V) -> (B, T, H · V)."""
    return torch.stack(found, 1).flatten(-2)


def rms(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    """x / √(mean x² + ε) · g."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def outer(key: Tensor, value: Tensor) -> Tensor:
    """(B, H, D), (B, H, V) -> (B, H, D, V)."""
    return key[..., :, None] * value[..., None, :]


def read_by(query: Tensor, state: Tensor) -> Tensor:
    """Sᵀ q: (B, H, D), (B, H, D, V) -> (B, H, V)."""
    return (query[..., :, None] * state).sum(-2)


def gated(mixer: Any, x: Tensor, found: list[Tensor]) -> Tensor:
    """W_out(silu(W_gate x) ⊙ RMSNorm_h(o))."""
    normed = side_by_side([rms(o, mixer.norm.weight, mixer.norm.eps) for o in found])
    return mixer.out(F.silu(mixer.gate(x)) * normed)


def convolved(mixer: Any, x: Tensor) -> list[Tensor]:
    """silu of the weighted sum of the last four tokens' queries, keys and values, before heads are split."""
    made = torch.cat([mixer.query(x), mixer.key(x), mixer.value(x)], -1)
    taps, y = mixer.convolution.weight, torch.zeros_like(made)
    for t in range(x.shape[1]):
        for j in range(min(t + 1, taps.shape[1])):
            y[:, t] += taps[:, j] * made[:, t - j]
    return list(F.silu(y).split(mixer.sizes, -1))


def decay_and_step(mixer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """exp(−exp(A) Δ) and Δ = softplus(W x + b): two of (B, T, H)."""
    step = F.softplus(mixer.decay.step(x) + mixer.decay.bias)
    return (-mixer.decay.rate.exp() * step).exp(), step


def linear(mixer: Any, x: Tensor, places: Places) -> Tensor:
    state, normaliser, found = 0.0, 0.0, []
    made = zip(*(heads(part(x)) for part in (mixer.query, mixer.key, mixer.value)), strict=True)
    for q, k, v in made:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state, normaliser = state + outer(k, v), normaliser + k
        found.append(read_by(q, state) / ((q * normaliser).sum(-1, keepdim=True) + mixer.eps))
    return mixer.out(side_by_side(found))


def retention(mixer: Any, x: Tensor, places: Places) -> Tensor:
    query, key = (
        rotate(heads(part(x)).permute(1, 2, 0, 3), places.rotation).permute(2, 0, 1, 3)
        for part in (mixer.query, mixer.key)
    )
    fading = 1 - 2.0 ** (-5 - torch.arange(HEADS).double())
    state, found = 0.0, []
    for q, k, v in zip(query, key, heads(mixer.value(x)), strict=True):
        state = fading[:, None, None] * state + outer(k, v)
        found.append(read_by(q / 2, state))  # of 4 features
    return gated(mixer, x, found)


def gla(mixer: Any, x: Tensor, places: Places) -> Tensor:
    alpha = heads(torch.sigmoid(mixer.decay(mixer.rank(x))) ** (1 / 16))
    state, found = 0.0, []
    parts = (heads(part(x)) for part in (mixer.query, mixer.key, mixer.value))
    for q, k, v, a in zip(*parts, alpha, strict=True):
        state = a[..., None] * state + outer(k, v)
        found.append(read_by(q, state))
    return gated(mixer, x, found)


def gated_deltanet(mixer: Any, x: Tensor, places: Places, mask: Tensor | None = None) -> Tensor:
    """In padding, where the convolution still carries tokens on, neither α nor β touches the state."""
    real = torch.ones(x.shape[:2]).double()[..., None] if mask is None else mask[..., None]
    query, key, value = (heads(y) for y in convolved(mixer, x * real))  # without a bias: nothing comes of nothing
    query, key = (y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (query, key))
    alpha, beta = decay_and_step(mixer, x)[0] ** real, torch.sigmoid(mixer.beta(x)) * real
    state, found = torch.zeros(len(x), HEADS, key.shape[-1], value.shape[-1]).double(), []
    for t, (q, k, v) in enumerate(zip(query, key, value, strict=True)):
        a, b = alpha[:, t, :, None, None], beta[:, t, :, None, None]
        state = a * (state - b * outer(k, read_by(k, state))) + b * outer(k, v)
        found.append(read_by(q, state))
    return gated(mixer, x, found)


def mamba2(mixer: Any, x: Tensor, places: Places) -> Tensor:
    query, key, value = convolved(mixer, x)
    alpha, step = decay_and_step(mixer, x)
    state, found = 0.0, []
    for t, v in enumerate(heads(value)):
        k, q = (y[:, t, None].expand(-1, HEADS, -1) for y in (key, query))
        state = alpha[:, t, :, None, None] * state + step[:, t, :, None, None] * outer(k, v)
        found.append(read_by(q, state) + mixer.skip[:, None] * v)
    return mixer.out(rms(F.silu(mixer.gate(x)) * side_by_side(found), mixer.norm.weight, mixer.norm.eps))


RECURRENT = {mixer.__name__: mixer for mixer in (linear, retention, gla, gated_deltanet, mamba2)}


def test_every_mixer_has_a_recurrent_definition():
    assert {*MIXERS} == RECURRENT.keys(), "write in RECURRENT what it computes, token by token"


@every
@pytest.mark.parametrize("length", [1, 64, 65, LONG])
def test_in_parallel_as_token_by_token(variant, length):
    mixer, x = from_disk(variant), some(2, length, DIM)
    rotation = TURNED.rotation
    places = Places((rotation[0][:length], rotation[1][:length]))  # type: ignore[index]
    with torch.no_grad():
        torch.testing.assert_close(mixer(x, places, True), RECURRENT[variant](mixer, x, places), rtol=1e-10, atol=1e-10)


@every
def test_a_state_passes_padding_as_it_is(variant):
    """What stands beyond a hole sees what stands before it as if the hole were cut out.

    Retention fades by positions, padded ones, too; a short convolution finds zeros in the hole, and has one tap here.
    """
    mixer, x, mask = from_disk(variant), some(1, LONG, DIM), torch.ones(1, LONG)
    mask[0, 20:100] = 0
    if hasattr(mixer, "convolution"):
        with torch.no_grad():
            mixer.convolution.weight[:, 1:] = 0
    kept = mask[0].bool()
    got = mixer(x, NOWHERE, True, mask)[:, kept]
    if variant == "retention":
        silent = x.masked_fill(~kept[:, None], 0)  # it has no bias: nothing comes of nothing
        torch.testing.assert_close(got, mixer(silent, NOWHERE, True)[:, kept], rtol=1e-10, atol=1e-10)
    else:
        torch.testing.assert_close(got, mixer(x[:, kept], NOWHERE, True), rtol=1e-10, atol=1e-10)


@every
def test_strong_decays_neither_overflow_nor_lose_what_is_near(variant):
    """In float32 over a thousand positions, with gates wide open and shut: as in float64, and with finite gradients."""
    mixer, x = from_disk(variant), 8 * some(2, 1000, DIM)
    exact = mixer(x, NOWHERE, True).detach()
    low, near = mixer.float(), x.float().requires_grad_()
    found = low(near, NOWHERE, True)
    found.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (near, *low.parameters()))
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max()))


# ---- linear attention over both directions, and over a memory


@pytest.mark.parametrize("across", [False, True], ids=["self", "cross"])
def test_linear_attention_over_all_that_is_real(across):
    """Σ_s φ(q)·φ(k_s) v_s / (Σ_s φ(q)·φ(k_s) + ε) over the real positions s of its own sequence, or of a memory."""
    mixer, x = from_disk("linear"), some(2, 5, DIM)
    source, mask = some(2, 7, DIM, seed=3) if across else x, torch.ones(2, 7 if across else 5)
    mask[0, 1:3] = 0
    query, key, value = (heads(part(y)) for part, y in ((mixer.query, x), (mixer.key, source), (mixer.value, source)))
    expected = []
    for q in F.elu(query) + 1:
        shares = torch.stack([(q * (F.elu(k) + 1)).sum(-1) for k in key]) * mask.T[..., None]  # (S, B, H)
        expected.append((shares[..., None] * value).sum(0) / (shares.sum(0)[..., None] + mixer.eps))
    got = mixer(x, NOWHERE, False, mask, source if across else None)
    torch.testing.assert_close(got, mixer.out(side_by_side(expected)), rtol=1e-10, atol=1e-10)


# ---- what they cannot do, what does not reach them, what they cost


@pytest.mark.parametrize(("variant", "setting"), [("gla", "key_share"), ("retention", "expand"), ("mamba2", "expand")])
def test_a_share_of_a_head_must_be_whole(variant, setting):
    with pytest.raises(BadComponent, match=r"^0\.3 of a head's 4 features would be 1\.2") as caught:
        from_disk(variant, **{setting: 0.3})
    assert caught.value.key == f"attention.{setting}"


@pytest.mark.parametrize("variant", sorted(ONE_WAY))
def test_what_reads_from_left_to_right_is_refused_where_all_is_seen(variant):
    """No encoder, and nothing across stacks."""
    for form, message in (
        (("encoder", "mlm"), "choose another"),
        (("encoder_decoder", "seq2seq"), "cross_attention=mha"),
    ):
        with pytest.raises(ValueError, match=message):
            built({"attention": variant}, form=form)


@pytest.mark.parametrize(("variant", "position"), [("retention", "alibi"), ("retention", "rope"), ("gla", "rope")])
def test_a_plan_says_which_positions_do_not_reach_a_mixer(variant, position):
    notes = count(configuration({"attention": variant, "position": position}), Blank()).notes
    reached = (variant, position) == ("retention", "rope")
    assert [note for note in notes if "does not reach it" in note] == notes and len(notes) == (not reached)


def test_a_mixer_states_what_counting_products_does_not_see():
    """GLA's, of one chunk of 12 positions, by hand: pairs by feature; and a short convolution of Mamba-2."""
    rank, keys, values = 16, 8, 16  # of two heads of 8 features
    matrices = 16 * (2 * keys + 2 * values + rank) + rank * keys + values * 16
    per_token = 2 * matrices + 3 * CONTEXT * keys + 2 * CONTEXT * values
    without = count(configuration({"attention": "gla", "ffn": "none"}, layers=1), Blank()).flops_per_token
    assert without == per_token + 2 * 16 * VOCAB
    causal, whole = (
        count(configuration({"model": form, "attention": "linear", "ffn": "none"}, layers=1), Blank(kind=kind))
        for form, kind in (("decoder", "lm"), ("encoder", "mlm"))
    )
    head = 8 * 9 * 2  # of a head's state, read or written: keys times values with their normaliser
    assert whole.flops_per_token == 2 * 4 * 16 * 16 + 2 * 2 * head + 2 * 16 * VOCAB, "over both directions no chunks"
    scores = 2 * 2 * CONTEXT * (8 + 9)
    assert causal.flops_per_token == 2 * 4 * 16 * 16 + scores + 2 * (CONTEXT + 2 * 8) + 2 * 16 * VOCAB
    longer = [configuration({"attention": "mamba2"}).with_value("attention.convolution", n) for n in (4, 5)]
    four, five = (count(config, Blank()).flops_per_token for config in longer)
    assert five - four == 2 * 2 * (64 + 64 + 32)  # layers, FLOPs, features


def test_what_a_convolution_carries_into_padding_is_not_written():
    """Gated DeltaNet with four taps: in a hole keys are not zero yet."""
    mixer, x, mask = from_disk("gated_deltanet"), some(1, 40, DIM), torch.ones(1, 40).double()
    mask[0, 9:30] = 0
    assert convolved(mixer, x * mask[..., None])[1][:, 9].abs().max() > 0.01
    got, expected, kept = mixer(x, NOWHERE, True, mask), gated_deltanet(mixer, x, NOWHERE, mask), mask[0].bool()
    torch.testing.assert_close(got[:, kept], expected[:, kept], rtol=1e-10, atol=1e-10)
