"""What every variant on disk must keep to, in a whole model: one variant at a time beside the reference ones.

`variants`, `read`, `configuration` and `built` serve the other tests of the model, too.
"""

from __future__ import annotations

import copy
import io
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from blank import Blank
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from ablate.build import initialised_model
from ablate.catalogue import CONF
from ablate.model.dropout import rekey
from ablate.model.norm import InstanceNorm, running_norms
from ablate.schema import COMPONENTS

VOCAB, CONTEXT = 13, 12
SHAPE = {"layers": 2, "heads": 2, "dim": 16}


def variants(group: str) -> list[str]:
    """The variants of a group on disk."""
    names = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
    assert names, f"conf/{group} holds no variant"
    return names


def read(group: str, variant: str) -> dict[str, Any]:
    """A variant's YAML."""
    node = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{variant}.yaml"))
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


DEFAULTS = [entry for entry in OmegaConf.load(CONF / "config.yaml").defaults if isinstance(entry, DictConfig)]
REFERENCE = {str(group): choice for entry in DEFAULTS for group, choice in entry.items()}
CELLS: list[dict[str, str]] = [
    {},
    *({group: name} for group in COMPONENTS for name in variants(group) if name != REFERENCE[group]),
]
# Few cells that hold every variant at least once, for what is slow.
LONGEST = max(len(variants(group)) for group in COMPONENTS)
COVER = [{group: variants(group)[i % len(variants(group))] for group in COMPONENTS} for i in range(LONGEST)]


def name_of(cell: dict[str, str]) -> str:
    """A cell in a test's name."""
    return "-".join(cell.values()) or "reference"


each_cell = pytest.mark.parametrize("cell", CELLS, ids=name_of)
covering = pytest.mark.parametrize("cell", COVER, ids=name_of)


def configuration(cell: dict[str, str] | None = None, **model: Any) -> dict[str, Any]:
    """The part of a resolved configuration that a model is built from: a cell, in a shape fit for tests."""
    chosen = REFERENCE | (cell or {})
    parts = {group: read(group, chosen[group]) for group in COMPONENTS}
    return parts | {"model": read("model", chosen["model"]) | SHAPE | model, "data": {"context": CONTEXT}}


def built(cell: dict[str, str] | None = None, seed: int = 0, **model: Any) -> nn.Module:
    """The initialised model of a cell."""
    return initialised_model(configuration(cell, **model), Blank(VOCAB, CONTEXT), seed)


def some_tokens(batch: int = 3, length: int = CONTEXT, seed: int = 0) -> Tensor:
    """Token ids (batch, length)."""
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def exact(cell: dict[str, str], **model: Any) -> nn.Module:
    """A cell's model in float64, larger weights than at initialisation, running statistics of one batch, evaluating."""
    made = built(cell, **model).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        made.train()(some_tokens(seed=9))
    return made.eval()


def test_every_component_has_variants_and_a_reference_among_them() -> None:
    for group in COMPONENTS:
        assert REFERENCE[group] in variants(group)
    assert {name for cell in COVER for name in cell.values()} == {v for group in COMPONENTS for v in variants(group)}


@each_cell
def test_names_are_the_stable_ones(cell: dict[str, str]) -> None:
    stable = re.compile(r"(embed|position|blocks\.\d+\.((cross_)?attention|ffn|norms)|final_norm|head)\.[\w.]+")
    for name, _ in built(cell, tie_embeddings=False).named_parameters():
        assert stable.fullmatch(name), name


def test_names_of_the_sublayers_parts() -> None:
    names = [name.removeprefix("blocks.0.") for name, _ in built({"ffn": "swiglu"}).named_parameters()]
    sublayers = [name for name in names if name.startswith(("attention.", "ffn."))]
    expected = [f"attention.{part}.weight" for part in ("query", "key", "value", "out")]
    assert sublayers == expected + [f"ffn.{part}.weight" for part in ("gate", "up", "down")]


@each_cell
@pytest.mark.parametrize("now", [0, 4, CONTEXT - 2])
def test_no_position_sees_a_later_one(cell: dict[str, str], now: int) -> None:
    model, tokens = exact(cell), some_tokens()
    other = tokens.clone()
    other[:, now + 1 :] = (other[:, now + 1 :] + 1) % VOCAB
    with torch.no_grad():
        before, after = model(tokens), model(other)
    torch.testing.assert_close(before[:, : now + 1], after[:, : now + 1], rtol=0, atol=1e-12)
    assert (before[:, now + 1 :] - after[:, now + 1 :]).abs().amax(-1).min() > 1e-6  # the test can see a change


@each_cell
def test_every_position_sees_all_earlier_ones(cell: dict[str, str]) -> None:
    if cell.keys() & {"attention"}:
        return  # a window may be its point
    model, tokens = exact(cell), some_tokens()
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % VOCAB
    with torch.no_grad():
        assert (model(tokens) - model(other)).abs().amax(-1).min() > 0  # be it little, where attention is saturated


@each_cell
@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
@pytest.mark.parametrize("where", ["right", "left", "holes"])
def test_padding_never_changes_a_real_position(cell: dict[str, str], training: bool, where: str) -> None:
    model, tokens = exact(cell).train(training), some_tokens()
    mask = torch.ones(tokens.shape)
    for row, count in enumerate((0, 3, 7)):
        padded = {"right": slice(CONTEXT - count, None), "left": slice(count), "holes": slice(1, 1 + count)}
        mask[row, padded[where]] = 0
    real = mask.bool()
    with torch.no_grad():
        before = model(tokens, mask)
        after = model(torch.where(real, tokens, (tokens + 5) % VOCAB), mask)
    assert before.isfinite().all(), "a value that is no number at a padded position can reach others through 0 · nan"
    torch.testing.assert_close(before[real], after[real], rtol=0, atol=1e-12)


@each_cell
def test_padding_on_the_right_is_as_if_it_were_not_there(cell: dict[str, str]) -> None:
    model, tokens = exact(cell), some_tokens()
    mask = torch.ones(tokens.shape)
    mask[:, 7:] = 0
    with torch.no_grad():
        torch.testing.assert_close(model(tokens, mask)[:, :7], model(tokens[:, :7]), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(model(tokens, torch.ones(tokens.shape)), model(tokens), rtol=1e-9, atol=1e-12)


@each_cell
@pytest.mark.parametrize("flag", ["", "tie_embeddings", "share_layers", "scale_embeddings"])
def test_every_parameter_gets_a_gradient(cell: dict[str, str], flag: str) -> None:
    off = dict.fromkeys(("tie_embeddings", "share_layers", "scale_embeddings"), False)
    model, tokens = built(cell, **(off | ({flag: True} if flag else {}))), some_tokens(8)
    F.cross_entropy(model(tokens).flatten(0, 1), some_tokens(8, seed=1).flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is connected to nothing"
        assert parameter.grad.isfinite().all() and parameter.grad.any(), name


@each_cell
def test_state_dict_round_trip(cell: dict[str, str]) -> None:
    first, second = built(cell, 0), built(cell, 1)
    first(some_tokens(seed=3))  # moves running statistics, where there are any
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(first.eval()(some_tokens()), second.eval()(some_tokens()))
    assert second.head.weight is second.embed.weight


@each_cell
def test_bf16_autocast_stays_finite_and_near(cell: dict[str, str]) -> None:
    model, tokens = built(cell, dropout=0.1), some_tokens(8)
    rekey(model, 0, 0)
    full = model(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(tokens)
    F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(logits.float(), full, rtol=0.1, atol=0.05 * full.abs().max().item())


@covering
def test_compiled_in_place_it_computes_the_same(cell: dict[str, str]) -> None:
    eager = built(cell, dropout=0.2, layers=1)
    compiled = copy.deepcopy(eager)
    torch._dynamo.reset()
    compiled.compile(backend="aot_eager", fullgraph=True)
    assert list(dict(compiled.named_parameters())) == list(dict(eager.named_parameters()))
    tokens, losses = some_tokens(), []
    for step in range(2):
        for model in (eager, compiled):
            rekey(model, 0, step)
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[0::2], losses[1::2], rtol=1e-5, atol=1e-6)
    assert losses[0] != losses[2], "a mask that the compiler baked in would not change with the step"
    for (name, mine), theirs in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=name)
    for mine, theirs in zip(eager.buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


@covering
def test_a_stack_of_replicas_computes_what_each_does_alone(cell: dict[str, str]) -> None:
    models = [built(cell, seed, dropout=0.2) for seed in range(3)]
    for seed, model in enumerate(models):
        rekey(model, seed, 5)
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    tokens = torch.stack([some_tokens(seed=seed) for seed in range(3)])

    def forward(parameters: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor) -> Tensor:
        return torch.func.functional_call(models[0], (parameters, buffers), (tokens,), tie_weights=True)

    packed = torch.func.vmap(forward)(parameters, buffers, tokens)
    for i, model in enumerate(models):
        torch.testing.assert_close(packed[i], model(tokens[i]), rtol=1e-5, atol=1e-6)
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[name][i], buffer)


@each_cell
@pytest.mark.parametrize("share", [False, True], ids=["own layers", "shared layers"])
def test_settled_statistics_are_those_of_training(cell: dict[str, str], share: bool) -> None:
    """Evaluation computes what training does, once running statistics, where there are any, have seen enough."""
    model, tokens = built(cell, share_layers=share).double(), some_tokens(32)
    if any(isinstance(norm, InstanceNorm) for norm in running_norms(model)):
        return  # each sequence has statistics of its own, and the running ones are those of all
    with torch.no_grad():
        for _ in range(100):
            training = model(tokens)
        evaluating = model.eval()(tokens)
    assert (training - evaluating).square().mean().sqrt() < 0.02 * training.std()


@each_cell
@pytest.mark.parametrize("length", [1, 2, CONTEXT])
def test_any_length_up_to_the_context(cell: dict[str, str], length: int) -> None:
    model, tokens = exact(cell), some_tokens()
    with torch.no_grad():
        short, whole = model(tokens[:, :length]), model(tokens)
    assert short.shape == (3, length, VOCAB)
    torch.testing.assert_close(short, whole[:, :length], rtol=1e-9, atol=1e-12)
