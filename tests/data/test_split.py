"""Splits: near-duplicates stay together, sides depend on content alone, one text is cut by position."""

import random
from collections.abc import Sequence
from itertools import chain

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
    """`split_documents` of byte tokens, and whether each part is a whole document."""
    parts = split_documents(texts, [len(document) for document in texts])
    return parts, all((begin, end) == (0, len(texts[i])) for i, begin, end in chain(*parts.values()))


def sides(texts: Sequence[bytes]) -> dict[bytes, str]:
    """The side of every document, which must be whole."""
    parts, whole = split(texts)
    assert whole
    return {texts[i]: name for name, rows in parts.items() for i, _, _ in rows}


OTHERS = [text(lines(i)) for i in range(250)]


def test_documents_are_whole_on_one_side_in_shares_of_90_5_and_5_hundredths():
    texts = [text(lines(i, 3)) for i in range(2000)]
    parts, whole = split(texts)
    assert whole and sorted(chain(*parts.values())) == [(i, 0, len(document)) for i, document in enumerate(texts)]
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


TEMPLATE = lines("template")
# Groups of near-duplicates: many small ones, and one of hundreds, such as of templates and vendored files.
GROUPS = {
    "of six": [copies(i) for i in range(60)],
    "of hundreds": [[text([*TEMPLATE[:20], f"copy {i}", *TEMPLATE[20:]]) for i in range(150)]],
}


@pytest.mark.parametrize("groups", GROUPS)
def test_near_duplicates_are_on_one_side(groups):
    found = sides([*OTHERS, *chain(*GROUPS[groups])])
    names = [{found[document] for document in group} for group in GROUPS[groups]]
    assert all(len(group) == 1 for group in names)
    assert len(names) == 1 or {"train", "val", "test"} == set().union(*names)


def test_a_licence_makes_nobody_a_duplicate():
    texts = [text(lines("licence", 12), lines(i)) for i in range(300)]
    assert sorted(near_duplicates(texts)) == [[i] for i in range(300)]


def clusters_of_pairs(texts: Sequence[bytes]) -> set[frozenset[int]]:
    """Clusters by comparing every pair, with the definition written once more."""
    sets = []
    for document in texts:
        words = document.decode().split()
        sets.append({tuple(words[i : i + 12]) for i in range(len(words) - 11)} or {tuple(words)})
    clusters = [{i} for i in range(len(texts))]
    for a in range(len(texts)):
        for b in range(a):
            if 5 * len(sets[a] & sets[b]) > min(len(sets[a]), len(sets[b])):
                joined = next(c for c in clusters if a in c) | next(c for c in clusters if b in c)
                clusters = [c for c in clusters if not c & joined] + [joined]
    return {frozenset(cluster) for cluster in clusters}


@pytest.mark.parametrize("seed", range(2))
def test_clusters_are_those_of_comparing_every_pair(seed):
    pick = random.Random(seed)
    pool = lines(f"pool {seed}", 400)
    texts = []
    for i in range(80):
        start = pick.randrange(380)
        length = pick.choice([1, 2, 3, 10, 20])
        texts.append(text(lines((seed, i), pick.randrange(25)), pool[start : start + length]))
    texts += [texts[0], texts[1]]
    clusters = near_duplicates(texts)
    assert sorted(chain(*clusters)) == list(range(82)) and 1 < len(clusters) < 82
    assert {frozenset(cluster) for cluster in clusters} == clusters_of_pairs(texts)


def test_texts_without_spaces_are_compared_by_their_characters():
    pick = random.Random(0)
    texts = ["".join(chr(0x4E00 + pick.randrange(3000)) for _ in range(300)) for _ in range(20)]
    texts += [texts[0][:150] + chr(0x4E00 + 4000) + texts[0][151:]]
    clusters = near_duplicates([document.encode() for document in texts])
    assert sorted(map(len, clusters)) == [1] * 19 + [2] and [0, 20] in clusters


def test_neither_order_nor_other_documents_decide():
    before = sides([*OTHERS, *chain(*(copies(i)[:2] for i in range(40)))])
    shuffled = [*OTHERS]
    random.Random(0).shuffle(shuffled)
    more = sides([text(lines(f"new {i}")) for i in range(100)] + shuffled)
    fewer = sides(OTHERS[100:])
    assert all(before[document] == more[document] for document in OTHERS)
    assert all(before[document] == fewer[document] for document in OTHERS[100:])


@pytest.mark.parametrize("lengths", [[1], [19], [20], [12345], [100, 300, 7]])
def test_a_few_texts_are_each_cut_by_position_in_tokens_not_bytes(lengths):
    parts = split_documents([f"text {i}".encode() for i in range(len(lengths))], lengths)
    for i, length in enumerate(lengths):
        cuts = [0, int(0.9 * length), int(0.95 * length), length]
        assert [parts[name][i] for name in ("train", "val", "test")] == [
            (i, cuts[0], cuts[1]),
            (i, cuts[1], cuts[2]),
            (i, cuts[2], cuts[3]),
        ]


def test_a_few_texts_with_near_duplicates_do_not_leak():
    """A second edition of a book must not bring the first one's held-out end into training."""
    texts = [text(lines("book", 400)), text(lines("book", 400), lines("more", 400)), text(lines("another", 300))]
    parts, _ = split(texts)
    trained = set().union(*(shingles(texts[i][start:end]).tolist() for i, start, end in parts["train"]))
    for i, start, end in parts["val"] + parts["test"]:
        held_out = set(shingles(texts[i][start:end]).tolist())
        assert len(held_out & trained) <= 0.2 * len(held_out)
