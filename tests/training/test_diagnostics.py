"""Diagnostics: each number against a direct computation, and no other number of a run may change for them."""

import math
from typing import Any

import pytest
import torch
from cyclic_task import CPU, SETTING, VOCAB, Cycles, model, same, state
from reference_config import CONFIG, component
from torch import Tensor, nn

from ablate.config.schema import typed
from ablate.model.build import initialised_model
from ablate.model.norm import running_norms
from ablate.model.position import Places
from ablate.training.diagnostics import diagnose, largest_logit, rms

SIZE = 5


@pytest.fixture
def held_out():
    return Cycles(VOCAB).held_out("val", 400)


def test_gradients_by_layer(held_out):
    made = model("ln")
    found = diagnose(made, held_out, SIZE, SETTING)
    made.eval()
    logits = made(held_out.inputs["tokens"][:SIZE])
    nn.functional.cross_entropy(logits.transpose(1, 2), held_out.targets[:SIZE]).backward()
    for name in ("embed", "blocks.0", "blocks.1"):
        squares = sum(float(p.grad.double().square().sum()) for p in made.get_submodule(name).parameters())
        assert found[f"diag/grad_norm/{name}"] == pytest.approx(math.sqrt(squares), rel=1e-5)


def test_what_serves_training_alone_shows_no_gradients(held_out):
    objective = component("objective", "multi_token") | {"tokens": 3}
    made = initialised_model(typed(CONFIG | {"objective": objective}), Cycles(VOCAB), 0)
    found = diagnose(made, held_out, 5, SETTING)
    assert "diag/grad_norm/blocks.1" in found and not [name for name in found if "later" in name]


def test_activations_by_layer(held_out):
    made = model("bn").eval()
    found = diagnose(made, held_out, SIZE, SETTING)
    outputs: list[Tensor] = []
    for block in made.blocks:
        block.register_forward_hook(lambda block, given, stream: outputs.append(stream.x.detach()))
    made(held_out.inputs["tokens"][:SIZE])
    for i, x in enumerate(outputs):
        assert found[f"diag/activation_rms/blocks.{i}"] == pytest.approx(float(x.double().square().mean().sqrt()))
    names = [name for name, module in made.named_modules() if module in running_norms(made)]
    assert {f"diag/drift/{name}" for name in names} == {key for key in found if "drift" in key} and len(names) == 5


def test_padding_does_not_count():
    x = torch.randn(3, 7, 4)
    mask = torch.ones(3, 7)
    mask[1, 4:] = 0
    assert float(rms(x, mask)) == pytest.approx(float(x[mask.bool()].square().mean().sqrt()))


class Projecting(nn.Module):
    """What attention shows of itself to be diagnosed."""

    scale = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8, dtype=torch.float64)
        self.key = nn.Linear(8, 8, dtype=torch.float64)

    def project(self, x: Tensor, memory: Tensor, places: Any) -> tuple[Tensor, Tensor, Tensor]:
        query = self.query(x).unflatten(-1, (2, 4)).transpose(1, 2)
        key = self.key(memory).unflatten(-1, (2, 4)).transpose(1, 2)
        return query, key, key

    def forward(self, x, places, causal, mask=None, memory=None):
        return x


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_logits_of_visible_pairs(across, causal, padded):
    made = Projecting()
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    memory = torch.randn(3, 7, 8, dtype=torch.float64) if across else None
    keys = memory if across else x
    x[:, 4] *= 9  # what nothing sees must be what would count
    keys[:, -1] *= 9
    mask = torch.ones(3, keys.shape[1])
    mask[:, -1] = 0
    query, key, _ = made.project(x, keys, None)
    visible = torch.ones(3, 1, 5, keys.shape[1])
    if causal and not across:
        visible = visible.tril()
    if padded:
        visible = visible * mask[:, None, None]
    if padded and not across:
        visible = visible * mask[:, None, :, None]
    largest = float((0.3 * (query @ key.transpose(-1, -2)).abs() * visible).max())
    for places, factor in ((None, 1), (Places(factor=1.5), 1.5)):
        logit = largest_logit(made, x, places, causal, mask if padded else None, memory)
        assert float(logit) == pytest.approx(factor * largest, rel=1e-5)


def test_what_is_not_finite_is_shown_as_it_is(held_out):
    made = model("ln")
    with torch.no_grad():
        made.blocks[0].attention.out.weight.fill_(math.nan)
    found = diagnose(made, held_out, SIZE, SETTING)
    assert math.isnan(found["diag/activation_rms/blocks.0"]) and math.isnan(found["diag/attention_logit/blocks.1"])


def test_nothing_of_the_model_moves(held_out):
    made = model("bn").train()
    before = state(made)
    random = torch.get_rng_state()
    first = diagnose(made, held_out, SIZE, SETTING)
    assert same(state(made), before) and torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in made.modules())
    assert diagnose(made, held_out, SIZE, SETTING) == first and SETTING.device == CPU
