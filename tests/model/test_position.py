"""Position encodings against formulas of their own, in float64."""

import cmath
import math
from functools import partial
from typing import Any

import pytest
import torch
from empty_task import Blank, some_shape
from model_variants import CONTEXT, VOCAB, built, configuration, variants
from reference_config import component
from tensors import some
from torch import Tensor

from ablate.config.components import bind
from ablate.config.schema import LAYERS
from ablate.model.attention import MHA, MLA
from ablate.model.build import initialised_model, offered
from ablate.model.position import ALiBi, Learned, PartialRoPE, Places, Position, RoPE, Sinusoidal, T5Bias, XPos, rotate

OFFERED = offered(some_shape(16))


def from_disk(variant: str) -> Any:
    """A variant as its YAML describes it."""
    return bind("position", component("position", variant), OFFERED)()


def turned(position: Position, x: Tensor, causal: bool = True) -> Tensor:
    """Queries or keys (B, H, T, D) as the scores see them."""
    return rotate(x, position.places(x[:, 0], causal).rotation)


# ---- rope


def test_rope_counts_far_in_low_precision():
    """bf16 cannot tell position 4001 from 4000; the angles must be computed in float32."""
    rope, x = RoPE(8, 10000.0), torch.ones(1, 1, 4002, 8)
    torch.testing.assert_close(turned(rope, x.bfloat16()).float(), turned(rope, x.double()).float(), rtol=0, atol=0.02)


BASE, TRAINED, LONG = 10000.0, 128, 512


def turns(scaling: str | None, length: int) -> tuple[torch.Tensor, float]:
    """Angle of each pair of 16 features at position 1, and what scores are multiplied by."""
    places = RoPE(16, BASE, TRAINED, scaling).places(some(1, length, 4), True)
    assert places.rotation is not None
    cos, sin = places.rotation[0][1, :8], places.rotation[1][1, 8:]
    torch.testing.assert_close(torch.hypot(sin, cos), torch.ones(8, dtype=torch.float64))
    return torch.atan2(sin, cos), places.factor or 1.0


@pytest.mark.parametrize("scaling", [None, "linear", "ntk", "yarn"])
def test_scaling_changes_nothing_up_to_the_training_context(scaling):
    for length in (2, TRAINED):
        places = RoPE(16, BASE, TRAINED, scaling).places(some(1, length, 4), True)
        assert all(map(torch.equal, places.rotation, RoPE(16, BASE).places(some(1, length, 4), True).rotation))
        assert places.factor is None


def test_scalings_are_their_papers():
    """Four times the context: s = 4."""
    before, _ = turns(None, LONG)
    torch.testing.assert_close(turns("linear", LONG)[0], before / 4)
    ntk = [1 / (BASE * 4 ** (16 / 14)) ** (2 * i / 16) for i in range(8)]
    torch.testing.assert_close(turns("ntk", LONG)[0], torch.tensor(ntk, dtype=torch.float64))
    torch.testing.assert_close(turns("ntk", LONG)[0][-1], before[-1] / 4)
    yarn, factor = turns("yarn", LONG)
    assert factor == pytest.approx((0.1 * math.log(4) + 1) ** 2)

    def pair(count: int) -> float:  # that turns so often in the training context: 128 / (2π · base^(2i/16)) = count
        return 16 * math.log(TRAINED / (2 * math.pi * count)) / (2 * math.log(BASE))

    first, last = max(0, math.floor(pair(32))), math.ceil(pair(1))
    for i in range(8):
        slow = min(1.0, max(0.0, (i - first) / (last - first)))
        assert float(yarn[i]) == pytest.approx(float(before[i]) * (1 - slow + slow / 4), rel=1e-9)
    assert yarn[0] == before[0] and float(yarn[-1]) == pytest.approx(float(before[-1]) / 4)


@pytest.mark.parametrize("attention", ["mha", "mla"])
def test_the_factor_of_yarn_is_of_whole_scores(attention):
    """Of the features that no position turns, too: softmax(factor · Q Kᵀ · scale), as the paper has it."""
    shape = some_shape(16)
    made = MHA(shape, False, None) if attention == "mha" else MLA(shape, None, None, 4, False, None, 1e-6)
    made, position = made.double(), PartialRoPE(8, BASE, 0.5, 6, "yarn")
    x = some(2, 24, 16)
    places = position.places(x, True)
    assert places.factor == pytest.approx((0.1 * math.log(24 / 6) + 1) ** 2)
    query, key, value = made.project(x, x, places)
    scores = places.factor * made.scale * query @ key.mT
    shares = scores.masked_fill(torch.ones(24, 24).triu(1).bool(), -math.inf).softmax(-1)
    torch.testing.assert_close(made(x, places, True), made.out(made.merge_heads(shares @ value)))


def test_the_factor_of_yarn_is_not_of_layers_that_turn_by_their_own_base():
    x = some(1, 48, 16)
    places = RoPE(8, 1e6, 24, "yarn", local_base=100.0).places(x, True)
    assert places.factor is not None and places.scale(0.5) == 0.5 * places.factor
    assert places.scale(0.5, window=4) == 0.5
    alike = RoPE(8, 1e6, 24, "yarn").places(x, True)
    assert alike.scale(0.5, window=4) == 0.5 * places.factor, "without a base of their own they are scaled, too"
    window = MHA(some_shape(16), False, None, window=4).double()
    torch.testing.assert_close(window(x, places, True), window(x, RoPE(8, 100.0).places(x, True), True))


def test_xpos_scores_are_the_paper_s():
    """Re Σ_i conj(k_i) q_i · ζ_i^((t − s) / span) · e^(i (t − s) θ_i), pair by pair in complex numbers."""
    size, span, gamma, length = 8, 5.0, 0.4, 9
    query, key = some(length, size), some(length, size, seed=1)
    places = XPos(size, 100.0, span, gamma).places(some(1, length, 4), True)
    of_query, of_key = places.rotations()
    found = rotate(query[None, None], of_query)[0, 0] @ rotate(key[None, None], of_key)[0, 0].T
    for t in range(length):
        for s in range(t + 1):
            score = 0.0
            for i in range(size // 2):
                q, k = (complex(float(x[i]), float(x[i + size // 2])) for x in (query[t], key[s]))
                zeta = (2 * i / size + gamma) / (1 + gamma)
                turn = cmath.exp(1j * (t - s) / 100.0 ** (2 * i / size))
                score += (q * turn * k.conjugate()).real * zeta ** ((t - s) / span)
            assert float(found[t, s]) == pytest.approx(score, rel=1e-10)


# ---- on the embeddings


# ---- on the scores


# Of the paper's own code: a geometric row at powers of two, else interleaved with that of twice as many heads.
SLOPES = {1: [2**-8], 4: [2**-2, 2**-4, 2**-6, 2**-8], 6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]}


@pytest.mark.parametrize("heads", SLOPES)
def test_alibi_falls_linearly_with_the_distance_either_way_by_the_paper_s_slopes(heads):
    distance = (torch.arange(9)[:, None] - torch.arange(9)).abs().double()
    expected = -torch.tensor(SLOPES[heads], dtype=torch.float64)[:, None, None] * distance
    for causal in (False, True):
        places = ALiBi(heads).places(some(1, 9, 8), causal)
        torch.testing.assert_close(places.bias, expected, rtol=1e-12, atol=0)
        assert places.slopes.tolist() == pytest.approx(SLOPES[heads])


@pytest.mark.parametrize("variant", ["t5", "alibi"])
def test_a_bias_is_laid_out_as_fused_kernels_take_it(variant):
    bias = from_disk(variant).double().places(some(1, 24, 16), True).bias
    assert bias.is_contiguous() and bias.bfloat16().stride(-1) == 1


# ---- every variant on disk


def test_only_the_table_of_positions_does_not_extrapolate():
    assert {variant for variant in variants("position") if not from_disk(variant).extrapolates} == {"learned"}
    learned = Learned(8, 12)
    assert learned.embed(torch.zeros(1, 12, 8)).shape == (1, 12, 8)
    with pytest.raises(ValueError, match="the table has 12 positions, not 13"):
        learned.embed(torch.zeros(1, 13, 8))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((partial(made, 8, 0.0), "^base must be") for made in (RoPE, Sinusoidal)),
        (partial(XPos, 8, 0.0, 512.0, 0.4), "^base must be"),
        (partial(RoPE, 21, 10000.0), "must be even, for pairs of features"),
        *(
            (partial(PartialRoPE, 8, 10000.0, share), rf"^share {share} .* even number from 2 to 8")
            for share in (0.0, 0.125, 1.25)
        ),
        (partial(RoPE, 2, BASE, TRAINED, "ntk"), "^scaling ntk needs"),
        (partial(RoPE, 16, 1.0, TRAINED, "yarn"), "^base must be > 1"),
        (partial(RoPE, 8, 100.0, local_base=0.0), "^local_base must be"),
        (partial(XPos, 8, 100.0, 0.0, 0.4), "^span must be"),
        (partial(XPos, 8, 100.0, 512.0, -1.0), "^gamma must be"),
        (partial(Sinusoidal, 7, 10000.0), "must be even .*not 7"),
        *((partial(T5Bias, 2, buckets, 128), rf"^buckets must be .*not {buckets}$") for buckets in (2, 6)),
        (partial(T5Bias, 2, 32, 16), "^max_distance must be more than half of the 32 buckets, not 16$"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("form", [("encoder", "mlm"), ("encoder_decoder", "seq2seq")], ids="-".join)
def test_what_grows_towards_later_positions_is_refused_where_all_is_seen(form):
    with pytest.raises(ValueError, match=r"XPos reads from left to right, .* choose another"):
        built({"position": "xpos"}, form=form)


def over_layers(*names: str) -> dict[str, Any]:
    """The settings of a position encoding for each layer."""
    return {LAYERS: list(names)} | {name: component("position", name) for name in names}


def test_each_layer_has_its_encoding_and_a_table_the_draws_that_it_has_alone():
    config, task = configuration({"position": "t5"}), Blank(VOCAB, CONTEXT)
    alone = dict(initialised_model(config, task, 0).named_parameters())
    mixed = initialised_model(config.with_value("position", over_layers("none", "t5")), task, 0)
    found = dict(mixed.named_parameters())
    assert found.keys() == alone.keys() and all(torch.equal(alone[name], each) for name, each in found.items())
    first, second = mixed.places(torch.zeros(1, CONTEXT, 16), True)  # type: ignore[operator]
    assert first == Places() and second.bias is not None
    node = over_layers("t5", "none") | {"none": component("position", "t5") | {"buckets": 16}}  # t5+t5(buckets=16)
    tables = dict(initialised_model(config.with_value("position", node), task, 0).named_parameters())
    assert torch.equal(tables["position.table.weight"], alone["position.table.weight"])
    assert tables.keys() - alone.keys() == {"position.parts.1.table.weight"}
    with pytest.raises(ValueError, match="Learned acts on the embeddings"):
        initialised_model(config.with_value("position", over_layers("rope", "learned")), task, 0)
