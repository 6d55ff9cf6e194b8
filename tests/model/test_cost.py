"""Parameters and FLOPs per token against sums done by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from empty_task import Blank
from test_components import CONFIG, component, each_cell

from ablate.config.schema import Config, typed
from ablate.model.build import initialised_model
from ablate.model.cost import count, peak_of, utilisation

VOCAB, DIM, HEADS, LAYERS, CONTEXT = 97, 48, 6, 3, 20
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


MLP_PARAMS = DIM * 4 * DIM + 4 * DIM + 4 * DIM * DIM + DIM  # two matrices with biases
SWIGLU_PARAMS = 3 * DIM * 128  # width 8/3 · 48 = 128, a multiple of 8, no biases
NORM_PARAMS = {"ln": 2 * DIM, "rms": DIM, "bn": 2 * DIM}


FFN_PARAMS = {"mlp": MLP_PARAMS, "gelu": MLP_PARAMS, "swiglu": SWIGLU_PARAMS}
# Counts are sums over components, so each pair of variants stands in one of these: a third one adds what it adds beside
# either.
BASICS = [
    (norm, [*FFN_PARAMS][(i + j) % len(FFN_PARAMS)], position, residual)
    for i, norm in enumerate(NORM_PARAMS)
    for j, position in enumerate(("rope", "learned", "none", "sinusoidal"))
    for residual in ("pre", "post")
]


@pytest.mark.parametrize(("norm", "ffn", "position", "residual"), BASICS)
def test_parameters_by_hand(norm: str, ffn: str, position: str, residual: str) -> None:
    found = count(with_parts(norm=norm, ffn=ffn, position=position, residual=residual), Blank(VOCAB, CONTEXT))
    block = 4 * DIM * DIM + FFN_PARAMS[ffn] + 2 * NORM_PARAMS[norm]
    expected = VOCAB * DIM + LAYERS * block
    expected += CONTEXT * DIM if position == "learned" else 0
    expected += NORM_PARAMS[norm] if residual == "pre" else 0
    assert found.params == expected


# Of one layer: parameters of the attention, of which in matrices; two matrices read and write all heads.
ATTENTIONS = {
    "mha": (4 * DIM * DIM, 4 * DIM * DIM),
    "mqa": (2 * DIM * DIM + 2 * DIM * HEAD, 2 * DIM * DIM + 2 * DIM * HEAD),
    "gqa": (2 * DIM * DIM + 4 * DIM * HEAD, 2 * DIM * DIM + 4 * DIM * HEAD),  # two groups
    "qk_norm": (4 * DIM * DIM + 2 * HEAD, 4 * DIM * DIM),
    "window": (4 * DIM * DIM, 4 * DIM * DIM),
    "gated": (5 * DIM * DIM, 5 * DIM * DIM),
}
# Of the residual style with LayerNorm: numbers per layer beside the sublayers, and after the last one.
RESIDUALS = {
    "pre": (4 * DIM, 2 * DIM),
    "post": (4 * DIM, 0),
    "sandwich": (8 * DIM, 2 * DIM),
    "res_post": (4 * DIM, 2 * DIM),
    "parallel": (4 * DIM, 2 * DIM),
    "rezero": (1, 0),
    "layerscale": (4 * DIM + 2 * DIM, 2 * DIM),
    "deepnorm": (4 * DIM, 0),
    "none": (4 * DIM, 2 * DIM),
}
POSITIONS = {"t5": 32 * HEADS, "learned": CONTEXT * DIM, "alibi": 0, "partial_rope": 0, "rope": 0, "none": 0}


def test_shared_norms_of_parallel_sublayers_count_once() -> None:
    config = with_parts(residual="parallel")
    config = config.with_value("residual.norms", "shared")
    saved = count(with_parts(residual="parallel"), Blank(VOCAB, CONTEXT)).params
    assert saved - count(config, Blank(VOCAB, CONTEXT)).params == LAYERS * 2 * DIM


@pytest.mark.parametrize("position", POSITIONS)
def test_a_position_s_table_counts_once_for_all_layers(position: str) -> None:
    found = count(with_parts(position=position), Blank(VOCAB, CONTEXT)).params
    assert found == VOCAB * DIM + LAYERS * (4 * DIM * DIM + MLP_PARAMS + 4 * DIM) + 2 * DIM + POSITIONS[position]


@pytest.mark.parametrize(("i", "attention"), [*enumerate(ATTENTIONS)])
@pytest.mark.parametrize(("j", "residual"), [*enumerate(RESIDUALS)])
def test_attentions_and_residual_styles_by_hand(i: int, attention: str, j: int, residual: str) -> None:
    """Shared keys and values are projected once, but compared by every head; a window counts all pairs, too.

    Each of three positions stands beside every attention and every residual style.
    """
    params, matrices = ATTENTIONS[attention]
    each, last = RESIDUALS[residual]
    position = ("t5", "alibi", "partial_rope")[(i + j) % 3]
    found = count(with_parts(attention=attention, residual=residual, position=position), Blank(VOCAB, CONTEXT))
    layer = 2 * (matrices + 8 * DIM * DIM) + 2 * 2 * CONTEXT * DIM
    assert found.params == VOCAB * DIM + LAYERS * (params + MLP_PARAMS + each) + last + POSITIONS[position]
    assert found.flops_per_token == LAYERS * layer + 2 * DIM * VOCAB


BLOCK = 4 * DIM * DIM + MLP_PARAMS + 4 * DIM
BLOCK_FLOPS = 2 * 12 * DIM * DIM + 2 * 2 * CONTEXT * DIM


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_an_encoder_decoder_by_hand(tie: bool, norm: bool) -> None:
    """Per position of source and target; the decoder has an attention and a norm more, and the head is its own."""
    found = count(form("encoder_decoder", tie_embeddings=tie, norm_embeddings=norm), Blank(VOCAB, CONTEXT, "seq2seq"))
    across = 4 * DIM * DIM + 2 * DIM
    embeddings = VOCAB * DIM * (1 if tie else 2) + 2 * 2 * DIM * norm
    assert found.params == embeddings + LAYERS * (2 * BLOCK + across) + 2 * 2 * DIM
    across_flops = 2 * 4 * DIM * DIM + 2 * 2 * CONTEXT * DIM
    assert found.flops_per_token == (LAYERS * (2 * BLOCK_FLOPS + across_flops) + 2 * DIM * VOCAB) / 2


def test_an_encoder_by_hand() -> None:
    words = count(form("encoder"), Blank(VOCAB, CONTEXT, "mlm"))
    assert words.params == VOCAB * DIM + LAYERS * BLOCK + 2 * DIM
    assert words.flops_per_token == LAYERS * BLOCK_FLOPS + 2 * DIM * VOCAB
    numbers = count(form("encoder"), Blank(VOCAB, CONTEXT, "classification", outputs=10, features=7))
    assert numbers.params == 7 * DIM + DIM + LAYERS * BLOCK + 2 * DIM + 10 * DIM
    assert (
        numbers.flops_per_token == 2 * 7 * DIM + LAYERS * BLOCK_FLOPS + 2 * DIM * 10 / CONTEXT
    )  # one head per example


def test_bert_s_head_by_hand() -> None:
    found = count(form("bert"), Blank(VOCAB, CONTEXT, "mlm"))
    head = DIM * DIM + DIM + 2 * DIM + VOCAB  # a dense layer, a norm, a bias per token
    assert found.params == VOCAB * DIM + 2 * DIM + LAYERS * BLOCK + 2 * DIM + head  # a norm on the embeddings, too
    assert found.flops_per_token == LAYERS * BLOCK_FLOPS + 2 * DIM * DIM + 2 * DIM * VOCAB


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_tied_and_shared_parameters_count_once(tie: bool, share: bool) -> None:
    found = count(sized(tie_embeddings=tie, share_layers=share), Blank(VOCAB, CONTEXT))
    block = 4 * DIM * DIM + MLP_PARAMS + 4 * DIM
    assert found.params == VOCAB * DIM * (1 if tie else 2) + block * (1 if share else LAYERS) + 2 * DIM
    assert found.flops_per_token == count(sized(), Blank(VOCAB, CONTEXT)).flops_per_token  # but all of them compute
    assert ("head.weight" in found.shapes) == (not tie)


@pytest.mark.parametrize(
    ("ffn", "matrices"), [("mlp", 8 * DIM * DIM), ("gelu", 8 * DIM * DIM), ("swiglu", 3 * DIM * 128)]
)
@pytest.mark.parametrize("position", ["rope", "learned", "none", "sinusoidal"])
@pytest.mark.parametrize("context", [1, 20, 33])
def test_flops_by_hand(ffn: str, matrices: int, position: str, context: int) -> None:
    """Two per multiplication and addition; scores and their means over all pairs; the head, but no embedding."""
    config = with_parts(ffn=ffn, position=position)
    layer = 2 * (4 * DIM * DIM + matrices) + 2 * 2 * context * DIM
    assert count(config, Blank(VOCAB, context)).flops_per_token == LAYERS * layer + 2 * DIM * VOCAB


def test_the_model_of_tiny() -> None:
    """As README.md, docs/ and the plan's preview show it."""
    config = sized(dim=64, heads=4, layers=2)
    found = count(config, Blank(256, 64))
    assert found.params == 115_968 and found.flops_per_token == 262_144


@each_cell
def test_counts_are_those_of_the_real_model(config: dict[str, Any]) -> None:
    found = count(sized(config), Blank(VOCAB, CONTEXT))
    model = initialised_model(sized(config), Blank(VOCAB, CONTEXT), 0)
    assert found.params == sum(p.numel() for p in model.parameters())
    assert {name: shape for name, (_, shape) in found.shapes.items()} == {
        name: tuple(p.shape) for name, p in model.named_parameters()
    }
    assert found.flops_per_token > 2 * DIM * VOCAB


@each_cell
def test_counting_moves_no_global_state_and_keeps_no_memory(config: dict[str, Any]) -> None:
    state = torch.get_rng_state()
    count(sized(config, dim=16_384, heads=4, layers=1), Blank(50_000, CONTEXT))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.zeros(1).device.type == "cpu"


def test_notes_are_told_once() -> None:
    notes = count(with_parts(norm="bn"), Blank(VOCAB, CONTEXT)).notes
    assert len(notes) == 1 and notes[0].startswith("BatchNorm: ") and "future" in notes[0]
    assert count(sized(), Blank(VOCAB, CONTEXT)).notes == []


def test_dropout_and_training_do_not_change_the_count() -> None:
    plain, dropping = count(sized(), Blank(VOCAB, CONTEXT)), count(sized(dropout=0.3), Blank(VOCAB, CONTEXT))
    assert (dropping.params, dropping.flops_per_token) == (plain.params, plain.flops_per_token)


def test_utilisation() -> None:
    device = "NVIDIA H200"
    assert utilisation(1e9, 1e5, device, "bf16") == pytest.approx(3e14 / 989e12)
    assert utilisation(1e9, 1e5, device, "fp32") is None
    assert utilisation(1e9, 1e5, "some other card", "bf16") is None


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA GH200 480GB", 990e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA H20", 148e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", 181e12),
        ("NVIDIA A40", 150e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA GeForce RTX 3090", 71e12),
        ("NVIDIA GeForce RTX 5090", 209e12),
        ("NVIDIA RTX A6000", 155e12),
    ],
)
def test_known_peaks(device: str, peak: float) -> None:
    assert utilisation(1e9, 1e5, device, "bf16") == pytest.approx(3e14 / peak)


@pytest.mark.parametrize(
    "device",
    [
        *("NVIDIA RTX A1000", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
        *("NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5090 D"),
        "NVIDIA RTX 6000 Ada Generation",
    ],
)
def test_a_card_of_a_similar_name_or_a_slice_of_one_has_no_known_peak(device: str) -> None:
    """No number is better than a wrong one."""
    assert peak_of(device) is None and utilisation(1e9, 1e5, device, "bf16") is None
