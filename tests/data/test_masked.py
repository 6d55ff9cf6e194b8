"""`data=mlm`: what is chosen, what is shown instead, and that every length is scored on the same places."""

import random
from pathlib import Path

import pytest
import torch

from ablate.data.language import Text
from ablate.data.masked import MaskedText
from ablate.data.task import IGNORE, generator, uniform


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A text of eight letters in no order."""
    file = tmp_path_factory.mktemp("mlm") / "letters.txt"
    file.write_text("".join(random.Random(0).choices("abcdefgh", k=40_000)))
    return file


def masked(file: Path, context: int = 32, rate: float = 0.15) -> MaskedText:
    """The task on a text, by characters."""
    return MaskedText(str(file), context, "char", None, rate)


def test_a_text_is_another_task_than_for_a_language_model(file):
    """Pairing goes by the fingerprint, so that of the text alone would not do."""
    assert masked(file).fingerprint != Text(str(file), 32, "char").fingerprint


def test_targets_are_the_text_and_the_rest_is_shown_as_it_is(file):
    batch = masked(file).batch(3, 5, 64)
    windows = Text(str(file), 32, "char").batch(3, 5, 64).targets
    chosen = batch.targets != IGNORE
    assert torch.equal(batch.targets[chosen], windows[chosen])
    assert torch.equal(batch.inputs["tokens"][~chosen], windows[~chosen])
    assert (chosen.sum(1) == 5).all()  # 15 % of 32, rounded


def test_eight_in_ten_are_the_mask_one_random_and_one_the_token_itself(file):
    batch = masked(file).batch(0, 0, 5000)
    chosen = batch.targets != IGNORE
    shown = batch.inputs["tokens"][chosen]
    right = (shown == batch.targets[chosen]).float().mean()
    deviation = (0.16 / len(shown)) ** 0.5
    assert abs((shown == 8).float().mean() - 0.8) < 5 * deviation
    assert abs(right - (0.1 + 0.1 / 8)) < 5 * deviation  # a random one is the right one once in eight
    assert set(shown[(shown != 8) & (shown != batch.targets[chosen])].tolist()) == set(range(8))
    places = chosen.float().mean(0)
    assert (places - 5 / 32).abs().max() < 5 * (0.13 / len(chosen)) ** 0.5  # each as often


def test_numbers_are_those_of_the_whole_stream_without_drawing_it():
    whole = generator("mask", 1).random(1003)
    for first in (0, 1, 2, 3, 4, 997):
        assert (uniform(("mask", 1), first, 6) == whole[first : first + 6]).all()


def test_every_length_is_scored_on_the_same_places(file):
    task = masked(file)
    longest = task.held_out("test", 1000, 256)
    tokens = longest.inputs["tokens"]
    assert ((longest.targets[:, -16:] != IGNORE).sum(1) == 2).all()
    for length in (16, 17, 32, 100):
        held_out = task.held_out("test", 1000, length)
        assert held_out.targets.shape == (len(tokens), length) == held_out.documents.shape
        assert torch.equal(held_out.targets[:, -16:], longest.targets[:, -16:])
        assert (held_out.targets[:, :-16] == IGNORE).all()
        assert torch.equal(held_out.inputs["tokens"][:, -17:], tokens[:, -min(17, length) :])
    before = (tokens[:, :-16] == 8).float()
    assert abs(before.mean() - 0.12) < 5 * (0.12 / before.numel()) ** 0.5  # as much is hidden as usual
