"""Parameters and FLOPs per token against sums done by hand."""

import math
from typing import Any

import pytest
import torch
from empty_task import Blank
from model_variants import COVER, configuration, name_of
from reference_config import CONFIG, component

from ablate.config.schema import Config, typed
from ablate.model import cost
from ablate.model.build import build_model
from ablate.model.cost import count, peak_of, utilisation

VOCAB, DIM, HEADS, LAYERS, CONTEXT = 97, 48, 6, 2, 20
HEAD = DIM // HEADS


def sized(config: dict[str, Any] | None = None, **model: Any) -> Config:
    """A configuration in the shape that the sums below are done for."""
    config = config or CONFIG
    shape = {"dim": DIM, "heads": HEADS, "layers": LAYERS} | model
    return typed(config | {"model": config["model"] | shape, "data": {"context": CONTEXT}})


def with_parts(**choices: str) -> Config:
    """The reference with other variants."""
    return sized(CONFIG | {group: component(group, variant) for group, variant in choices.items()})


def form(name: str, **model: Any) -> Config:
    """The reference in another form."""
    return sized(CONFIG | {"model": component("model", name)}, **model)


MLP = 4 * DIM * DIM + 4 * DIM + 4 * DIM * DIM + DIM  # two matrices with biases
GATED = 3 * DIM * 128  # width 8/3 · 48 = 128, a multiple of 8, no biases
NORMS = {"ln": 2 * DIM, "rms": DIM, "bn": 2 * DIM}
FFNS = {"mlp": (MLP, 8 * DIM * DIM), "gelu": (MLP, 8 * DIM * DIM), "swiglu": (GATED, GATED)}
# Of one layer: parameters of the attention, of which in matrices; two matrices read and write all heads.
ATTENTIONS = {
    "mha": (4 * DIM * DIM, 4 * DIM * DIM),
    "mqa": (2 * DIM * DIM + 2 * DIM * HEAD, 2 * DIM * DIM + 2 * DIM * HEAD),
    "gqa": (2 * DIM * DIM + 4 * DIM * HEAD, 2 * DIM * DIM + 4 * DIM * HEAD),  # two groups
    "qk_norm": (4 * DIM * DIM + 2 * HEAD, 4 * DIM * DIM),
    "window": (4 * DIM * DIM, 4 * DIM * DIM),
    "gated": (5 * DIM * DIM, 5 * DIM * DIM),
}
# Of the residual style: norms per layer, numbers beside them, norms after the last layer.
RESIDUALS = {"pre": (2, 0, 1), "post": (2, 0, 0), "sandwich": (4, 0, 1), "res_post": (2, 0, 1), "parallel": (2, 0, 1)}
RESIDUALS |= {"rezero": (0, 1, 0), "layerscale": (2, 2 * DIM, 1), "deepnorm": (2, 0, 0), "none": (2, 0, 1)}
POSITIONS = {"t5": 32 * HEADS, "learned": DIM, "alibi": 0, "partial_rope": 0, "rope": 0, "none": 0}  # learned: of each


@pytest.mark.parametrize("i", range(9))
def test_sums_by_hand(i):
    """Two FLOPs per multiplication and addition; scores and their means over all pairs; the head, but no embedding.
    Shared keys and values are projected once, but compared by every head; a window counts all pairs, too.

    Counts are sums over components: each stands in one of these.
    """
    attention, residual, position = [*ATTENTIONS][i % 6], [*RESIDUALS][i], [*POSITIONS][(i + i // 6) % 6]
    norm, ffn, context = [*NORMS][i // 3], [*FFNS][i % 3], (1, 20, 33)[i % 3]
    parts = with_parts(attention=attention, residual=residual, position=position, norm=norm, ffn=ffn)
    found = count(parts, Blank(VOCAB, context))
    (params, matrices), (ffn_params, ffn_matrices) = ATTENTIONS[attention], FFNS[ffn]
    norms, numbers, last = RESIDUALS[residual]
    expected = VOCAB * DIM + LAYERS * (params + ffn_params + norms * NORMS[norm] + numbers) + last * NORMS[norm]
    assert found.params == expected + POSITIONS[position] * (context if position == "learned" else 1)
    layer = 2 * (matrices + ffn_matrices) + 2 * 2 * context * DIM
    assert found.flops_per_token == LAYERS * layer + 2 * DIM * VOCAB


def test_shared_norms_of_parallel_sublayers_count_once():
    config = with_parts(residual="parallel")
    config = config.with_value("residual.norms", "shared")
    saved = count(with_parts(residual="parallel"), Blank(VOCAB, CONTEXT)).params
    assert saved - count(config, Blank(VOCAB, CONTEXT)).params == LAYERS * 2 * DIM


BLOCK = 4 * DIM * DIM + MLP + 4 * DIM
BLOCK_FLOPS = 2 * 12 * DIM * DIM + 2 * 2 * CONTEXT * DIM


@pytest.mark.parametrize(("tie", "norm"), [(False, True), (True, False)])
def test_an_encoder_decoder_by_hand(tie, norm):
    """Per position of source and target; the decoder has an attention and a norm more, and the head is its own."""
    found = count(form("encoder_decoder", tie_embeddings=tie, norm_embeddings=norm), Blank(VOCAB, CONTEXT, "seq2seq"))
    across = 4 * DIM * DIM + 2 * DIM
    embeddings = VOCAB * DIM * (1 if tie else 2) + 2 * 2 * DIM * norm
    assert found.params == embeddings + LAYERS * (2 * BLOCK + across) + 2 * 2 * DIM
    across_flops = 2 * 4 * DIM * DIM + 2 * 2 * CONTEXT * DIM
    assert found.flops_per_token == (LAYERS * (2 * BLOCK_FLOPS + across_flops) + 2 * DIM * VOCAB) / 2


def test_an_encoder_by_hand():
    words = count(form("encoder"), Blank(VOCAB, CONTEXT, "mlm"))
    assert words.params == VOCAB * DIM + LAYERS * BLOCK + 2 * DIM
    assert words.flops_per_token == LAYERS * BLOCK_FLOPS + 2 * DIM * VOCAB
    numbers = count(form("encoder"), Blank(VOCAB, CONTEXT, "classification", outputs=10, features=7))
    assert numbers.params == 7 * DIM + DIM + LAYERS * BLOCK + 2 * DIM + 10 * DIM
    head = 2 * DIM * 10 / CONTEXT  # one per example
    assert numbers.flops_per_token == 2 * 7 * DIM + LAYERS * BLOCK_FLOPS + head


def test_bert_s_head_by_hand():
    found = count(form("bert"), Blank(VOCAB, CONTEXT, "mlm"))
    head = DIM * DIM + DIM + 2 * DIM + VOCAB  # a dense layer, a norm, a bias per token
    assert found.params == VOCAB * DIM + 2 * DIM + LAYERS * BLOCK + 2 * DIM + head  # a norm on the embeddings, too
    assert found.flops_per_token == LAYERS * BLOCK_FLOPS + 2 * DIM * DIM + 2 * DIM * VOCAB


@pytest.mark.parametrize(("tie", "share"), [(False, True), (True, True), (True, False)])
def test_tied_and_shared_parameters_count_once(tie, share):
    found = count(sized(tie_embeddings=tie, share_layers=share), Blank(VOCAB, CONTEXT))
    assert found.params == VOCAB * DIM * (1 if tie else 2) + BLOCK * (1 if share else LAYERS) + 2 * DIM
    assert found.flops_per_token == LAYERS * BLOCK_FLOPS + 2 * DIM * VOCAB  # all of them compute
    assert ("head.weight" in found.shapes) == (not tie)


def test_the_model_of_tiny():
    """As README.md, docs/ and the plan's preview show it."""
    config = sized(dim=64, heads=4, layers=2)
    found = count(config, Blank(256, 64))
    assert found.params == 115_968 and found.flops_per_token == 262_144


def test_notes_are_told_once():
    notes = count(with_parts(norm="bn"), Blank(VOCAB, CONTEXT)).notes
    assert len(notes) == 1 and notes[0].startswith("BatchNorm: ") and "future" in notes[0]
    assert count(sized(layers=1), Blank(VOCAB, CONTEXT)).notes == []


def test_utilisation():
    device = "NVIDIA H200"
    assert utilisation(1e9, 1e5, device, "bf16") == pytest.approx(3e14 / 989e12)
    assert utilisation(1e9, 1e5, device, "fp32") is None
    assert utilisation(1e9, 1e5, "some other card", "bf16") is None


PEAKS = {
    "H200": 989e12,
    "H200 NVL": 835e12,
    "H100 80GB HBM3": 989e12,
    "A100-SXM4-80GB": 312e12,
    "A10": 125e12,
    "A10G": 70e12,
    "L4": 121e12,
    "L40S": 362e12,
    "GeForce RTX 3090": 71e12,
    "A100-SXM4-40GB MIG 1g.5gb": None,
    "GeForce RTX 3090 Ti": None,
    "GeForce RTX 4090 Laptop GPU": None,
}


@pytest.mark.parametrize("card", PEAKS)
def test_a_card_of_a_similar_name_or_a_slice_of_one_has_no_peak(card):
    """No number is better than a wrong one."""
    assert peak_of(f"NVIDIA {card}") == PEAKS[card]


@pytest.mark.parametrize("cell", COVER, ids=name_of)
def test_counts_are_those_of_the_real_model_on_any_device_and_leave_no_trace(cell, monkeypatch):
    config, state, task = configuration(cell, layers=1), torch.get_rng_state(), Blank(VOCAB, CONTEXT)
    found = count(config, task)
    monkeypatch.setattr(cost, "device_for", lambda *_: "meta")
    assert count(config, task) == found
    assert torch.equal(state, torch.get_rng_state()) and torch.zeros(1).device.type == "cpu"
    shapes = {name: tuple(p.shape) for name, p in build_model(config, task).named_parameters()}
    assert {name: shape for name, (_, shape) in found.shapes.items()} == shapes
    assert found.params == sum(map(math.prod, shapes.values())) and found.flops_per_token > 2 * 16 * VOCAB
