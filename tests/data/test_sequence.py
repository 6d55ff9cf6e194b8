"""Sequence tasks: every answer against a solver of plain Python, both forms, lengths, and what is held out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tasks import build, task

from ablate.data.sequence import BOS, EOS, FIRST, PAD, SEP, splits_of
from ablate.data.task import IGNORE

Row = list[int]


def added(source: Row) -> Row:
    """Digits to numbers, a sum, and digits again."""
    text = "".join("0123456789+"[symbol - FIRST] for symbol in source)
    a, b = text.split("+")
    assert len(a) == len(b) and all(len(n) == 1 or n[0] != "0" for n in (a, b))
    return [FIRST + int(digit) for digit in str(int(a) + int(b))]


SOLVE: dict[str, Callable[[Row], Row]] = {
    "copy": lambda source: source,
    "reverse": lambda source: source[::-1],
    "sort": sorted,
    "selective_copy": lambda source: [symbol for symbol in source if symbol != FIRST],
    "addition": added,
}
LENGTHS = ["copy", "reverse", "sort", "addition"]  # tasks whose examples have all lengths
each = pytest.mark.parametrize("name", SOLVE)
both = pytest.mark.parametrize("kind", ["lm", "seq2seq"])


def padded(row: Row, width: int, fill: int = PAD) -> Row:
    """A row with padding up to a width."""
    return row + [fill] * (width - len(row))


def solved(name: str, kind: str, examples: Any) -> list[Row]:
    """The sources of examples, each of which is checked against its solver, from the first token to the last."""
    sources = []
    for i, targets in enumerate(examples.targets.tolist()):
        row = {key: tensor[i].tolist() for key, tensor in examples.inputs.items()}
        width = len(targets)
        if kind == "lm":
            source = row["tokens"][1 : row["tokens"].index(SEP)]
            begin = [BOS, *source, SEP]
        else:
            source = [symbol for symbol in row["source"] if symbol != PAD]
            begin = [BOS]
            assert row["source"] == padded(source, len(row["source"]))
            if "source_mask" in row:
                assert row["source_mask"] == padded([1] * len(source), len(row["source"]), 0)
        answer = SOLVE[name](source)
        assert row["tokens"] == padded(begin + answer, width)
        assert targets == padded([IGNORE] * (len(begin) - 1) + [*answer, EOS], width, IGNORE)
        if "mask" in row:
            assert row["mask"] == padded([1] * len(begin + answer), width, 0)
        sources.append(source)
    return sources


@each
@both
def test_every_answer_is_right(name, kind):
    built = task(name, kind)
    for examples in (built.batch(5, 0, 100), built.batch(5, 1, 100), built.held_out("val", 4000)):
        solved(name, kind, examples)


@each
@both
@pytest.mark.parametrize("length", [16, 41])
def test_examples_of_a_length_are_right_and_as_long_as_asked_for(name, kind, length):
    sources = solved(name, kind, task(name, kind).held_out("test", 4000, length))
    assert {len(source) for source in sources} == {2 * length + 1 if name == "addition" else length}
    assert len(sources) > 10


def lengths_of(name: str, examples: list[Any]) -> np.ndarray:
    """The lengths of examples: symbols of a source, digits of a number."""
    symbols = torch.cat([part.inputs["source_mask"].sum(1) for part in examples]).int().numpy()
    return (symbols - 1) // 2 if name == "addition" else symbols


@pytest.mark.parametrize("name", LENGTHS)
def test_training_has_all_lengths_as_often(name):
    built = task(name, "seq2seq")
    counts = np.bincount(lengths_of(name, [built.batch(0, step, 500) for step in range(8)]))
    assert counts[0] == 0 and len(counts) == built.length + 1
    assert stats.chisquare(counts[1:]).pvalue > 1e-4


@pytest.mark.parametrize("name", LENGTHS)
def test_held_out_examples_have_all_lengths_with_sources_enough(name):
    built = task(name, "seq2seq")
    lengths = lengths_of(name, [built.held_out("test", 60_000)])
    assert lengths.max() > built.length * 0.9 and lengths.min() == 3


SHORT = {"copy": {"length": 3, "symbols": 26}, "sort": {"length": 3, "symbols": 26}, "addition": {"length": 3}}
SHORT |= {"selective_copy": {"length": 4, "tokens": 3, "symbols": 26}}


@pytest.mark.parametrize("name", SHORT)
def test_every_source_of_a_length_with_many_belongs_to_one_split(name):
    """Whatever the seed; lengths with next to no sources are in training."""
    built = build(name, "seq2seq", **SHORT[name])
    train = {tuple(row) for step in range(3) for row in solved(name, "seq2seq", built.batch(step, step, 800))}
    for split in ("val", "test"):
        held_out = {tuple(row) for row in solved(name, "seq2seq", built.held_out(split, 10_000))}
        large = {row for row in held_out if len(row) >= (7 if name == "addition" else 3)}
        assert len(large) > 100 and not large & train


def test_the_hash_shares_sources_out_evenly():
    rows = np.random.default_rng(0).integers(FIRST, FIRST + 26, (40_000, 6))
    splits = splits_of(rows)
    counts = [(splits == split).sum() for split in ("train", "val", "test")]
    assert stats.chisquare(counts, [36_000, 2000, 2000]).pvalue > 1e-4
    assert (splits_of(np.pad(rows, ((0, 0), (0, 9)))) == splits).all(), "a source keeps its split at any width"
    other = rows.copy()
    other[:, 3] = FIRST + (rows[:, 3] - FIRST + 1) % 26
    assert abs((splits_of(other) == splits).mean() - (0.81 + 2 * 0.0025)) < 0.02, "each symbol matters"


# A task, its settings, lengths, and the number of sources of each.
COUNTS = [("copy", {"symbols": 5}, [1, 2], [5, 25]), ("addition", {}, [1, 2], [100, 90**2])]
COUNTS += [("selective_copy", {"length": 4, "tokens": 2, "symbols": 3}, [4], [24])]


@pytest.mark.parametrize(("name", "settings", "lengths", "counts"), COUNTS)
def test_sources_are_counted(name, settings, lengths, counts):
    built: Any = build(name, "lm", **settings)
    assert np.exp(built.log_count(np.array(lengths))) == pytest.approx(counts)


@each
@both
@pytest.mark.parametrize("length", [1, 40])
def test_context_is_the_most_that_an_example_takes(name, kind, length):
    more = {"tokens": 1} if name == "selective_copy" else {}
    built = build(name, kind, length=length, context=10_000, **more)
    assert built.context == built.span(length)
    shortest = build(name, kind, length=length, context=built.context, **more)
    assert max(tensor.shape[1] for tensor in shortest.batch(0, 0, 9).inputs.values()) == built.context
    with pytest.raises(ValueError, match=rf"^data\.length={length} needs data\.context of at least {built.context}"):
        build(name, kind, length=length, context=built.context - 1, **more)
