"""Later layers mix in the first layer's values: against whole stacks by hand, in float64."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from empty_task import Blank
from model_variants import CONTEXT, VOCAB, check_padding, configuration, jitter, padded, some_inputs
from reference_config import component
from torch import Tensor

from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.model.build import initialised_model
from ablate.model.cost import count
from ablate.model.position import Places

FORMS = [("decoder", "lm"), ("encoder", "mlm"), ("encoder_decoder", "seq2seq")]
LM = FORMS[0]
EVERY = {"qk_norm": "ln", "window": 5, "gate": "head", "sink": "learned", "soft_cap": 5.0}


def chosen(kind: str | None, cell: dict[str, str] | None = None, form: tuple[str, str] = LM, **more: Any) -> Config:
    """A configuration of three layers with a value residual, with other options of attention and of the model."""
    model = {name: value for name, value in more.items() if name in ("share_layers", "layers", "dropout")}
    config = configuration({"attention": "gqa", "model": form[0]} | (cell or {}), **{"layers": 3} | model)
    options = {name: value for name, value in more.items() if name not in model}
    return config.with_value("attention", config.attention | {"value_residual": kind} | options)


def made(config: Config, form: tuple[str, str] = LM, seed: int = 0) -> Any:
    """Its model in float64, all of its numbers moved."""
    return jitter(initialised_model(config, Blank(VOCAB, CONTEXT, form[1]), seed).double(), 0.2).eval()


def by_hand(stack: Any, x: Tensor, causal: bool, memory: Tensor | None = None) -> Tensor:
    """A stack of pre-norm blocks without positions, each head by itself; λ₁ and λ₂ as the paper's text has them."""
    firsts: list[Tensor] = []
    for layer, block in enumerate(stack.blocks):
        a, y = block.attention, block.norms[0](x)
        heads = []
        for h in range(2):
            g = h // a.groups
            q, k, v = (
                F.linear(y, w.weight)[..., 8 * i : 8 * i + 8] for w, i in ((a.query, h), (a.key, g), (a.value, g))
            )
            if layer == 0:
                firsts.append(v)
            else:
                of_first, of_own = (0.5, 0.5) if a.value_residual == "identity" else a.shares.tolist()
                v = of_first * firsts[h] + of_own * v
            scores = q @ k.mT / 8**0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
            heads.append(scores.softmax(-1) @ v)
        x = x + F.linear(torch.cat(heads, -1), a.out.weight)
        if memory is not None:
            x = x + block.cross_attention(block.norms[1](x), Places(), False, None, memory)
        x = x + block.ffn(block.norms[-1](x))
    final: Tensor = stack.final_norm(x)
    return final


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[0])
@pytest.mark.parametrize(("kind", "groups"), [("identity", 1), ("learned", 2), ("learned", 1)])
def test_whole_models_are_the_paper_s_formula(kind, groups, form):
    model = made(chosen(kind, {"position": "none"}, form, kv_heads=groups), form)
    inputs = {name: model.embed(tokens) for name, tokens in some_inputs(form).items()}
    if form[1] == "seq2seq":
        memory = by_hand(model.encoder, inputs["source"], False)
        found = by_hand(model.decoder, inputs["tokens"], True, memory)
    else:
        found = by_hand(model, inputs["tokens"], form[1] == "lm")
    torch.testing.assert_close(model(**some_inputs(form)), F.linear(found, model.head.weight), rtol=1e-11, atol=1e-11)
    inputs = some_inputs(form, 7)
    check_padding(made(chosen(kind, form=form, **EVERY), form), inputs, padded(inputs))


def test_two_numbers_of_each_later_layer_are_learned():
    """None between stacks, none of the first layers; the draws of all else are those of a model without."""
    form = FORMS[2]
    task = Blank(VOCAB, CONTEXT, form[1])
    fixed, learned = (count(chosen(kind, form=form), task) for kind in ("identity", "learned"))
    new = sorted(learned.shapes.keys() - fixed.shapes.keys())
    assert new == [f"{stack}.blocks.{layer}.attention.shares" for stack in ("decoder", "encoder") for layer in (1, 2)]
    assert all(learned.shapes[name] == ("constant", (2,)) for name in new)
    models = [initialised_model(chosen(kind, form=form), task, 0).double() for kind in ("identity", "learned")]
    assert torch.equal(*(model(**some_inputs(form)) for model in models)), "they start alike"


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_compiled_or_in_bf16_it_computes_the_same(compiled):
    config, inputs = chosen("learned", {"residual": "hyper_connections"}, layers=2, **EVERY), some_inputs(LM)
    model = jitter(initialised_model(config, Blank(VOCAB, CONTEXT), 0), 0.05).eval()
    expected = model(**inputs)
    if compiled:
        torch._dynamo.reset()
        model.compile(backend="eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not compiled):
        found = model(**inputs)
    torch.testing.assert_close(found.float(), expected, **({} if compiled else {"rtol": 0.1, "atol": 0.1}))


def layered(*kinds: tuple[str, str | None]) -> Config:
    """A configuration whose layers have these attentions and value residuals."""
    config, names = chosen(None), [f"{variant}{i}" for i, (variant, _) in enumerate(kinds)]
    nodes = {
        name: component("attention", variant) | ({"value_residual": kind} if kind else {})
        for name, (variant, kind) in zip(names, kinds, strict=True)
    }
    return config.with_value("attention", {"_layers_": names, **nodes})


def test_layers_of_other_kinds_stand_between():
    """Groups of other sizes are of the same heads; a layer that does not ask, or has no values, is as without."""
    between = layered(("gqa", "identity"), ("linear", None), ("mqa", "identity"))
    model = made(between)
    assert model(**some_inputs(LM)).isfinite().all() and model.blocks[2].attention.shares == (0.5, 0.5)
    asked = made(layered(("gqa", "identity"), ("gqa", None), ("gqa", "identity")))
    assert asked.blocks[1].attention.shares is None and asked(**some_inputs(LM)).isfinite().all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (layered(("linear", None), ("gqa", "identity"), ("gqa", "identity")), "LinearAttention hands on none"),
        (layered(("gqa", "identity"), ("linear", None), ("linear", None)), "no later one.*for a later layer"),
        (chosen("identity", layers=1), r"no later one.*model\.layers=2"),
    ],
)
def test_a_stack_without_first_or_later_values_is_refused(config, message):
    with pytest.raises(BadComponent, match=message) as caught:
        made(config)
    assert caught.value.key == "attention.value_residual"


def test_between_stacks_there_is_none():
    config = chosen("identity", {"cross_attention": "mha"}, FORMS[2])
    with pytest.raises(BadComponent) as caught:
        made(config.with_value("cross_attention.value_residual", "identity"), FORMS[2])
    assert caught.value.key == "cross_attention.value_residual"
