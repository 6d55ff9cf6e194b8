"""Norms against formulas of their own, in float64; padding and neighbours that must not matter.

`some`, `some_mask`, `trained` and `from_disk` serve the tests of the norms that keep running statistics, too.
"""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from model_variants import variants, without_formula
from norms import DIM, EPS, OFFERED, from_disk, some, some_mask
from reference_config import component

from ablate.config.components import bind
from ablate.config.errors import BadComponent

every = pytest.mark.parametrize("variant", variants("norm"))


def mean(v: list[float]) -> float:
    return sum(v) / len(v)


def rms(v: list[float], k: int = DIM) -> float:
    return math.sqrt(mean([a * a for a in v[:k]]) + EPS)


def centred(v: list[float]) -> list[float]:
    return [a - mean(v) for a in v]


def by_layer(v: list[float]) -> list[float]:
    return [a / rms(centred(v), len(v)) for a in centred(v)]


def by_std(v: list[float]) -> list[float]:
    return [a / (math.sqrt(sum(a * a for a in centred(v)) / (len(v) - 1)) + EPS) for a in centred(v)]


def by_length(v: list[float]) -> list[float]:
    return [a / math.sqrt(sum(a * a for a in v)) for a in v]


# Of each variant that treats a token alone: its settings, and x̂ of a token from its parameters, as plain numbers; y is
# x̂ · weight + bias, as far as the norm has these two.
Given = dict[str, list[float]]  # parameters by name
FORMULAS: dict[str, tuple[dict[str, float], Callable[[list[float], Given], list[float]]]] = {
    "ln": ({"eps": EPS}, lambda v, p: by_layer(v)),
    "ln_std": ({"eps": EPS}, lambda v, p: by_std(v)),
    "rms": ({"eps": EPS}, lambda v, p: [a / rms(v) for a in v]),
    "prms": ({"eps": EPS, "share": 0.3}, lambda v, p: [a / rms(v, 3) for a in v]),  # ⌈0.3 · 8⌉
    "scale": ({"eps": EPS}, lambda v, p: by_length(v)),
    "group": ({"eps": EPS, "groups": 2}, lambda v, p: by_layer(v[:4]) + by_layer(v[4:])),
    "dyt": ({"alpha": 0.5}, lambda v, p: [math.tanh(p["alpha"][0] * a) for a in v]),
    "none": ({}, lambda v, p: v),
}


@pytest.mark.parametrize("variant", FORMULAS)
def test_formulas_of_one_token(variant):
    settings, formula = FORMULAS[variant]
    norm, x = from_disk(variant, **settings), some(4, 5, DIM)
    given = {name: parameter.tolist() for name, parameter in norm.named_parameters()}
    gain, shift = given.get("weight", [1.0]), given.get("bias", [0.0])
    for v, y in zip(x.flatten(0, 1).tolist(), norm(x).flatten(0, 1).tolist(), strict=True):
        expected = [a * gain[i % len(gain)] + shift[i % len(shift)] for i, a in enumerate(formula(v, given))]
        assert y == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("variant", ["ln", "ln_std", "group", "rms", "prms"])
def test_without_gain_or_bias_is_with_a_gain_of_one_and_a_bias_of_zero(variant):
    x, whole = some(4, 5, DIM), from_disk(variant)
    settings = [key for name, key in (("weight", "gain"), ("bias", "bias")) if hasattr(whole, name)]
    bare = from_disk(variant, **dict.fromkeys(settings, False))
    assert not list(bare.parameters())
    start = bind("norm", component("norm", variant), OFFERED)().double()
    torch.testing.assert_close(bare(x), start(x), rtol=1e-12, atol=1e-12)


def test_every_variant_has_a_formula():
    known = {*FORMULAS, "bn", "instance", "powernorm"}  # these three: test_norm_running.py and test_norm_power.py
    how = "add it to FORMULAS in tests/model/test_norm.py, with its settings and x̂ of one token as plain numbers"
    message = without_formula("norm", known, how + ': "{name}": ({{"eps": EPS}}, lambda v, p: …)')
    assert not message, message


@every
def test_a_token_of_zeros_has_finite_gradients(variant):
    x = torch.zeros(1, 1, DIM, requires_grad=True)
    from_disk(variant)(x.double()).sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()


@every
@pytest.mark.parametrize("training", [False, True])
def test_what_stands_at_padding_never_matters(variant, training):
    x, mask = some(4, 5, DIM), some_mask()
    real = mask.bool()
    for kind in (torch.bool, torch.float32, torch.float64, torch.int64):
        norm = from_disk(variant).train(training)
        y = norm(torch.where(real[..., None], x, 1e6 * some(4, 5, DIM, seed=1)), mask.to(kind))
        torch.testing.assert_close(y[real], norm(x, mask.to(kind))[real])


@every
@pytest.mark.parametrize(("dtype", "error", "training"), [(torch.bfloat16, 2e-2, False), (torch.float16, 3e-3, True)])
def test_statistics_are_of_more_than_half_precision(variant, dtype, error, training):
    """Numbers whose squares overflow, whose sums round away: the result is the exact one's but for its own rounding."""
    norm, x = from_disk(variant).train(training), (300 * some(16, 64, DIM)).to(dtype)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(parameter.to(dtype))
        norm.train()(x.double())  # moves running statistics, where there are any; they stay in float32
        exact = norm.train(training)
        half = copy.deepcopy(exact).to(dtype)
        for name, buffer in exact.named_buffers():
            setattr(half, name, buffer.float() if buffer.is_floating_point() else buffer.clone())
        y, expected = half(x), exact(x.double())
    assert y.dtype == dtype and y.std() > 0.1
    torch.testing.assert_close(y.double(), expected, rtol=error, atol=error * expected.abs().mean().item())


@pytest.mark.parametrize(
    ("variant", "key", "value"),
    [
        *((variant, "eps", -1.0) for variant in variants("norm") if "eps" in component("norm", variant)),
        *((variant, "momentum", value) for variant, value in (("bn", -0.1), ("instance", 1.5), ("powernorm", 1.5))),
        *(("prms", "share", share) for share in (0.0, 1.1)),
        *(("group", "groups", groups) for groups in (0, 3, 16)),
        *(("dyt", "alpha", 0.0), ("powernorm", "warmup", -1)),
    ],
)
def test_impossible_settings_are_refused(variant, key, value):
    make = bind("norm", component("norm", variant) | {key: value}, OFFERED)
    with pytest.raises(BadComponent, match=rf"^must [^\n]*{value}[^\n]*$") as caught:
        make()
    assert caught.value.key == f"norm.{key}"
