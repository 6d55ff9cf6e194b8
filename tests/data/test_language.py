"""Batches from (seed, step) alone; held-out windows spread over all documents and laid to the right ones."""

import numpy as np
import pytest
import torch
from corpora import InMemory
from scipy import stats

from ablate.data.documents import Document
from ablate.data.language import LanguageModelling
from ablate.data.task import IGNORE, HeldOut, places_of_passes

FIRST = 0x4E00  # of twenty thousand different characters


def ruler(length: int = 4000, context: int = 16, order: str = "random") -> LanguageModelling:
    """One text in which every token is its own position."""
    text = "".join(chr(FIRST + i) for i in range(length))
    return LanguageModelling(InMemory("ruler", [Document("ruler", text.encode())]), context, "char", order=order)


def shelf(context: int = 16, count: int = 300, length: int = 40) -> LanguageModelling:
    """Many documents, of which no two share a character."""
    documents = []
    for i in range(count):
        text = "".join(chr(FIRST + i * length + j) for j in range(length))
        documents.append(Document(f"d{i}", text.encode()))
    return LanguageModelling(InMemory("shelf", documents), context, "char")


def test_a_batch_is_windows_of_the_training_text_and_what_comes_next():
    task = ruler()
    batch = task.batch(0, 0, 64)
    tokens = batch.inputs["tokens"]
    assert tokens.shape == (64, 16) and tokens.dtype == batch.targets.dtype == torch.int64
    assert torch.equal(tokens, tokens[:, :1] + torch.arange(16)) and torch.equal(batch.targets, tokens + 1)
    assert tokens.min() >= 0 and batch.targets.max() < task.train_tokens == 3600


def test_every_window_can_be_drawn_and_none_more_often():
    task = ruler(400, 19)  # 360 training tokens: starts 0 … 340
    starts = torch.cat([task.batch(0, step, 512).inputs["tokens"][:, 0] for step in range(40)]).numpy()
    counts = np.bincount(starts)
    assert len(counts) == 341 and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("tokens", [1, 50, 160, 10**9])
def test_held_out_windows_are_spread_evenly_over_the_split(split, tokens):
    begin = {"val": 3600, "test": 3800}[split]
    held_out = ruler().held_out(split, tokens)
    inputs = held_out.inputs["tokens"]
    starts = inputs[:, 0].numpy()
    assert torch.equal(held_out.targets, inputs + 1) and torch.equal(inputs, inputs[:, :1] + torch.arange(16))
    assert len(starts) == min(max(1, tokens // 16), 12)  # 199 targets hold 12 windows
    assert starts[0] == begin and held_out.targets.max() < begin + 200  # never across splits
    if len(starts) > 1:
        gaps = np.diff(starts)
        assert gaps.min() >= 16 and gaps.max() - gaps.min() <= 1  # no token is scored twice
        assert held_out.targets.max() == begin + 199


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("tokens", [40, 200, 10**9])
def test_targets_are_laid_to_their_documents(split, tokens):
    task = shelf()
    held_out = task.held_out(split, tokens)
    assert held_out.names == task.corpus.names[split] and held_out.documents.shape == held_out.targets.shape
    # A separator, 0, ends the document of the token before it.
    characters = torch.where(held_out.targets == 0, held_out.inputs["tokens"], held_out.targets)
    names = np.array(held_out.names)[held_out.documents]
    assert (names == np.char.add("d", ((characters.numpy() - 1) // 40).astype(str))).all()
    if tokens > 200:
        assert set(held_out.documents.ravel()) == set(range(len(held_out.names)))  # every document is scored


REFUSED = [(4000, 0, r"data\.context must be ≥ 1, not 0"), (400, 20, r"ruler.*val split has 20 tokens.*context=20")]


@pytest.mark.parametrize(("length", "context", "message"), REFUSED)
def test_a_context_that_does_not_fit_is_refused(length, context, message):
    with pytest.raises(ValueError, match=message):
        ruler(length, context)


def scored(found: HeldOut) -> list[int]:
    """The targets that are scored, which on the ruler are places, in order."""
    kept = found.targets != IGNORE
    assert found.inputs["tokens"].shape == found.targets.shape == found.documents.shape
    assert torch.equal(found.targets[kept], (found.inputs["tokens"] + 1)[kept])
    assert kept[:, -8:].all() and not kept[:, :-8].any()
    return found.targets[kept].tolist()


@pytest.mark.parametrize("tokens", [1, 100, 10**9])
@pytest.mark.parametrize("length", [8, 9, 15, 17, 32, 128])
def test_every_length_is_scored_on_the_same_targets(tokens, length):
    task = ruler(8000)
    targets = scored(task.held_out("test", tokens, length))
    assert targets == scored(task.held_out("test", tokens, 16)) and len(targets) == len(set(targets))
    if tokens > 1000:
        assert targets[-1] == 7999 and targets[0] == 8000 - 400 + 128 - 7


# The text's length, its context, the longest window, and the first that is too long or too short.
REACH = [(8000, 16, 128, 129), (8000, 16, 8, 7), (8000, 16, 128, 0), (2000, 16, 49, 50), (400, 19, 19, 20)]


@pytest.mark.parametrize(("text", "context", "fits", "misfit"), REACH)
def test_a_length_is_no_more_than_the_split_allows(text, context, fits, misfit):
    task = ruler(text, context)
    assert task.held_out("val", 100, fits).targets.shape[1] == fits
    with pytest.raises(ValueError, match=rf"ruler can have \d+ .* tokens .* not {misfit}"):
        task.held_out("val", 100, misfit)


def test_shuffled_batches_are_windows_side_by_side():
    task = ruler(order="shuffled")  # 3,600 training tokens: 224 windows
    starts = torch.cat([task.batch(0, step, 8).inputs["tokens"][:, 0] for step in range(28)])
    assert sorted(starts.tolist()) == list(range(0, 224 * 16, 16))


def test_a_shuffled_pass_has_each_window_once_in_another_order():
    passes = places_of_passes(("order", 3), 1000, 0, 3000).reshape(3, 1000)
    other_seed = places_of_passes(("order", 4), 1000, 0, 1000)
    middle = places_of_passes(("order", 3), 1000, 500, 1000)
    assert (np.sort(passes, axis=1) == np.arange(1000)).all()
    assert (middle == passes.ravel()[500:1500]).all(), "a step does not depend on those before"
    assert (passes[0] != passes[1]).mean() > 0.9 and (other_seed != passes[0]).mean() > 0.9
