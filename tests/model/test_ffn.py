"""Feed-forward networks against formulas of their own, in float64, and their widths."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from activations import gelu, relu, silu
from empty_task import some_shape
from model_variants import variants, without_formula
from reference_config import component
from tensors import some

from ablate.config.components import bind
from ablate.model.build import offered
from ablate.model.ffn import GLU, width

DIM = 6
OFFERED = offered(some_shape(DIM))
each_dense = pytest.mark.parametrize("variant", [name for name in variants("ffn") if name not in ("none", "moe")])


def matrix(linear: torch.nn.Linear, x: list[float]) -> list[float]:
    """W x + b, one number after another."""
    rows, shift = linear.weight.tolist(), linear.bias.tolist() if linear.bias is not None else None
    return [sum(w * a for w, a in zip(row, x, strict=True)) + (shift[i] if shift else 0) for i, row in enumerate(rows)]


def gelu_by_tanh(a: float) -> float:
    return a * 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))


def sigmoid(a: float) -> float:
    return 1 / (1 + math.exp(-a))


def from_disk(variant: str, **changed: Any) -> Any:
    """A dense variant as its YAML describes it, in float64."""
    return bind("ffn", component("ffn", variant) | changed, OFFERED)().double().eval()


# Of each variant: keys to change, and its activation as plain numbers.
UNGATED: list[tuple[str, dict[str, Any], Callable[[float], float]]] = [
    ("mlp", {}, relu),
    ("gelu", {}, gelu),
    ("gelu", {"approximate": "tanh"}, gelu_by_tanh),
    ("silu", {}, silu),
    ("swish", {}, lambda a: a / (1 + math.exp(-0.7 * a))),
    ("relu2", {}, lambda a: max(a, 0.0) ** 2),
]
GATED: list[tuple[str, dict[str, Any], Callable[[float], float]]] = [
    ("glu", {}, sigmoid),
    ("bilinear", {}, lambda a: a),
    ("reglu", {}, relu),
    ("geglu", {}, gelu),
    ("geglu", {"approximate": "tanh"}, gelu_by_tanh),
    ("swiglu", {}, silu),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("variant", "changed", "activation"), UNGATED + GATED)
def test_formulas(variant, changed, activation, bias):
    ffn, x = from_disk(variant, bias=bias, hidden=9, **changed), some(2, 3, DIM)
    if variant == "swish":
        assert ffn.beta.tolist() == [1.0]
        torch.nn.init.constant_(ffn.beta, 0.7)
    for token in x.flatten(0, 1):
        hidden = matrix(ffn.up, token.tolist())
        if (variant, changed, activation) in GATED:
            hidden = [activation(g) * u for g, u in zip(matrix(ffn.gate, token.tolist()), hidden, strict=True)]
        else:
            hidden = [activation(a) for a in hidden]
        expected = torch.tensor(matrix(ffn.down, hidden), dtype=torch.float64)
        torch.testing.assert_close(ffn(token), expected, rtol=1e-10, atol=1e-12)


def test_every_variant_has_a_formula():
    known = {"none", "moe", *(variant for variant, _, _ in UNGATED + GATED)}
    how = "add it to UNGATED or GATED in tests/model/test_ffn.py, with its activation as plain numbers"
    assert not (message := without_formula("ffn", known, how + ': ("{name}", {{}}, lambda a: …)')), message


def test_an_approximation_of_another_name_is_refused():
    for variant in ("gelu", "geglu"):
        with pytest.raises(ValueError, match="erf"):
            bind("ffn", component("ffn", variant) | {"approximate": "erf"}, OFFERED)


@each_dense
def test_the_resulting_width_is_known(variant):
    """Gated ones at 2/3 of 4 · dim, rounded up to a multiple of 8; any at a width that is given."""
    for dim, gated in ((6, 16), (64, 176), (100, 272)):
        ffn = bind("ffn", component("ffn", variant), OFFERED | {"dim": dim})()
        assert ffn.hidden == (gated if isinstance(ffn, GLU) else 4 * dim)
        assert ffn.up.weight.shape == (ffn.hidden, dim) and ffn.down.weight.shape == (dim, ffn.hidden)
    assert from_disk(variant, hidden=7).hidden == 7
    assert component("ffn", variant)["bias"] == (not isinstance(ffn, GLU))  # as published: see the YAMLs


def test_widths_by_number():
    assert width(4096, None, 4.0 * 2 / 3, 256) == 11008, "LLaMA's"
    assert width(64, 100, 4.0 * 2 / 3, 256) == 100 and width(3, None, 2.5, 1) == 7 and width(1000, None, 2.5, 1) == 2500
    for multiple_of in (1, 8, 256):
        for dim in range(3, 5000):
            wide = -(-(8 * dim // 3) // multiple_of) * multiple_of  # ⌊8/3 · dim⌋ up to a multiple, in whole numbers
            assert width(dim, None, 4.0 * 2 / 3, multiple_of) == wide


@pytest.mark.parametrize(
    ("hidden", "mult", "multiple_of", "says"),
    [
        *((0, 4.0, 1, "larger mult or hidden"), (None, 0.0, 1, "larger mult"), (None, -4.0, 8, "larger mult")),
        *((None, 1e-3, 1, "larger mult"), (None, 4.0, 0, "multiple_of must be ≥ 1")),
    ],
)
def test_impossible_widths_are_refused(hidden, mult, multiple_of, says):
    with pytest.raises(ValueError, match=says):
        width(64, hidden, mult, multiple_of)
