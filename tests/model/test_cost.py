"""Parameters and FLOPs per token against sums done by hand."""

from typing import Any

import pytest
import torch
from empty_task import Blank
from test_components import CONFIG, component
from test_variants import COVER, name_of

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
# Counts are sums over components: each pair of the first three stands in one of these.
BASICS = [
    (
        norm,
        ffn,
        ("rope", "learned", "none", "sinusoidal")[(i + j) % 4],
        ("pre", "post")[(i + j) % 2],
        (1, 20, 33)[j - i],
    )
    for i, norm in enumerate(NORM_PARAMS)
    for j, ffn in enumerate(FFN_PARAMS)
]


@pytest.mark.parametrize(("norm", "ffn", "position", "residual", "context"), BASICS)
def test_sums_by_hand(norm: str, ffn: str, position: str, residual: str, context: int) -> None:
    """Two FLOPs per multiplication and addition; scores and their means over all pairs; the head, but no embedding."""
    found = count(with_parts(norm=norm, ffn=ffn, position=position, residual=residual), Blank(VOCAB, context))
    block = 4 * DIM * DIM + FFN_PARAMS[ffn] + 2 * NORM_PARAMS[norm]
    expected = VOCAB * DIM + LAYERS * block
    expected += context * DIM if position == "learned" else 0
    expected += NORM_PARAMS[norm] if residual == "pre" else 0
    matrices = SWIGLU_PARAMS if ffn == "swiglu" else 8 * DIM * DIM
    layer = 2 * (4 * DIM * DIM + matrices) + 2 * 2 * context * DIM
    assert found.params == expected and found.flops_per_token == LAYERS * layer + 2 * DIM * VOCAB


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


@pytest.mark.parametrize("i", range(9))
def test_attentions_and_residual_styles_by_hand(i: int) -> None:
    """Shared keys and values are projected once, but compared by every head; a window counts all pairs, too.

    Each attention and each residual style stands in one of these.
    """
    attention, residual = [*ATTENTIONS][i % 6], [*RESIDUALS][i]
    position = ("t5", "alibi", "partial_rope")[i // 2 % 3]
    params, matrices = ATTENTIONS[attention]
    each, last = RESIDUALS[residual]
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


def test_the_model_of_tiny() -> None:
    """As README.md, docs/ and the plan's preview show it."""
    config = sized(dim=64, heads=4, layers=2)
    found = count(config, Blank(256, 64))
    assert found.params == 115_968 and found.flops_per_token == 262_144


@pytest.mark.parametrize("cell", COVER, ids=name_of)
def test_counts_are_those_of_the_real_model_and_leave_no_trace(cell: dict[str, str]) -> None:
    own_head = {"tie_embeddings": cell["embedding"] != "random"}  # a frozen table is no head
    config = sized(CONFIG | {group: component(group, name) for group, name in cell.items()}, **own_head)
    state, task = torch.get_rng_state(), Blank(VOCAB, CONTEXT)
    found = count(config, task)
    assert torch.equal(state, torch.get_rng_state()) and torch.zeros(1).device.type == "cpu"
    model = initialised_model(config, task, 0)
    assert found.params == sum(p.numel() for p in model.parameters())
    assert {name: shape for name, (_, shape) in found.shapes.items()} == {
        name: tuple(p.shape) for name, p in model.named_parameters()
    }
    assert found.flops_per_token > 2 * DIM * VOCAB


def test_notes_are_told_once() -> None:
    notes = count(with_parts(norm="bn"), Blank(VOCAB, CONTEXT)).notes
    assert len(notes) == 1 and notes[0].startswith("BatchNorm: ") and "future" in notes[0]
    assert count(sized(), Blank(VOCAB, CONTEXT)).notes == []


def test_utilisation() -> None:
    device = "NVIDIA H200"
    assert utilisation(1e9, 1e5, device, "bf16") == pytest.approx(3e14 / 989e12)
    assert utilisation(1e9, 1e5, device, "fp32") is None
    assert utilisation(1e9, 1e5, "some other card", "bf16") is None


CARDS = {"H200": 989, "H100 80GB HBM3": 989, "A100-SXM4-80GB": 312, "A10": 125, "L40S": 362, "GeForce RTX 4090": 165}
CARDS |= {"H200 NVL": 835, "H100 NVL": 835, "H100 PCIe": 756, "GH200 480GB": 990, "B200": 2250, "H20": 148, "L4": 121}
CARDS |= {"L40": 181, "A40": 150, "A10G": 70, "A100 80GB PCIe": 312, "GeForce RTX 3090": 71, "GeForce RTX 5090": 209}
CARDS |= {"RTX A6000": 155}


def test_known_peaks() -> None:
    assert {name: peak_of(f"NVIDIA {name}") for name in CARDS} == {name: peak * 1e12 for name, peak in CARDS.items()}


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
