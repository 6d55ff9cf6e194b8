"""Splits: near-duplicates stay together, sides depend on content alone, one text is cut by position."""

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from ablate.data.split import near_duplicates, shingles, split_documents

Parts = dict[str, list[tuple[int, int, int]]]


def lines(seed: object, count: int = 30) -> list[str]:
    """Lines that no other seed has."""
    pick = random.Random(f"lines {seed}")
    return [" ".join(f"{pick.randrange(10**6)}" for _ in range(5)) for _ in range(count)]


def text(*parts: list[str]) -> bytes:
    """Lines as a document."""
    return "\n".join(line for part in parts for line in part).encode()


def split(texts: Sequence[bytes]) -> tuple[Parts, bool]:
    """`split_documents` of byte tokens."""
    return split_documents(texts, [len(t) for t in texts])


def sides(texts: Sequence[bytes]) -> dict[bytes, str]:
    """The side of every document, which must be whole."""
    parts, whole = split(texts)
    assert whole
    return {texts[i]: name for name, rows in parts.items() for i, _, _ in rows}


OTHERS = [text(lines(i)) for i in range(250)]


def test_every_document_is_whole_on_one_side_in_about_ninety_five_and_five_hundredths() -> None:
    texts = [text(lines(i, 3)) for i in range(2000)]
    parts, whole = split(texts)
    assert whole and list(parts) == ["train", "val", "test"]
    assert sorted(row for rows in parts.values() for row in rows) == [(i, 0, len(t)) for i, t in enumerate(texts)]
    for name, share in (("train", 0.9), ("val", 0.05), ("test", 0.05)):
        assert parts[name] == sorted(parts[name])
        assert abs(len(parts[name]) - 2000 * share) < 4.5 * (2000 * share * (1 - share)) ** 0.5, name


def copies(i: int) -> list[bytes]:
    """Near-duplicates of a document, as they are found in the wild."""
    original = lines(f"original {i}")
    edited = [line if j % 11 else f"edited {i} {j}" for j, line in enumerate(original)]
    indented = [f"    {line}\n" for line in original]
    return [
        text(original),
        text(edited),
        text(original[:12]),
        text(lines(f"head {i}", 40), original),
        text(indented),
        text(original[20:], lines(f"tail {i}", 3)),
    ]


def test_planted_near_duplicates_never_straddle() -> None:
    groups = [copies(i) for i in range(60)]
    found = sides([*OTHERS, *(t for group in groups for t in group)])
    together = [{found[t] for t in group} for group in groups]
    assert all(len(names) == 1 for names in together)
    assert {"train", "val", "test"} == {name for names in together for name in names}  # each side has some


def test_clusters_are_held_out_as_often_as_single_documents() -> None:
    """Else the held-out text would be of another kind than the training text: nothing that has a relative."""
    groups = [[text(lines(i, 12)), text(lines(i, 11)), text(lines(i, 10))] for i in range(500)]
    found = sides([t for group in groups for t in group])
    held_out = sum(found[group[0]] != "train" for group in groups)
    assert abs(held_out - 50) < 4.5 * (500 * 0.1 * 0.9) ** 0.5, f"{held_out} of 500 clusters are held out"


def test_hundreds_of_near_duplicates_never_straddle() -> None:
    """Templates and vendored files come in hundreds of near-copies."""
    original = lines("template")
    near = [text([*original[:20], f"copy {i}", *original[20:]]) for i in range(150)]
    found = sides([*OTHERS, *near])
    assert len({found[t] for t in near}) == 1


def test_a_licence_makes_nobody_a_duplicate() -> None:
    header = lines("licence", 12)
    texts = [text(header, lines(i)) for i in range(300)]
    assert sorted(near_duplicates(texts)) == [[i] for i in range(300)]


def closure(texts: Sequence[bytes]) -> set[frozenset[int]]:
    """Clusters by comparing every pair, with the definition written once more."""
    sets = []
    for t in texts:
        kept = t.decode().split()
        sets.append({tuple(kept[i : i + 12]) for i in range(len(kept) - 11)} or {tuple(kept)})
    clusters = [{i} for i in range(len(texts))]
    for a in range(len(texts)):
        for b in range(a):
            if 5 * len(sets[a] & sets[b]) > min(len(sets[a]), len(sets[b])):
                joined = next(c for c in clusters if a in c) | next(c for c in clusters if b in c)
                clusters = [c for c in clusters if not c & joined] + [joined]
    return {frozenset(cluster) for cluster in clusters}


@pytest.mark.parametrize("seed", range(2))
def test_clusters_are_those_of_comparing_every_pair(seed: int) -> None:
    pick, pool = random.Random(seed), lines(f"pool {seed}", 400)
    texts = []
    for i in range(80):
        start, length = pick.randrange(380), pick.choice([1, 2, 3, 10, 20])
        texts.append(text(lines((seed, i), pick.randrange(25)), pool[start : start + length]))
    texts += [texts[0], texts[1]]
    found = near_duplicates(texts)
    assert sorted(i for cluster in found for i in cluster) == list(range(82))
    assert {frozenset(cluster) for cluster in found} == closure(texts)
    assert 1 < len(found) < 82


def hashes(*words: object, between: str = " ") -> set[int]:
    return set(shingles(between.join(map(str, words)).encode()).tolist())


def test_shingles_are_of_twelve_words_whatever_stands_between_them() -> None:
    assert hashes(*range(13)) == hashes(*range(13), between=" \t\r\n\n") and len(hashes(*range(13))) == 2
    assert len(hashes(*range(12))) == len(hashes(1, 2)) == len(hashes(1)) == len(hashes(*[1] * 40)) == 1
    assert hashes(*range(13)) > hashes(*range(1, 13))
    assert not hashes(1, 2) & hashes(2, 1) and not hashes(*range(12)) & hashes(*range(11), 12)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_long_text_is_hashed_in_blocks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    text = " ".join(map(str, range(500))) + "\n " + "é" * 300
    whole = hashes(text)
    monkeypatch.setattr("ablate.data.split.BLOCK", size)
    assert hashes(text) == whole


def test_texts_without_spaces_are_compared_by_their_characters() -> None:
    pick = random.Random(0)
    texts = ["".join(chr(0x4E00 + pick.randrange(3000)) for _ in range(300)) for _ in range(20)]
    texts += [texts[0][:150] + chr(0x4E00 + 4000) + texts[0][151:]]
    found = near_duplicates([t.encode() for t in texts])
    assert sorted(map(len, found)) == [1] * 19 + [2] and {0, 20} in map(set, found)


def test_neither_order_nor_names_nor_others_decide() -> None:
    before, shuffled = sides([*OTHERS, *(t for i in range(40) for t in copies(i)[:2])]), [*OTHERS]
    random.Random(0).shuffle(shuffled)
    more = sides([text(lines(f"new {i}")) for i in range(100)] + shuffled)
    fewer = sides(OTHERS[100:])
    assert all(before[t] == more[t] for t in OTHERS)
    assert all(before[t] == fewer[t] for t in OTHERS[100:])


def digest() -> str:
    """Clusters and sides of texts with near-copies among them, for test_every_process.py."""
    texts = [*OTHERS[:60], *(t for i in range(8) for t in copies(i))]
    return json.dumps([near_duplicates(texts), split(texts)])


@pytest.mark.parametrize("length", [1, 19, 20, 100, 12345])
def test_one_text_is_cut_by_position_in_tokens_not_bytes(length: int) -> None:
    parts, whole = split_documents([b"x"], [length])
    assert not whole
    ((_, start, first),), ((_, again, second),), ((_, third, end),) = parts["train"], parts["val"], parts["test"]
    assert (start, again, third, end) == (0, first, second, length)
    assert abs(first - 0.9 * length) <= 1 and abs(second - 0.95 * length) <= 1


def test_a_few_texts_are_each_cut_by_position() -> None:
    texts = OTHERS[:3]
    parts, whole = split(texts)
    assert not whole
    for i, t in enumerate(texts):
        ends = [0, int(0.9 * len(t)), int(0.95 * len(t)), len(t)]
        assert [row for rows in parts.values() for row in rows if row[0] == i] == [
            (i, *pair) for pair in pairwise(ends)
        ]


def test_a_few_texts_with_near_duplicates_do_not_leak() -> None:
    """A second edition of a book must not bring the first one's held-out end into training."""
    book, second = lines("book", 400), lines("second edition", 400)
    texts = [text(book), text(book, second), text(lines("another", 300))]
    parts, _ = split(texts)
    seen = set().union(*(shingles(texts[i][begin:end]).tolist() for i, begin, end in parts["train"]))
    for name in ("val", "test"):
        for i, begin, end in parts[name]:
            held_out = set(shingles(texts[i][begin:end]).tolist())
            assert len(held_out & seen) <= 0.2 * len(held_out), f"{name} of text {i} stands in train"
