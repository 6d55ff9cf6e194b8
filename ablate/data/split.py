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
    whole: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    for cluster in clusters:
        whole[place(min(hashes[i] for i in cluster))] += [(i, 0, lengths[i]) for i in cluster]
    share = {name: sum(end for _, _, end in parts) / sum(lengths) for name, parts in whole.items()}
    if all(HELD_OUT[0] <= share[name] <= HELD_OUT[1] for name in ("val", "test")):
        return {name: sorted(parts) for name, parts in whole.items()}, True
    cuts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    # Keep only the longest of near-duplicates: the start of another would contain the test part of this one.
    for i in sorted(max(cluster, key=lambda i: lengths[i]) for cluster in clusters):
        n = lengths[i]
        first, second = int(n * 0.9), int(n * 0.95)
        for name, part in zip(cuts, ((i, 0, first), (i, first, second), (i, second, n)), strict=True):
            cuts[name].append(part)
    return cuts, False


def place(content: bytes, share: float = 0.05) -> str:
    """The split of a digest of content; `share` of all are in val, and as many in test."""
    # Hashed again: the minimum of several digests is small, and would send nearly every cluster to train.
    at = int.from_bytes(hashlib.sha256(content).digest()[:8], "big") / 2**64
    return "train" if at < 1 - 2 * share else "val" if at < 1 - share else "test"


def near_duplicates(texts: Sequence[bytes]) -> list[list[int]]:
    """Clusters of documents linked by sharing over a fifth of the smaller one's shingles."""
    from scipy.sparse import coo_array  # slow to load, and needed once
    from scipy.sparse.csgraph import connected_components

    sets = [shingles(text) for text in texts]
    shared: Counter[tuple[int, int]] = Counter()
    alike: Counter[tuple[int, int]] = Counter()
    for owners in _owners(sets):
        if len(owners) <= COMMON:
            shared.update(combinations(owners, 2))
        else:  # too many pairs; copies of one text are neighbours in every list
            alike.update(pairwise(owners))
    linked = []
    for (a, b), count in shared.items():
        if count > SHARE * min(len(sets[a]), len(sets[b])):
            linked.append((a, b))
    for (a, b), count in alike.items():
        if count + shared[a, b] > BOILERPLATE * min(len(sets[a]), len(sets[b])):
            linked.append((a, b))
    graph = coo_array((np.ones(len(linked)), np.array(linked, int).reshape(-1, 2).T), (len(texts), len(texts)))
    clusters: dict[int, list[int]] = defaultdict(list)
    for i, cluster in enumerate(connected_components(graph, directed=False)[1].tolist()):
        clusters[cluster].append(i)
    return list(clusters.values())


def shingles(text: bytes) -> np.ndarray:
    """Unique hashes of all runs of `WORDS` words, Σ hash(word i) · FACTOR^(WORDS − 1 − i) mod 2^64.  A shorter text is
    one run.  Line breaks and indentation do not matter."""
    hashes = np.concatenate([word_hashes(block) for block in _blocks(text)])
    width = min(WORDS, len(hashes))
    found = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for i in range(width):
        found = found * FACTOR + hashes[i : i + len(found)]
    return np.unique(found)


def _blocks(text: bytes) -> list[bytes]:
    """A text cut at white space after each `BLOCK` bytes, since hashing takes a hundred bytes of memory per byte."""
    ends = [0]
    while ends[-1] < len(text):
        gap = GAP.search(text, ends[-1] + BLOCK)
        ends.append(gap.start() if gap else len(text))
    return [text[start:end] for start, end in pairwise(ends)] or [text]


def word_hashes(text: bytes) -> np.ndarray:
    """A hash of each string between white space, Σ byte j · FACTOR^j mod 2^64, mixed; of each character in too long
    ones, for scripts without spaces.  Equal in every process, which Python's hash of bytes is not."""
    found = np.frombuffer(text, np.uint8)
    inside = np.r_[False, ~SPACE[found], False]
    first, last = np.flatnonzero(inside[1:-1] & ~inside[:-2]), np.flatnonzero(inside[1:-1] & ~inside[2:]) + 1
    long = np.flatnonzero(last - first > LONG)
    letters = [np.arange(first[i], last[i])[found[first[i] : last[i]] & 0xC0 != 0x80] for i in long]
    starts = np.unique(np.concatenate([first, *letters])) if letters else first
    ends = np.minimum(last[np.searchsorted(first, starts, side="right") - 1], np.append(starts[1:], len(found)))
    powers, inverse = _powers(max(16, len(found).bit_length()))
    sums = np.r_[np.uint64(0), np.cumsum((found + np.uint64(1)) * powers[: len(found)], dtype=np.uint64)]
    hashes = (sums[ends] - sums[starts]) * inverse[starts]
    return (hashes ^ (hashes >> np.uint64(29))) * FACTOR


@functools.lru_cache(maxsize=2)
def _powers(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """FACTOR^j and FACTOR^−j mod 2^64 for j < 2^bits."""
    inverse = np.uint64(pow(int(FACTOR), -1, 1 << 64))
    found = [np.multiply.accumulate(np.full(1 << bits, base), dtype=np.uint64) for base in (FACTOR, inverse)]
    return tuple(np.r_[np.uint64(1), each[:-1]] for each in found)


def _owners(sets: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """For each shingle in several documents, their indices in order."""
    every = np.concatenate(sets)
    order = np.argsort(every, kind="stable")
    ordered = every[order]
    owner = np.repeat(np.arange(len(sets)), [len(found) for found in sets])[order].tolist()
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    several = ends - starts > 1
    for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        yield owner[start:end]
