"""`data=mlm`: what is chosen, what is shown instead, and that every length is scored on the same places."""

import random
from pathlib import Path

import pytest
import torch

from ablate.data.language import Text
from ablate.data.masked import MaskedText
from ablate.data.task import IGNORE, generator, uniform


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of letters in no order."""
    found = tmp_path_factory.mktemp("mlm") / "letters.txt"
    found.write_text("".join(random.Random(0).choices("abcdefgh", k=40_000)))
    return found


def make(file: Path, context: int = 32, tokenizer: str = "char", rate: float = 0.15) -> MaskedText:
    return MaskedText(str(file), context, tokenizer, None, rate)


def test_says_what_it_is_which_is_not_language_modelling(file: Path) -> None:
    """Pairing goes by the fingerprint, so that of the text alone would not do."""
    task = make(file)
    assert (task.kind, task.kinds, task.mask_token, task.outputs, task.vocab) == ("mlm", ("mlm",), 8, 9, 9)
    assert task.title == "char MLM on letters" and set(task.yardsticks) == {"uniform", "unigram"}
    assert not task.bytes_per_token and task.token != "byte"
    assert task.fingerprint != Text(str(file), 32, "char", None).fingerprint != make(file, rate=0.3).fingerprint


def test_targets_are_the_text_and_the_rest_is_shown_as_it_is(file: Path) -> None:
    task, plain = make(file), Text(str(file), 32, "char", None)
    batch, windows = task.batch(3, 5, 64), plain.batch(3, 5, 64).targets
    chosen = batch.targets != IGNORE
    assert torch.equal(batch.targets[chosen], windows[chosen])
    assert torch.equal(batch.inputs["tokens"][~chosen], windows[~chosen])
    assert (chosen.sum(1) == 5).all()  # 15 % of 32, rounded


def test_eight_in_ten_are_the_mask_one_random_one_kept(file: Path) -> None:
    task = make(file)
    batches = [task.batch(0, step, 256) for step in range(20)]
    targets = torch.cat([batch.targets for batch in batches])
    tokens = torch.cat([batch.inputs["tokens"] for batch in batches])
    chosen = targets != IGNORE
    shown, wanted = tokens[chosen], targets[chosen]
    n = len(shown)
    assert abs((shown == 8).float().mean() - 0.8) < 5 * (0.16 / n) ** 0.5
    kept = (shown == wanted).float().mean()  # a random one is the right one once in eight
    assert abs(kept - (0.1 + 0.1 / 8)) < 5 * (0.1 / n) ** 0.5
    others = shown[(shown != 8) & (shown != wanted)]
    assert set(others.tolist()) == set(range(8)) and tokens.max() == 8 and tokens.min() == 0
    where = chosen.float().mean(0)
    assert (where - 5 / 32).abs().max() < 5 * (0.13 / len(targets)) ** 0.5  # every place as often


def test_numbers_are_those_of_the_whole_stream_without_drawing_it() -> None:
    whole = generator("mask", 1).random(1003)
    for first in (0, 1, 2, 3, 4, 997):
        assert (uniform(("mask", 1), first, 6) == whole[first : first + 6]).all()


def test_every_length_is_scored_on_the_same_places(file: Path) -> None:
    task = make(file)
    found = {length: task.held_out("test", 1000, length) for length in (16, 17, 32, 100, 256)}
    expected = found[32].targets[:, -16:]
    shown = found[32].inputs["tokens"][:, -16:]
    assert ((expected != IGNORE).sum(1) == 2).all()
    for length, held_out in found.items():
        assert held_out.targets.shape == (len(expected), length) == held_out.documents.shape
        assert torch.equal(held_out.targets[:, -16:], expected) and (held_out.targets[:, :-16] == IGNORE).all()
        assert torch.equal(held_out.inputs["tokens"][:, -16:], shown)
        assert torch.equal(held_out.inputs["tokens"][:, -17:], found[256].inputs["tokens"][:, -17:]) or length == 16
    before = found[256].inputs["tokens"][:, :-16]
    assert abs((before == 8).float().mean() - 0.12) < 5 * (0.12 / before.numel()) ** 0.5  # as much is hidden as usual


def test_no_window_goes_without_a_target(file: Path) -> None:
    task = make(file, context=2, rate=0.01)
    for found in (task.batch(0, 0, 9).targets, task.held_out("val", 50).targets, task.held_out("val", 50, 2).targets):
        assert ((found != IGNORE).sum(1) == 1).all()
    everything = make(file, rate=1.0).batch(0, 0, 4)
    assert (everything.targets != IGNORE).all()


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.01])
def test_a_rate_out_of_range_is_refused(file: Path, rate: float) -> None:
    with pytest.raises(ValueError, match=rf"^data\.mask_rate must be .*, not {rate}"):
        make(file, rate=rate)


def test_the_standard_library_without_a_path() -> None:
    task = MaskedText(None, 16, "byte", None, 0.15)
    assert task.name.startswith("stdlib-") and task.vocab == 257
    with pytest.raises(ValueError, match=r"data\.path is empty"):
        MaskedText("", 16, "byte", None, 0.15)
