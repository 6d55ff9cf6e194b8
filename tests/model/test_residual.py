"""How blocks and whole models are wired, against the same formulas composed by hand, in float64."""

from typing import Any

import pytest
import torch
from empty_task import Blank, some_shape
from model_variants import CONTEXT, VOCAB, configuration, some_tokens, variants, without_formula
from reference_config import component
from residuals import DIM, WIRED, Map, Mix, passed, sublayers
from tensors import some
from torch import nn

from ablate.config.components import bind
from ablate.model.build import initialised_model, offered
from ablate.model.dropout import rekey
from ablate.model.position import Places
from ablate.model.residual import DeepNorm

every = pytest.mark.parametrize("variant", variants("residual"))


def from_disk(variant: str, cross: bool = False, ffn: bool = True, **more: Any) -> Any:
    """A residual style as its YAML describes it, around stand-ins; every parameter drawn, so that no two are alike."""
    shape = some_shape(DIM, dropout=0.3, encoder_layers=2 * cross)
    parts = sublayers(Mix() if cross else None, nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh()) if ffn else None)
    given = offered(shape) | {"sublayers": parts, "layer": 1}
    made = bind("residual", component("residual", variant) | more, given)().double()
    for seed, parameter in enumerate(made.parameters()):
        with torch.no_grad():
            parameter.copy_(0.5 * some(*parameter.shape, seed=seed))
    return made


# ---- each style, from its paper


def test_every_variant_has_a_formula():
    how = "write its step into STEPS in tests/helpers/residuals.py, from its paper, or def {name}(block, x, f) and"
    assert not (message := without_formula("residual", WIRED, how + " add it to FORMULAS")), message


NORMS = {"sandwich": 2, "rezero": 0}  # of a sublayer, where it is not one


@every
@pytest.mark.parametrize("cross", [False, True], ids=["alone", "cross"])
@pytest.mark.parametrize("ffn", [False, True], ids=["no ffn", "ffn"])
def test_a_block_is_its_formula(variant, cross, ffn):
    """With dropout; evaluating it is another."""
    made, x, memory = from_disk(variant, cross, ffn), some(2, 4, DIM), some(2, 5, DIM, seed=1)
    rekey(made, 0, 0)
    f: list[Map] = [lambda y: made.attention(y, Places(), True)]
    f += [lambda y: made.cross_attention(y, Places(), False, None, memory)] * cross + [made.ffn] * ffn
    expected = WIRED[variant](made, x, f)
    assert len(made.dropouts) == len(f) and len(made.norms) == NORMS.get(variant, 1) * len(f)
    got = passed(made, x, Places(), True, None, memory if cross else None)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    expected, got = WIRED[variant](made.eval(), x, f), passed(made, x, Places(), True, None, memory if cross else None)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@every
@pytest.mark.parametrize("cross", [False, True], ids=["alone", "cross"])
def test_hands_places_causality_masks_and_memory_on(variant, cross):
    """Attention to a memory has no positions, is not causal, and has the memory's mask; norms have the stream's."""
    for mask, memory_mask in ((None, None), (torch.ones(2, 4), torch.ones(2, 5)), (None, torch.ones(2, 5))):
        for causal in (False, True):
            made, places, memory = from_disk(variant, cross), Places(None, torch.zeros(4, 4)), some(2, 5, DIM)
            passed(made, some(2, 4, DIM), places, causal, mask, memory, memory_mask)
            ((p, c, m, other),) = made.attention.given
            assert p is places and c is causal and m is mask and other is None
            assert all(norm.mask is mask for norm in made.norms)
            if cross:
                ((p, c, m, other),) = made.cross_attention.given
                assert p == Places() and c is False and m is memory_mask and other is memory


# ---- how they start


def form(model: str, cell: dict[str, str], seed: int = 0, **shape: Any) -> Any:
    """The initialised model of a form."""
    kind = {"decoder": "lm", "encoder": "mlm", "encoder_decoder": "seq2seq"}[model]
    return initialised_model(configuration({"model": model} | cell, **shape), Blank(VOCAB, CONTEXT, kind), seed)


# (form, layers, stack) -> α and β by the table of arXiv 2203.00555, worked out to 4 digits.
PUBLISHED = [
    ("encoder", 2, "", 1.4142, 0.5),
    ("decoder", 8, "", 2.0, 0.3536),
    ("encoder_decoder", 2, "encoder.", 1.0059, 0.7006),  # N⁴M = 2⁵
    ("encoder_decoder", 2, "decoder.", 1.5651, 0.4518),
]


@pytest.mark.parametrize(("name", "layers", "stack", "alpha", "beta"), PUBLISHED)
def test_deepnorm_has_the_paper_s_factors(name, layers, stack, alpha, beta):
    """β on the FFN, values and outputs of every attention; 1 on all else."""
    model = form(name, {"residual": "deepnorm", "ffn": "swiglu"}, layers=layers)
    blocks = model.get_submodule(f"{stack}blocks")
    assert [block.alpha for block in blocks] == pytest.approx([alpha] * layers, abs=6e-5)
    for name, parameter in blocks.named_parameters():
        small = parameter.ndim > 1 and not any(part in name for part in (".query.", ".key."))
        assert getattr(parameter, "gain", 1.0) == pytest.approx(beta if small else 1, abs=6e-5), name


def test_deepnorm_of_stacks_of_different_depth():
    def made(n: int, m: int, cross: Any) -> DeepNorm:
        shape = some_shape(DIM, encoder_layers=n, decoder_layers=m)
        return DeepNorm(shape, sublayers(cross, nn.Linear(DIM, DIM)))

    encoder, decoder = made(18, 6, None), made(18, 6, Mix())
    assert encoder.alpha == pytest.approx(0.81 * (18**4 * 6) ** 0.0625) and decoder.alpha == pytest.approx(18**0.25)
    assert encoder.ffn.weight.gain == pytest.approx(0.87 / (18**4 * 6) ** 0.0625)  # type: ignore[union-attr]
    assert decoder.ffn.weight.gain == pytest.approx(72**-0.25)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["decoder", "encoder", "encoder_decoder"])
def test_rezero_starts_as_the_identity(name):
    """Logits are those of the embeddings alone, though every sublayer would have something to add."""
    model = form(name, {"residual": "rezero", "position": "none"}).double()
    tokens, more = some_tokens(), {"source": some_tokens(seed=1)} if name == "encoder_decoder" else {}
    torch.testing.assert_close(model(tokens=tokens, **more), model.embed.weight[tokens] @ model.head.weight.T)
    for block in [module for module in model.modules() if hasattr(module, "wire")]:
        assert block.alpha.shape == () and block.alpha.item() == 0
        torch.nn.init.ones_(block.alpha)
    assert not torch.allclose(model(tokens=tokens, **more), model.embed.weight[tokens] @ model.head.weight.T)


def test_layerscale_starts_small():
    start = 0.1
    config = configuration({"residual": "layerscale"}).with_value("residual.init", start)
    model: Any = initialised_model(config, Blank(VOCAB, CONTEXT), 0).double()
    scales = [scale for block in model.blocks for scale in block.scales]
    assert len({id(scale) for scale in scales}) == len(scales) == 4
    assert all(torch.equal(scale.float(), torch.full((16,), start)) for scale in scales)
    x = some(2, 4, 16)
    assert 0 < float((passed(model.blocks[0], x, Places(), True) - x).norm()) < start * float(x.norm())
