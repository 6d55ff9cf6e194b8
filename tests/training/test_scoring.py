"""Held-out metrics against direct cross-entropy; nothing about the model may move."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from empty_task import Blank
from reference_config import CONFIG, component
from torch import Tensor, nn

from ablate.config.schema import typed
from ablate.data.metrics import METRICS, Metric, Scores
from ablate.data.task import IGNORE, HeldOut
from ablate.model.build import initialised_model
from ablate.model.dropout import rekey
from ablate.model.norm import RunningNorm, running_norms
from ablate.runs.records import Documents
from ablate.training.evaluation import Setting, losses_by_document, score, summarise

VOCAB = 11
WINDOWS = 13
LENGTH = 12
CPU = torch.device("cpu")
FP32 = Setting(0, CPU, "fp32")


def some(*names: str) -> dict[str, Metric]:
    """The loss and other metrics by name."""
    return {name: METRICS[name] for name in ("loss", *names)}


def held_out(seed: int = 0) -> HeldOut:
    """Random windows over five documents, of which one is never scored."""
    text = torch.randint(VOCAB, (WINDOWS, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
    documents = np.sort(np.random.default_rng(seed).choice([0, 1, 3, 4], (WINDOWS, LENGTH)), axis=None)
    return HeldOut(
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
    made = initialised_model(typed(config | {"model": config["model"] | {"dropout": 0.3}}), Blank(VOCAB), 0)
    rekey(made, 0, 0)
    return made


@pytest.mark.parametrize(("chunk", "norm"), [(1, "ln"), (5 * LENGTH + 3, "bn"), (10**9, "bn")])
def test_chunks_do_not_matter(chunk, norm):
    made = model(norm=norm)
    windows = held_out()
    sizes = list[int]()
    whole = score(made, windows, FP32).loss
    made.register_forward_pre_hook(lambda module, _, given: sizes.append(given["tokens"].numel()), with_kwargs=True)
    np.testing.assert_allclose(score(made, windows, FP32._replace(chunk=chunk)).loss, whole, rtol=0, atol=1e-6)
    assert max(sizes) <= max(chunk, LENGTH) and sum(sizes) == WINDOWS * LENGTH, "each is of bounded size"


def test_bf16_computes_the_model_in_bf16_and_the_loss_in_float32():
    kinds: list[Any] = []
    made = model().eval()
    made.head.register_forward_hook(lambda module, given, out: kinds.append(out.dtype))
    losses = score(made, held_out(), FP32._replace(precision="bf16")).loss
    assert set(kinds) == {torch.bfloat16} and np.isfinite(losses).all()
    np.testing.assert_allclose(losses, score(made, held_out(), FP32).loss, atol=0.05)
    assert len(np.unique(losses.astype(np.float32))) > 0.8 * losses.size  # not rounded to bf16's few steps


def test_a_loss_that_is_no_number_stays_one():
    table = Table()
    with torch.no_grad():
        table.logits[3, 4] = math.nan
    scores = score(table, held_out(), FP32)
    assert (np.isnan(scores.loss) == (held_out().inputs["tokens"] == 3).numpy()).all()
    assert math.isnan(summarise(scores, "val", some(), 1.0)["val/loss"])


def partly_scored() -> HeldOut:
    """Windows of which a third of the targets is not scored, and one window not at all."""
    whole = held_out()
    targets = whole.targets.clone()
    targets[torch.rand(targets.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = IGNORE
    targets[4] = IGNORE
    # Three windows are predicted without a fault.
    best = Table().logits[whole.inputs["tokens"]].argmax(-1)
    targets[:3] = torch.where(targets[:3] == IGNORE, IGNORE, best[:3])
    return whole._replace(targets=targets)


def test_only_scored_targets_count():
    """Every metric against its definition, one target after another."""
    windows = partly_scored()
    table = Table()
    scores = score(table, windows, FP32)
    metrics = summarise(scores, "test", some("exact", "accuracy"), None)
    losses = []
    hits = []
    perfect = []
    for tokens, targets in zip(windows.inputs["tokens"].tolist(), windows.targets.tolist(), strict=True):
        hits_of_window = []
        for token, target in zip(tokens, targets, strict=True):
            if target != IGNORE:
                logits = table.logits[token].detach().double()
                losses.append(float(logits.logsumexp(0) - logits[target]))
                hits_of_window.append(int(logits.argmax()) == target)
        hits += hits_of_window
        if hits_of_window:
            perfect.append(all(hits_of_window))
    assert 3 / 12 <= sum(perfect) / 12 == metrics["test/exact"] < 1 and len(perfect) == WINDOWS - 1
    assert metrics["test/accuracy"] == pytest.approx(sum(hits) / len(hits), rel=1e-12)
    assert scores.loss.dtype == np.float64 and scores.loss[scores.scored] == pytest.approx(losses, rel=1e-5, abs=1e-6)
    assert metrics["test/loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)
    assert sum(losses_by_document(scores, windows.documents, windows.names).tokens) == len(losses)


def test_classes_are_scored_by_example():
    class Last(Table):
        def forward(self, tokens):
            return super().forward(tokens)[:, -1]

    windows = held_out()._replace(targets=torch.arange(WINDOWS) % 3, names=[])
    scores = score(Last(), windows, FP32)
    logits = Last()(windows.inputs["tokens"]).detach()
    direct = nn.functional.cross_entropy(logits, windows.targets, reduction="none")
    np.testing.assert_allclose(scores.loss, direct.numpy(), atol=1e-6)
    found = summarise(scores, "test", some("accuracy", "exact"), None)
    right = float((logits.argmax(1) == windows.targets).double().mean())
    assert found["test/accuracy"] == found["test/exact"] == right
    assert losses_by_document(scores, windows.documents, windows.names) == Documents()


def test_nothing_to_score_is_an_error():
    windows = held_out()
    scores = score(Table(), windows._replace(targets=torch.full_like(windows.targets, IGNORE)), FP32)
    with pytest.raises(ValueError, match=r"eval\.tokens is too small"):
        summarise(scores, "val", some(), None)


def test_batch_statistics_are_those_of_the_chunk_and_move_nothing():
    made = model(norm="bn")
    windows = held_out()
    before = {name: buffer.clone() for name, buffer in made.named_buffers()}
    found = score(made, windows, FP32, batch_statistics=True)
    assert all(torch.equal(buffer, before[name]) for name, buffer in made.named_buffers())
    assert not any(norm.frozen for norm in running_norms(made)) and all(m.training for m in made.modules())
    for module in made.modules():
        module.training = isinstance(module, RunningNorm)  # without dropout, with statistics of the batch
    with torch.no_grad():
        logits = made(windows.inputs["tokens"]).transpose(1, 2)
    direct = nn.functional.cross_entropy(logits, windows.targets, reduction="none")
    np.testing.assert_allclose(found.loss, direct.numpy(), atol=1e-6)
    assert abs(found.loss - score(model(norm="bn"), windows, FP32).loss).max() > 1e-3


def test_summaries():
    scores = Scores(np.array([[1.0, 2.0], [3.0, 6.0]]), np.array([[True, True], [True, False]]), np.ones((2, 2), bool))
    assert summarise(scores, "val", some(), 1.0) == {"val/loss": 3.0, "val/bpb": 3 / math.log(2)}
    assert summarise(scores, "val", some(), 2.5)["val/bpb"] == pytest.approx(3 / math.log(2) / 2.5, rel=1e-12)
    assert summarise(scores, "test", some("accuracy"), None) == {"test/loss": 3.0, "test/accuracy": 0.75}
    assert summarise(scores, "test", some("exact"), None, 64) == {"test/loss@64": 3.0, "test/exact@64": 0.5}


def test_documents_add_up():
    windows = held_out()
    scores = score(Table(), windows, FP32)
    found = losses_by_document(scores, windows.documents, windows.names)
    assert found.name == ["a", "b", "d", "e"] and sum(found.tokens) == WINDOWS * LENGTH
    for name, tokens, loss in zip(found.name, found.tokens, found.loss, strict=True):
        of_document = scores.loss[windows.documents == windows.names.index(name)]
        assert tokens == of_document.size and loss == pytest.approx(of_document.mean(), rel=1e-12)


class Perplexed(Blank):
    """A task with a metric of its own."""

    metrics = {"perplexity": "min", "accuracy": "max"}  # noqa: RUF012
    own_metrics = {"perplexity": Metric(lambda scores: float(np.exp(scores.loss[scores.scored].mean())), unit="e")}  # noqa: RUF012


def test_a_task_brings_metrics_of_its_own():
    task = Perplexed(VOCAB)
    flat = Scores(np.zeros((2, 3)), np.ones((2, 3), bool), np.ones((2, 3), bool))
    assert list(task.measured()) == ["loss", "perplexity", "accuracy"]
    found = summarise(flat, "test", task.measured())
    assert found == {"test/loss": 0.0, "test/perplexity": 1.0, "test/accuracy": 1.0}
    expected = {"shares": ["accuracy"], "units": {"loss": "nats", "perplexity": "e"}, "beside": ["perplexity"]}
    assert task.metric_facts() == expected


def test_a_metric_that_nothing_computes_is_told_before_anything_trains():
    task = Blank(VOCAB)
    task.metrics = {"f1": "max"}
    with pytest.raises(ValueError, match=r"f1 .*own_metrics"):
        task.measured()
