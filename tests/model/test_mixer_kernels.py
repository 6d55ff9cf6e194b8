"""Mixers by flash-linear-attention's kernels: what they are handed, where they are used, and, in Triton's interpreter,
their numbers.  No test has a GPU."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from conftest import ROOT, run_fresh
from empty_task import Blank
from model_variants import LM, configuration, loss_of, some_inputs
from reference_config import component
from tensors import some
from torch import Tensor

from ablate.config.schema import Config
from ablate.model.build import initialised_model
from ablate.model.cost import count
from ablate.model.mixers import chunked, parts

MIXERS = ("gated_deltanet", "gla", "linear", "mamba2", "retention")
RULES = {"by_head": "simple_gla", "by_feature": "gla", "by_delta": "gated_delta_rule"}
every = pytest.mark.parametrize("variant", MIXERS)


def with_kernels(variant: str, form: str = "decoder", **model: Any) -> Config:
    """A cell of that variant by kernels, whose heads have enough features."""
    config = configuration({"attention": variant, "model": form}, **({"heads": 1, "dim": 32, "layers": 1} | model))
    return config.with_value("attention", config.attention | {"kernels": "fla"})


@every
def test_on_a_cpu_they_change_nothing(variant):
    both = with_kernels(variant), with_kernels(variant).with_value("attention.kernels", None)
    model, plain = (initialised_model(config, Blank(), 0) for config in both)
    assert torch.equal(loss_of(model, some_inputs(LM)), loss_of(plain, some_inputs(LM)))
    by, without = (count(config, Blank()) for config in both)
    assert by.flops_per_token == without.flops_per_token
    [note] = set(by.notes) - set(without.notes)
    assert "flash-linear-attention" in note and "plain form" in note


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
def test_what_the_library_is_handed(name, half, monkeypatch):
    """(B, T, H, ·), unscaled queries, rates in float32 beside products in the type of autocast."""
    asked: list[str] = []

    def stand_in(query: Tensor, key: Tensor, value: Tensor, g: Tensor, scale: float, **more: Tensor) -> Any:
        made, product = (query, key, value), torch.bfloat16 if half else torch.float32
        assert [x.dtype for x in made] == [product] * 3 and scale == 1.0
        assert query.shape == key.shape == (2, 70, 3, 16) and value.shape == (2, 70, 3, 24)
        assert g.shape[:3] == (2, 70, 3)
        rates = {"g": g, **more}
        assert all(x.dtype is torch.float32 for x in rates.values())
        heads_first = [x.double().transpose(1, 2) for x in (*made, *rates.values())]
        return getattr(chunked, name)(*heads_first).transpose(1, 2).to(product), None

    monkeypatch.setattr(parts, "supports", lambda x: True)
    monkeypatch.setattr(parts, "library_rule", lambda rule: asked.append(rule) or stand_in)
    shared = 1 if name == "by_head" else 3
    given = [some(2, shared, 70, 16), some(2, shared, 70, 16, seed=1), some(2, 3, 70, 24, seed=2)]
    given += [-some(2, 3, 70, *[16] * (name == "by_feature"), seed=3).abs()]
    given += [torch.sigmoid(some(2, 3, 70, seed=4))] * (name == "by_delta")
    given[0], given[1] = (torch.nn.functional.normalize(x, dim=-1) for x in given[:2])
    exact, given = getattr(chunked, name)(*given), [x.float() for x in given]
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found = getattr(parts, name)(*given, kernels="fla")
    assert asked == [RULES[name]]
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=(0.02 if half else 1e-5) * float(exact.abs().max()))


@pytest.mark.parametrize(
    ("variant", "model", "settings", "message"),
    [
        ("gla", {"dim": 16}, {}, "even numbers of features ≥ 16, not 8 of a head's keys and 16 of its values"),
        ("retention", {"dim": 17}, {"expand": 2}, "not 17 of a head's keys and 34"),
        ("mamba2", {}, {"state": 8}, "not 8 of a head's keys and 64"),
        ("gated_deltanet", {"dim": 512}, {}, "at most 256 features of keys, not 384 of a head's keys"),
        ("linear", {"form": "encoder"}, {}, "an encoder reads both ways"),
    ],
)
def test_what_they_cannot_do_is_refused(variant, model, settings, message):
    config = with_kernels(variant, **model).with_value("position", component("position", "none"))
    config = config.with_value("attention", config.attention | settings)
    with pytest.raises(ValueError, match=f"^fla .*{message}"):
        initialised_model(config, Blank(kind="mlm" if "form" in model else "lm"), 0)


def test_linear_attention_over_two_stacks_has_them_where_it_is_causal():
    initialised_model(with_kernels("linear", form="encoder_decoder"), Blank(kind="seq2seq"), 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_recurrences_and_gradients_are_the_plain_ones_in_triton_s_interpreter(name):
    if not (find_spec("fla") and find_spec("triton")):
        pytest.skip("flash-linear-attention is not installed: pip install -e '.[fla]'")
    helpers = str(ROOT / "tests" / "helpers")
    done = run_fresh("kernels_against_plain", name, cwd=ROOT, PYTHONPATH=helpers, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr[-3000:]
