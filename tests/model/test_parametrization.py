"""Maximal update parametrization against its paper: the table of scales and rates, and the coordinate check."""

import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from empty_task import Blank
from reference_config import CONFIG, component
from torch import nn

from ablate.config.errors import BadComponent
from ablate.config.schema import Config, typed
from ablate.model.build import build_model, initialised_model
from ablate.model.init import role_of
from ablate.training.optim import adamw, follow_width, lion, sgd

BASE, HEADS, VOCAB = 32, 4, 11
OPTIMISERS: dict[str, Any] = {
    "adamw": (adamw, ([0.9, 0.99], 0.1), "adam", 0.02),
    "lion": (lion, ([0.9, 0.99], 0.1), "adam", 0.01),
    "sgd": (sgd, (0.1, 0.9, False), "sgd", 0.3),
}


def config_of(dim: int, mup: bool, **sections: Any) -> Config:
    """The reference model, two layers of it, in a width."""
    parts = {"_target_": "ablate.model.parametrization.MuP", "base_dim": BASE, "base_head_dim": None}
    shape = CONFIG["model"] | {"dim": dim, "heads": HEADS, "layers": 2, "tie_embeddings": False}
    chosen = {"parametrization": parts} if mup else {}
    return typed(CONFIG | {"model": shape | sections.pop("model", {})} | chosen | sections)


def made(dim: int, mup: bool, optimiser: str, **sections: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    config = config_of(dim, mup, **sections)
    kind = "seq2seq" if config.model._target_.endswith("EncoderDecoder") else "lm"
    model = initialised_model(config, Blank(VOCAB, kind=kind), 0)
    make, given, rule, lr = OPTIMISERS[optimiser]
    found = make(model, lr, *given)
    if mup:
        follow_width(found, rule)
    return model, found


def coordinates(dim: int, mup: bool, optimiser: str, **sections: Any) -> dict[str, float]:
    """By how much the coordinates of each block's output, and the logits, have moved after five steps: RMS."""
    model, found = made(dim, mup, optimiser, **sections)
    seen: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if not re.search(r"(^|\.)(blocks\.\d|head)$", name):
            continue
        module.register_forward_hook(
            lambda _, __, out, name=name: seen.__setitem__(name, getattr(out, "x", out).detach())
        )
    tokens = torch.randint(VOCAB, (8, 16), generator=torch.Generator().manual_seed(1))
    start = {}
    for step in range(6):
        logits = model(tokens, tokens) if hasattr(model, "decode") else model(tokens)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        start = start or dict(seen)
        if step < 5:
            found.zero_grad()
            loss.backward()
            found.step()
    return {name: (seen[name] - start[name]).square().mean().sqrt().item() for name in seen}


def slopes(mup: bool, optimiser: str, times: int = 4, **sections: Any) -> dict[str, float]:
    """How these grow from width 32 to some times that: exponents of the width."""
    small, large = (coordinates(dim, mup, optimiser, **sections) for dim in (BASE, times * BASE))
    return {name: math.log(large[name] / small[name], times) for name in small}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_coordinates_move_alike_at_all_widths_under_mup_and_more_at_larger_ones_under_standard(optimiser):
    """The coordinate check of the paper."""
    level, growing = slopes(True, optimiser, 8), slopes(False, optimiser, 8)
    assert all(abs(slope) < 0.3 for slope in level.values()), level
    assert growing["blocks.0"] > 0.6 and growing["blocks.1"] > 0.6 and growing["head"] > 0.3, growing


def stack(attention: str = "mha", form: str = "decoder", tie: bool = False, **groups: str) -> dict[str, Any]:
    """The sections of a stack by its variants, with whatever the attention is given as attention:key:value."""
    name, *given = attention.split(":")
    own = dict(zip(given[::2], given[1::2], strict=True))
    settings = {key: int(value) if value.isdigit() else value for key, value in own.items()}
    model = {
        "model": component("model", form) | {"tie_embeddings": tie},
        "attention": component("attention", name) | settings,
    }
    return model | {group: component(group, variant) for group, variant in groups.items()}


STACKS = {
    "gqa": stack("gqa:kv_heads:2", ffn="swiglu", norm="rms", position="rope"),
    "mqa tied": stack("mqa:qk_norm:ln:over:all", tie=True, init="torch", residual="sandwich"),
    "options": stack("gated:qk_norm:ln:sink:learned:value_residual:learned:window:5", position="alibi"),
    "mla frozen": stack("mla", embedding="random", init="xavier", position="rope", residual="parallel"),
    "factorised": stack(embedding="factorised", residual="post", position="t5"),
    "two stacks": stack(form="encoder_decoder", tie=True),
}


@pytest.mark.parametrize(
    ("name", "optimiser"), [*((name, "adamw") for name in STACKS), ("options", "sgd"), ("two stacks", "sgd")]
)
def test_coordinates_of_other_stacks_move_no_more_at_larger_widths(name, optimiser):
    """Under standard those of AdamW grow as the root of the width, or faster."""
    found = slopes(True, optimiser, **STACKS[name])
    assert all(-0.6 < slope < 0.3 for slope in found.values()), found
    if name == "gqa":
        growing = slopes(False, optimiser, **STACKS[name])
        assert max(growing.values()) > 0.35, growing


@pytest.mark.parametrize(("optimiser", "tie"), [*zip(OPTIMISERS, (True, False, True), strict=True)])
def test_at_the_base_width_nothing_changes(optimiser, tie):
    tokens = torch.randint(VOCAB, (2, 8), generator=torch.Generator().manual_seed(1))
    found = []
    for mup in (False, True):
        model, stepping = made(BASE, mup, optimiser, model={"tie_embeddings": tie})
        for _ in range(2):
            stepping.zero_grad()
            F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            stepping.step()
        found.append((model.state_dict(), model(tokens), [group["lr"] for group in stepping.param_groups]))
    assert found[0][2] == found[1][2] and torch.equal(found[0][1], found[1][1])
    assert all(torch.equal(x, found[1][0][name]) for name, x in found[0][0].items())


def test_scales_and_rates_are_those_of_the_paper_s_table():
    """Table 8, at four times the base width: by hand, for each kind of parameter."""
    m, lr = 4, {"adamw": 0.02, "sgd": 0.3}
    small = dict(initialised_model(config_of(BASE, True), Blank(VOCAB), 0).named_parameters())
    for optimiser, rates in {
        "adamw": {"hidden": lr["adamw"] / m, "vector": lr["adamw"], "table": lr["adamw"], "head": lr["adamw"]},
        "sgd": {"hidden": lr["sgd"], "vector": lr["sgd"] * m, "table": lr["sgd"] * m, "head": lr["sgd"] * m},
    }.items():
        model, found = made(m * BASE, True, optimiser)
        own = {id(p): group for group in found.param_groups for p in group["params"]}
        for name, parameter in model.named_parameters():
            role, group = role_of(parameter), own[id(parameter)]
            hidden = parameter.ndim == 2 and role in ("in", "out")
            kind = "hidden" if hidden else {"embedding": "table", "head": "head"}.get(role, "vector")
            assert group["lr"] == pytest.approx(rates[kind]), name
            assert group["lr"] * group["weight_decay"] == pytest.approx(lr[optimiser] * 0.1 * (parameter.ndim > 1)), (
                name
            )
            if parameter.ndim > 1:
                ratio = (parameter.std() / small[name].std()).item()
                assert ratio == pytest.approx(m**-0.5 if hidden else 1, rel=0.2), name
        attention = model.get_submodule("blocks.0.attention")
        assert attention.scale == pytest.approx(math.sqrt(BASE / HEADS) / (m * BASE / HEADS))
        x, head = torch.randn(2, 3, m * BASE), model.get_submodule("head")
        torch.testing.assert_close(head(x), F.linear(x, head.weight) / m)


def test_heads_that_grow_in_number_keep_their_scale():
    mup = {"_target_": "ablate.model.parametrization.MuP", "base_dim": BASE, "base_head_dim": 8}
    model = build_model(config_of(4 * BASE, False, model={"heads": 16}, parametrization=mup), Blank(VOCAB))
    assert model.get_parameter("blocks.0.attention.query.weight").gain == 0.5
    assert model.get_submodule("blocks.0.attention").scale == pytest.approx(8**-0.5)
    fixed = {"heads": 16, "head_dim": 8}
    model = build_model(config_of(4 * BASE, False, model=fixed, parametrization=mup), Blank(VOCAB))
    assert model.get_submodule("blocks.0.attention").scale == pytest.approx(8**-0.5)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"ffn": component("ffn", "moe")}, "writes 8 features"),
        ({"residual": component("residual", "hyper_connections")}, "writes 6 features"),
        ({"attention": component("attention", "differential")}, "lambdas.0, whose scale is its own"),
        ({"attention": component("attention", "gla")}, "takes no softmax of scores"),
        ({"attention": component("attention", "mha") | {"scale": 1.0}}, "leave it null"),
        ({"model": {"scale_embeddings": True}}, "grows with the width"),
        ({"model": {"heads": 3, "dim": 48}}, "heads of 10.7 features"),
        ({"model": {"head_dim": 8}}, "write how wide they are at the base width"),
    ],
)
def test_what_the_table_says_nothing_of_is_refused(sections, message):
    with pytest.raises(BadComponent, match=message):
        build_model(config_of(2 * BASE, True, **sections), Blank(VOCAB))
