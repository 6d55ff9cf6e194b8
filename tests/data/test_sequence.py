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
each = pytest.mark.parametrize("name", SOLVE)
both = pytest.mark.parametrize("kind", ["lm", "seq2seq"])


def solved(name: str, kind: str, found: Any) -> list[Row]:
    """The sources of examples, each of which is checked against its solver, from the first token to the last."""
    sources = []
    for i, targets in enumerate(found.targets.tolist()):
        row = {key: tensor[i].tolist() for key, tensor in found.inputs.items()}
        tokens = row["tokens"]
        if kind == "lm":
            at = tokens.index(SEP)
            source, before = tokens[1:at], at
            given = [BOS, *source, SEP]
        else:
            source, before, given = [symbol for symbol in row["source"] if symbol != PAD], 0, [BOS]
            rest = len(row["source"]) - len(source)
            assert row["source"] == source + [PAD] * rest
            if "source_mask" in row:
                assert row["source_mask"] == [1] * len(source) + [0] * rest
        answer = SOLVE[name](source)
        rest = len(tokens) - len(given) - len(answer)
        assert rest >= 0 and tokens == given + answer + [PAD] * rest
        assert targets == [IGNORE] * before + [*answer, EOS] + [IGNORE] * rest
        if "mask" in row:
            assert row["mask"] == [1] * (len(tokens) - rest) + [0] * rest
        sources.append(source)
    return sources


@each
@both
def test_every_answer_is_right_and_longer_examples_are_of_the_length_asked_for(name: str, kind: str) -> None:
    it = task(name, kind)
    for found in (it.batch(5, 0, 100), it.batch(5, 1, 100), it.held_out("val", 4000)):
        solved(name, kind, found)
    for length in (16, 41):
        sources = solved(name, kind, it.held_out("test", 4000, length))
        assert {len(source) for source in sources} == {2 * length + 1 if name == "addition" else length}
        assert len(sources) > 10


@pytest.mark.parametrize("name", ["copy", "reverse", "sort", "addition"])
def test_training_has_all_lengths_as_often(name: str) -> None:
    it = task(name, "seq2seq")
    lengths = torch.cat([it.batch(0, step, 500).inputs["source_mask"].sum(1) for step in range(8)]).int().numpy()
    lengths = (lengths - 1) // 2 if name == "addition" else lengths
    counts = np.bincount(lengths, minlength=it.length + 1)
    assert counts[0] == 0 and len(counts) == it.length + 1
    assert stats.chisquare(counts[1:]).pvalue > 1e-4
    held_out = it.held_out("test", 60_000).inputs["source_mask"].sum(1)
    held_out = (held_out - 1) / 2 if name == "addition" else held_out
    assert held_out.max() > it.length * 0.9 and held_out.min() == 3, "all that have sources enough to hold some out"


def test_where_sources_are_too_few_to_hold_any_out_it_is_said() -> None:
    few = build("copy", "lm", length=3, symbols=4)
    assert few.notes == ["copy has fewer than 10,000 sources of any length: held-out ones were seen in training"]
    assert few.held_out("test", 100).targets.shape[0] > 1 and not task("copy", "lm").notes


@pytest.mark.parametrize("name", ["mqar", "selective_copy", "memorisation"])
def test_as_many_examples_are_scored_at_any_length(name: str) -> None:
    it = task(name, "lm")
    short, long = (it.held_out("test", 4096, length) for length in (it.length, 2 * it.length))
    assert len(short.targets) == len(long.targets)
    if name == "mqar":  # the same keys and values, elsewhere
        answers = [[sorted(row[row >= 0].tolist()) for row in found.targets] for found in (short, long)]
        assert answers[0] == answers[1]


SHORT = {name: {"length": 3, "symbols": 26} for name in ("copy", "sort")}
SHORT |= {"addition": {"length": 3}, "selective_copy": {"length": 4, "tokens": 3, "symbols": 26}}


@pytest.mark.parametrize("name", SHORT)
def test_every_source_of_some_length_belongs_to_one_split(name: str) -> None:
    """Lengths with next to no sources are in all splits; the others share nothing, whatever the seed."""
    it = build(name, "seq2seq", **SHORT[name])
    train: set[tuple[int, ...]] = set()
    for step in range(3):
        train |= {tuple(row) for row in solved(name, "seq2seq", it.batch(step, step, 800))}
    for split in ("val", "test"):
        found = {tuple(row) for row in solved(name, "seq2seq", it.held_out(split, 10_000))}
        large = {row for row in found if len(row) >= (7 if name == "addition" else 3)}
        assert len(large) > 100 and not large & train
        if name not in ("addition", "selective_copy"):
            assert {row for row in found if len(row) == 1} <= train  # 26 of them: said in the docstring


def test_the_hash_shares_sources_out_evenly() -> None:
    rows = np.random.default_rng(0).integers(FIRST, FIRST + 26, (40_000, 6))
    found = splits_of(rows)
    counts = [(found == split).sum() for split in ("train", "val", "test")]
    assert stats.chisquare(counts, [36_000, 2000, 2000]).pvalue > 1e-4
    padded = np.concatenate([rows, np.zeros((len(rows), 9), int)], 1)
    assert (splits_of(padded) == found).all(), "a source keeps its split at any width"
    for column in range(6):  # every symbol matters, near ones too
        other = rows.copy()
        other[:, column] = FIRST + (rows[:, column] - FIRST + 1) % 26
        agree = (splits_of(other) == found).mean()
        assert abs(agree - (0.81 + 2 * 0.0025)) < 0.02


def test_selective_copying_has_its_symbols_anywhere() -> None:
    it = build("selective_copy", "lm", length=10, tokens=3, symbols=4)
    sources = np.array(solved("selective_copy", "lm", it.batch(0, 0, 4000)))
    assert ((sources != FIRST).sum(1) == 3).all()
    assert stats.chisquare((sources != FIRST).sum(0)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(sources[sources != FIRST] - FIRST)[1:]).pvalue > 1e-4


def test_sources_are_counted() -> None:
    """By listing them, where they are few; where they are many, without overflow."""
    lengths = np.array([1, 2])
    assert np.exp(build("copy", "lm", symbols=5).log_count(lengths)) == pytest.approx([5, 25])  # type: ignore[attr-defined]
    assert np.exp(task("addition", "lm").log_count(lengths)) == pytest.approx([100, 90**2])  # type: ignore[attr-defined]
    few = build("selective_copy", "lm", length=4, tokens=2, symbols=3)
    listed = {tuple(row) for row in solved("selective_copy", "lm", few.batch(0, 0, 2000))}
    assert len(listed) == pytest.approx(np.exp(few.log_count(np.array([4])))[0]) == 24  # type: ignore[attr-defined]
    assert np.isfinite(task("copy", "lm").log_count(np.array([10**6]))).all()  # type: ignore[attr-defined]


@each
@both
@pytest.mark.parametrize("length", [1, 40])
def test_context_is_the_most_that_an_example_takes(name: str, kind: str, length: int) -> None:
    more = {"tokens": 1} if name == "selective_copy" else {}
    it = build(name, kind, length=length, context=10_000, **more)
    n = {"selective_copy": (length, 1), "addition": (2 * length + 1, length + 1)}.get(name, (length, length))
    assert it.context == it.span(length) == (sum(n) + 2 if kind == "lm" else max(n[0], n[1] + 1))
    assert it.positions == (sum(n) + 2 if kind == "lm" else sum(n) + 1)
    assert build(name, kind, length=length, context=it.context, **more).fingerprint == it.fingerprint
    with pytest.raises(ValueError, match=rf"^data\.length={length} needs data\.context of at least {it.context}, not"):
        build(name, kind, length=length, context=it.context - 1, **more)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("copy", {"length": 0}),
        ("sort", {"symbols": 1}),
        ("selective_copy", {"length": 15}),
        ("selective_copy", {"tokens": 0}),
        ("selective_copy", {"symbols": 2}),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, more: dict[str, int]) -> None:
    key, value = next(iter(more.items()))
    with pytest.raises(ValueError, match=rf"^data\.{key}.*({value} is .* at least|must be ≥ )\d*"):
        build(name, "lm", **more)


@pytest.mark.parametrize(
    ("name", "length", "kind"),
    [("copy", 1, "lm"), ("sort", 2, "seq2seq"), ("addition", 1, "seq2seq"), ("addition", 2, "lm")],
)
def test_the_share_of_test_sources_that_training_has_seen_is_as_foretold(name: str, length: int, kind: str) -> None:
    it, steps = task(name, kind), 25
    batches = [it.batch(0, step, 100) for step in range(steps)]
    trained = {tuple(source) for batch in batches for source in solved(name, kind, batch)}
    tested = [tuple(source) for source in solved(name, kind, it.held_out("test", 40_000, length))]
    share, expected = np.mean([source in trained for source in tested]), it.trained_on(length, steps * 100)
    assert abs(share - expected) < 0.08 and expected > 0.004


def test_lengths_with_sources_of_their_own_or_beyond_training_were_not_seen() -> None:
    for it in (task(name, "lm") for name in ("copy", "reverse", "sort", "addition")):
        assert [it.trained_on(length, 10**6) for length in (5, it.length, it.length + 1, 100)] == [0.0] * 4
    few = build("copy", "lm", length=3, symbols=4)
    assert few.trained_on(3, 10**6) > 0.999 and few.trained_on(4, 10**6) == 0, "training has none of length 4"
    few = build("selective_copy", "lm", length=6, tokens=2, symbols=3)  # trained at one length
    assert few.trained_on(6, 100) == pytest.approx(1 - (1 - 1 / 60) ** 100) and few.trained_on(7, 10**6) == 0
