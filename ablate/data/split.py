"""Splits documents into training and held-out ones so that no held-out text has near-duplicates in training."""

import functools
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

WORDS = 12  # words per shingle: about three lines of code
SPACE = np.isin(np.arange(256), list(b" \t\n\r\v\f"))
GAP = re.compile(rb"[ \t\n\r\v\f]")
BLOCK = 1 << 20  # bytes
LONG = 64  # bytes; longer strings without white space are not words
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, and thus invertible modulo 2^64
SHARE = 0.2  # documents that share more of their shingles than this go to the same split
COMMON = 100  # a shingle in more documents than this is boilerplate, which does not count as duplication
BOILERPLATE = 0.5  # unless boilerplate that they share is more than this share of a document
HELD_OUT = (0.01, 0.15)  # if a held-out split's share of the text is outside, documents are cut instead

Part = tuple[int, int, int]  # document, first token, one past the last


def split_documents(texts: Sequence[bytes], lengths: Sequence[int]) -> tuple[dict[str, list[Part]], bool]:
    """Parts of train, val and test, about 90/5/5, and whether they are whole documents.

    Clusters of near-duplicates are assigned by a hash of their content, so that adding or removing other documents does
    not move them.  If there are too few documents, each is cut by position: first 90 %, then 5 %, then 5 %.
    """
    clusters = near_duplicates(texts) if len(texts) > 1 else [[0]]
    hashes = [hashlib.sha256(text).digest() for text in texts]
    parts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    for cluster in clusters:
        split = place(min(hashes[i] for i in cluster))
        parts[split] += [(i, 0, lengths[i]) for i in cluster]
    shares = [sum(end for _, _, end in parts[split]) / sum(lengths) for split in ("val", "test")]
    if all(HELD_OUT[0] <= share <= HELD_OUT[1] for share in shares):
        return {split: sorted(documents) for split, documents in parts.items()}, True
    # Of near-duplicates only the longest is used: the start of another would contain the test part of this one.
    longest = [max(cluster, key=lambda i: lengths[i]) for cluster in clusters]
    return cut_documents(sorted(longest), lengths), False


def cut_documents(documents: Sequence[int], lengths: Sequence[int]) -> dict[str, list[Part]]:
    """The first 90 % of each document for train, then 5 % for val, then 5 % for test."""
    parts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    for i in documents:
        val = int(lengths[i] * 0.9)
        test = int(lengths[i] * 0.95)
        parts["train"].append((i, 0, val))
        parts["val"].append((i, val, test))
        parts["test"].append((i, test, lengths[i]))
    return parts


def place(content: bytes, share: float = 0.05) -> str:
    """The split of a digest of content; `share` of all are in val, and as many in test."""
    # Hashed again: the minimum of several digests is small, and would send nearly every cluster to train.
    number = int.from_bytes(hashlib.sha256(content).digest()[:8], "big") / 2**64
    if number < 1 - 2 * share:
        return "train"
    return "val" if number < 1 - share else "test"


def near_duplicates(texts: Sequence[bytes]) -> list[list[int]]:
    """Clusters of documents linked by sharing over a fifth of the smaller one's shingles."""
    from scipy.sparse import coo_array  # slow to load, and needed once
    from scipy.sparse.csgraph import connected_components

    sets = [shingles(text) for text in texts]
    links = linked_pairs(sets)
    graph = coo_array((np.ones(len(links)), np.array(links, int).reshape(-1, 2).T), (len(texts), len(texts)))
    clusters: dict[int, list[int]] = defaultdict(list)
    for i, cluster in enumerate(connected_components(graph, directed=False)[1].tolist()):
        clusters[cluster].append(i)
    return list(clusters.values())


def linked_pairs(sets: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """The pairs of sets of shingles that share too many."""
    rare: Counter[tuple[int, int]] = Counter()  # shared shingles of each pair
    common: Counter[tuple[int, int]] = Counter()
    for owners in owners_of_shared(sets):
        if len(owners) <= COMMON:
            rare.update(combinations(owners, 2))
        else:  # too many pairs; copies of one text are neighbours in every list
            common.update(pairwise(owners))
    links = []
    for (a, b), count in rare.items():
        if count > SHARE * min(len(sets[a]), len(sets[b])):
            links.append((a, b))
    for (a, b), count in common.items():
        if count + rare[a, b] > BOILERPLATE * min(len(sets[a]), len(sets[b])):
            links.append((a, b))
    return links


def owners_of_shared(sets: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """For each shingle in several documents, their indices in order."""
    hashes = np.concatenate(sets)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    owners = np.repeat(np.arange(len(sets)), [len(documents) for documents in sets])[order].tolist()
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    ends = np.r_[starts[1:], len(hashes)]
    several = ends - starts > 1
    for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        yield owners[start:end]


def shingles(text: bytes) -> np.ndarray:
    """Unique hashes of all runs of `WORDS` words, Σ hash(word i) · FACTOR^(WORDS − 1 − i) mod 2^64.  A shorter text is
    one run.  Line breaks and indentation do not matter."""
    hashes = np.concatenate([word_hashes(block) for block in blocks_of(text)])
    width = min(WORDS, len(hashes))
    sums = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for i in range(width):
        sums = sums * FACTOR + hashes[i : i + len(sums)]
    return np.unique(sums)


def blocks_of(text: bytes) -> list[bytes]:
    """A text cut at white space after each `BLOCK` bytes, since hashing takes a hundred bytes of memory per byte."""
    blocks = []
    start = 0
    while start < len(text):
        gap = GAP.search(text, start + BLOCK)
        end = gap.start() if gap else len(text)
        blocks.append(text[start:end])
        start = end
    return blocks or [text]


def word_hashes(text: bytes) -> np.ndarray:
    """A hash of each string between white space, Σ byte j · FACTOR^j mod 2^64, mixed; of each character in too long
    ones, for scripts without spaces.  Equal in every process, which Python's hash of bytes is not."""
    letters = np.frombuffer(text, np.uint8)
    starts, ends = word_borders(letters)
    powers, inverses = powers_of_factor(max(16, len(letters).bit_length()))
    terms = (letters + np.uint64(1)) * powers[: len(letters)]
    sums = np.r_[np.uint64(0), np.cumsum(terms, dtype=np.uint64)]
    hashes = (sums[ends] - sums[starts]) * inverses[starts]
    return (hashes ^ (hashes >> np.uint64(29))) * FACTOR


def word_borders(letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first byte of each word and one past its last; words longer than `LONG` are cut into characters."""
    inside = np.r_[False, ~SPACE[letters], False]
    first = np.flatnonzero(inside[1:-1] & ~inside[:-2])
    last = np.flatnonzero(inside[1:-1] & ~inside[2:]) + 1
    pieces = [first]
    for i in np.flatnonzero(last - first > LONG):
        places = np.arange(first[i], last[i])
        pieces.append(places[letters[places] & 0xC0 != 0x80])  # not the inner bytes of a character
    starts = np.unique(np.concatenate(pieces))
    word = np.searchsorted(first, starts, side="right") - 1
    ends = np.minimum(last[word], np.append(starts[1:], len(letters)))
    return starts, ends


@functools.lru_cache(maxsize=2)
def powers_of_factor(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """FACTOR^j and FACTOR^−j mod 2^64 for j < 2^bits."""
    inverse = np.uint64(pow(int(FACTOR), -1, 1 << 64))
    return powers_of(FACTOR, 1 << bits), powers_of(inverse, 1 << bits)


def powers_of(base: np.uint64, count: int) -> np.ndarray:
    """base^j mod 2^64 for j < count."""
    return np.multiply.accumulate(np.r_[np.uint64(1), np.full(count - 1, base)], dtype=np.uint64)
