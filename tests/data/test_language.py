"""Batches from (seed, step) alone; held-out windows spread over all documents and laid to the right ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from ablate.data.documents import Document, Given
from ablate.data.language import LanguageModelling, Text, shuffled
from ablate.data.task import IGNORE

FIRST = 0x4E00  # of twenty thousand different characters


def ruler(length: int = 4000, context: int = 16) -> LanguageModelling:
    """One text in which every token is its own position."""
    text = "".join(chr(FIRST + i) for i in range(length))
    return LanguageModelling(Given("ruler", [Document("ruler", text.encode())]), context, "char")


def shelf(context: int = 16, count: int = 300, length: int = 40) -> LanguageModelling:
    """Many documents, of which no two share a character."""
    texts = ["".join(chr(FIRST + i * length + j) for j in range(length)) for i in range(count)]
    documents = [Document(f"d{i}", text.encode()) for i, text in enumerate(texts)]
    return LanguageModelling(Given("shelf", documents), context, "char")


def flat(found: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets."""
    return found.inputs["tokens"], found.targets


def test_a_batch_is_windows_of_the_training_text_and_what_comes_next() -> None:
    task = ruler()
    (inputs, targets) = flat(task.batch(0, 0, 64))
    assert inputs.shape == targets.shape == (64, 16) and inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs, inputs[:, :1] + torch.arange(16)) and torch.equal(targets, inputs + 1)
    assert inputs.min() >= 0 and targets.max() < task.train_tokens == 3600


def test_every_window_can_be_drawn_and_none_more_often() -> None:
    task = ruler(400, 19)  # 360 training tokens: starts 0 … 340
    starts = torch.cat([task.batch(0, step, 512).inputs["tokens"][:, 0] for step in range(40)]).numpy()
    counts = np.bincount(starts)
    assert len(counts) == 341 and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("tokens", [1, 50, 160, 10**9])
def test_held_out_windows_are_spread_evenly_over_the_split(split: str, tokens: int) -> None:
    task = ruler()
    begin, end = {"val": (3600, 3800), "test": (3800, 4000)}[split]
    held_out = task.held_out(split, tokens)
    starts = held_out.inputs["tokens"][:, 0].numpy()
    assert torch.equal(held_out.targets, held_out.inputs["tokens"] + 1)
    assert torch.equal(held_out.inputs["tokens"], held_out.inputs["tokens"][:, :1] + torch.arange(16))
    assert begin <= held_out.inputs["tokens"].min() and held_out.targets.max() < end  # never across splits
    assert len(starts) == min(max(1, tokens // 16), 12)  # 199 targets hold 12 windows
    assert starts[0] == begin
    if len(starts) > 1:
        gaps = np.diff(starts)
        assert gaps.min() >= 16 and gaps.max() - gaps.min() <= 1  # no token is scored twice
        assert held_out.targets.max() == end - 1


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize("tokens", [40, 200, 10**9])
def test_targets_are_laid_to_their_documents(split: str, tokens: int) -> None:
    task = shelf()
    held_out = task.held_out(split, tokens)
    assert task.corpus.by_document and held_out.names == task.corpus.names[split]
    assert held_out.documents.shape == held_out.targets.shape
    for window in range(len(held_out.targets)):
        for t in range(16):
            token = int(held_out.targets[window, t])
            if token == 0:  # a separator ends the document of the token before it
                token = int(held_out.inputs["tokens"][window, t])
            assert held_out.names[held_out.documents[window, t]] == f"d{(token - 1) // 40}"
    if tokens > 200:
        assert set(held_out.documents.ravel()) == set(range(len(held_out.names)))  # every document is scored


def test_a_context_that_just_fits_and_those_that_do_not() -> None:
    with pytest.raises(ValueError, match=r"data\.context must be ≥ 1, not 0"):
        ruler(context=0)
    task = ruler(400, 19)  # 20 tokens held out for each split
    held_out = task.held_out("val", 10**6)
    assert held_out.inputs["tokens"].shape == (1, 19) and held_out.targets[0, -1] == 379
    with pytest.raises(ValueError, match=r"ruler.*val split has 20 tokens.*data\.context=20"):
        ruler(400, 20)


def scored(task: LanguageModelling, split: str, tokens: int, length: int) -> list[int]:
    """The targets that are scored, which on the ruler are places, in order."""
    found = task.held_out(split, tokens, length)
    assert found.inputs["tokens"].shape == found.targets.shape == found.documents.shape
    assert found.targets.shape[1] == length
    kept = found.targets != IGNORE
    assert torch.equal(found.targets[kept], (found.inputs["tokens"] + 1)[kept])
    assert not kept[:, : length - 8].any() and kept[:, length - 8 :].all()
    return found.targets[kept].tolist()


@pytest.mark.parametrize("tokens", [1, 100, 10**9])
def test_every_length_is_scored_on_the_same_targets(tokens: int) -> None:
    task = ruler(8000)
    expected = scored(task, "test", tokens, 16)
    assert len(expected) == len(set(expected))  # none twice
    for length in (8, 9, 15, 17, 32, 128):
        assert scored(task, "test", tokens, length) == expected
    if tokens > 1000:
        assert expected[-1] == 7999 and expected[0] == 8000 - 400 + 128 - 7


def test_documents_of_the_same_targets_are_the_same() -> None:
    task = shelf()
    found = [task.held_out("test", 400, length) for length in (8, 16, 100)]
    assert all((f.documents[f.targets.numpy() != IGNORE] == found[0].documents.ravel()).all() for f in found)
    assert len(set(found[0].documents.ravel())) > 5


def test_a_length_is_no_more_than_the_split_allows() -> None:
    task = ruler(8000)
    for length in (0, 7, 129, 10**6):
        with pytest.raises(ValueError, match=r"ruler can have 8 .* to 128 tokens .* not"):
            task.held_out("test", 100, length)
    short = ruler(2000)  # 100 tokens held out: half of them stay for the places of windows
    assert scored(short, "val", 100, 49) == scored(short, "val", 100, 16)
    with pytest.raises(ValueError, match="to 49 tokens"):
        short.held_out("val", 100, 50)
    least = ruler(400, 19)  # just one window
    assert least.held_out("val", 100, 19).targets.shape == (1, 19)


def test_tiny_contexts_have_a_target() -> None:
    found = ruler(context=1).held_out("val", 10, 4)
    assert ((found.targets != IGNORE).sum(1) == 1).all()


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 4097])
def test_a_shuffled_pass_has_each_window_once_in_another_order(count: int) -> None:
    passes = shuffled(count, 3, 0, 3 * count).reshape(3, count)
    assert (np.sort(passes, axis=1) == np.arange(count)).all()
    assert (shuffled(count, 3, count // 2, count) == passes.ravel()[count // 2 :][:count]).all(), "random access"
    if count >= 64:
        assert (passes[0] != passes[1]).mean() > 0.9 and (shuffled(count, 4, 0, count) != passes[0]).mean() > 0.9
        assert abs(np.corrcoef(passes[0], np.arange(count))[0, 1]) < 4 / count**0.5


def test_shuffled_batches_are_windows_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "count.txt"
    file.write_text("".join(f"{i:04} " for i in range(4000)))
    task = Text(str(file), 50, "byte", order="shuffled")
    windows = (task.train_tokens - 1) // 50
    seen = np.concatenate([task.batch(0, step, 8).inputs["tokens"].numpy() for step in range(-(-windows // 8))])[
        :windows
    ]
    assert len(np.unique(seen, axis=0)) == windows and {bytes(row)[4:5] for row in seen.astype(np.uint8)} == {b" "}
