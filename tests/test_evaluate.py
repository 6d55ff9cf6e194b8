"""Held-out metrics against direct cross-entropy; nothing about the model may move."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from blank import Blank
from test_build import CONFIG, component
from torch import Tensor, nn

from ablate import evaluate
from ablate.build import initialised_model
from ablate.evaluate import autocast, by_document, summarise, token_losses
from ablate.model.dropout import rekey

VOCAB, WINDOWS, LENGTH = 11, 13, 12
CPU = torch.device("cpu")


class Windows(NamedTuple):
    """What a task's `held_out` gives."""

    inputs: dict[str, Tensor]
    targets: Tensor
    documents: np.ndarray
    names: list[str]


def held_out(seed: int = 0) -> Windows:
    """Random windows over five documents, of which one is never scored."""
    text = torch.randint(VOCAB, (WINDOWS, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
    documents = np.sort(np.random.default_rng(seed).choice([0, 1, 3, 4], (WINDOWS, LENGTH)), axis=None)
    return Windows(
        {"tokens": text[:, :-1]}, text[:, 1:], documents.reshape(WINDOWS, LENGTH), ["a", "b", "unseen", "d", "e"]
    )


class Table(nn.Module):
    """Logits of the next token by the current one alone, some of them large."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(8 * torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(0)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits[tokens]


def model(**choices: str) -> nn.Module:
    """An initialised model with dropout."""
    config = CONFIG | {group: component(group, variant) for group, variant in choices.items()}
    made = initialised_model(config | {"model": config["model"] | {"dropout": 0.3}}, Blank(VOCAB), 0)
    rekey(made, 0, 0)
    return made


def test_losses_are_cross_entropy_in_nats() -> None:
    table, windows = Table(), held_out()
    losses = token_losses(table, windows, CPU, "fp32")
    assert losses.shape == (WINDOWS, LENGTH) and losses.dtype == np.float64
    logits = table.logits.detach().double().numpy()
    for w in range(WINDOWS):
        for t in range(LENGTH):
            row = logits[windows.inputs["tokens"][w, t]]
            expected = math.log(sum(math.exp(a) for a in row)) - row[windows.targets[w, t]]
            assert losses[w, t] == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("chunk", [1, LENGTH, 3 * LENGTH + 5, WINDOWS * LENGTH, 10**9])
@pytest.mark.parametrize("norm", ["ln", "bn"])
def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch, chunk: int, norm: str) -> None:
    made, windows = model(norm=norm), held_out()
    whole = token_losses(made, windows, CPU, "fp32")
    monkeypatch.setattr(evaluate, "CHUNK", chunk)
    np.testing.assert_allclose(token_losses(made, windows, CPU, "fp32"), whole, rtol=0, atol=1e-6)


def test_each_chunk_is_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    table = Table()
    table.register_forward_pre_hook(lambda module, _, given: sizes.append(given["tokens"].numel()), with_kwargs=True)
    monkeypatch.setattr(evaluate, "CHUNK", 5 * LENGTH + 3)
    token_losses(table, held_out(), CPU, "fp32")
    assert sizes == [5 * LENGTH, 5 * LENGTH, 3 * LENGTH]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm", ["ln", "bn"])
def test_evaluation_leaves_the_model_as_it_was(training: bool, norm: str) -> None:
    made = model(norm=norm).train(training)
    before = {name: p.clone() for name, p in [*made.named_parameters(), *made.named_buffers()]}
    state = torch.get_rng_state()
    first, second = (token_losses(made, held_out(), CPU, "fp32") for _ in range(2))
    assert (first == second).all()  # no dropout, no moving statistics
    assert made.training == training and all(module.training == training for module in made.modules())
    assert all(torch.equal(p, before[n]) for n, p in [*made.named_parameters(), *made.named_buffers()])
    assert all(p.grad is None for p in made.parameters()) and torch.equal(state, torch.get_rng_state())


def test_evaluation_is_of_the_evaluation_mode() -> None:
    made, windows = model(norm="bn"), held_out()
    made(windows.inputs["tokens"])  # moves the running statistics
    losses = token_losses(made, windows, CPU, "fp32")
    made.eval()
    with torch.no_grad():
        direct = nn.functional.cross_entropy(
            made(windows.inputs["tokens"]).transpose(1, 2), windows.targets, reduction="none"
        )
    np.testing.assert_allclose(losses, direct.numpy(), atol=1e-6)


def test_the_mode_is_put_back_after_a_failure() -> None:
    class Failing(Table):
        def forward(self, tokens: Tensor) -> Tensor:
            raise RuntimeError("out of memory")

    made = Failing()
    with pytest.raises(RuntimeError, match="out of memory"):
        token_losses(made, held_out(), CPU, "fp32")
    assert made.training


def test_bf16_computes_the_model_in_bf16_and_the_loss_in_float32() -> None:
    kinds: list[Any] = []
    made = model().eval()
    made.head.register_forward_hook(lambda module, given, out: kinds.append(out.dtype))
    losses = token_losses(made, held_out(), CPU, "bf16")
    assert set(kinds) == {torch.bfloat16} and np.isfinite(losses).all()
    np.testing.assert_allclose(losses, token_losses(made, held_out(), CPU, "fp32"), atol=0.05)
    assert len(np.unique(losses.astype(np.float32))) > 0.8 * losses.size  # not rounded to bf16's few steps


@pytest.mark.parametrize(("precision", "enabled"), [("bf16", True), ("fp32", False)])
def test_autocast_is_as_precise_as_it_is_told(precision: str, enabled: bool) -> None:
    with autocast(CPU, precision):
        assert torch.is_autocast_enabled("cpu") == enabled
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == (torch.bfloat16 if enabled else torch.float32)


def test_a_loss_that_is_no_number_stays_one() -> None:
    table = Table()
    with torch.no_grad():
        table.logits[3, 4] = math.nan
    losses = token_losses(table, held_out(), CPU, "fp32")
    assert (np.isnan(losses) == (held_out().inputs["tokens"] == 3).numpy()).all()
    assert math.isnan(summarise(losses, "val", "byte")["val/loss"])


def test_summaries() -> None:
    losses = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert summarise(losses, "val", "byte") == pytest.approx({"val/loss": 3.0, "val/bpb": 3 / math.log(2)})
    assert summarise(losses, "test", "char") == {"test/loss": 3.0}


def test_documents_add_up() -> None:
    windows = held_out()
    losses = token_losses(Table(), windows, CPU, "fp32")
    found = by_document(losses, windows.documents, windows.names)
    assert found["name"] == ["a", "b", "d", "e"] and sum(found["tokens"]) == WINDOWS * LENGTH
    total = sum(n * loss for n, loss in zip(found["tokens"], found["loss"], strict=True))
    assert total / sum(found["tokens"]) == pytest.approx(summarise(losses, "test", "byte")["test/loss"], rel=1e-12)
    for name, tokens, loss in zip(*found.values(), strict=True):
        own = losses[windows.documents == windows.names.index(name)]
        assert tokens == own.size and loss == pytest.approx(own.mean(), rel=1e-12)
    assert all(isinstance(n, int) for n in found["tokens"]) and all(isinstance(x, float) for x in found["loss"])
