"""Which document is for training and which is held out, so that nothing held out was nearly seen in training."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

WORDS = 12  # of a shingle: about what three lines of code have
LONG = 64  # bytes beyond which what stands between white space is no word
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's hash is lost
SHARE = 0.2  # documents that share more of their shingles than this go to one side together
COMMON = 100  # a shingle in more documents than this is boilerplate and makes nobody a duplicate
BOILERPLATE = 0.5  # unless more than this share of a document is what many others have, too
HELD_OUT = (0.01, 0.15)  # a held-out split outside these shares of the text means too few documents to assign whole

Part = tuple[int, int, int]  # document, first token, one past the last


def split_documents(texts: Sequence[bytes], lengths: Sequence[int]) -> tuple[dict[str, list[Part]], bool]:
    """Parts of train, val and test, about 90/5/5, and whether documents are whole in them.

    Clusters of near-duplicates are assigned by the hash of their content, so that a document keeps its side when
    others come or go.  One document, or each of too few for that, is cut by position: first 90 %, then 5 %, then 5 %.
    """
    clusters = near_duplicates(texts) if len(texts) > 1 else [[0]]
    if len(texts) > 1:
        whole = _assign(texts, lengths, clusters)
        share = {name: sum(end for _, _, end in parts) / sum(lengths) for name, parts in whole.items()}
        if all(HELD_OUT[0] <= share[name] <= HELD_OUT[1] for name in ("val", "test")):
            return whole, True
    cuts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    # Of near-duplicates only the longest stays: another's start would hold what this one's end is tested on.
    for i in sorted(max(cluster, key=lambda i: lengths[i]) for cluster in clusters):
        n = lengths[i]
        first, second = int(n * 0.9), int(n * 0.95)
        for name, part in zip(cuts, ((i, 0, first), (i, first, second), (i, second, n)), strict=True):
            cuts[name].append(part)
    return cuts, False


def _assign(texts: Sequence[bytes], lengths: Sequence[int], clusters: list[list[int]]) -> dict[str, list[Part]]:
    parts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    hashes = [hashlib.sha256(text).digest() for text in texts]
    for cluster in clusters:
        # Hashed once more: the least of several hashes is small, and would send nearly every cluster to train.
        at = int.from_bytes(hashlib.sha256(min(hashes[i] for i in cluster)).digest()[:8], "big") / 2**64
        name = "train" if at < 0.9 else "val" if at < 0.95 else "test"
        parts[name] += [(i, 0, lengths[i]) for i in cluster]
    return {name: sorted(part) for name, part in parts.items()}


def near_duplicates(texts: Sequence[bytes]) -> list[list[int]]:
    """Clusters of documents linked by sharing over a fifth of the smaller one's shingles."""
    sets = [shingles(text) for text in texts]
    shared: Counter[tuple[int, int]] = Counter()
    alike: Counter[tuple[int, int]] = Counter()
    for owners in _owners(sets):
        if len(owners) <= COMMON:
            shared.update(combinations(owners, 2))
        else:  # all pairs would be too many; copies of one text are neighbours in every list
            alike.update(pairwise(owners))
    root = list(range(len(texts)))
    for (a, b), count in shared.items():
        if count > SHARE * min(len(sets[a]), len(sets[b])):
            root[_find(root, a)] = _find(root, b)
    for (a, b), count in alike.items():
        if count + shared[a, b] > BOILERPLATE * min(len(sets[a]), len(sets[b])):
            root[_find(root, a)] = _find(root, b)
    clusters: dict[int, list[int]] = defaultdict(list)
    for i in range(len(texts)):
        clusters[_find(root, i)].append(i)
    return list(clusters.values())


def shingles(text: bytes) -> np.ndarray:
    """Hashes, each once, of every `WORDS` consecutive words, Σ hash(word i) · FACTOR^(WORDS − 1 − i) mod 2^64.

    Of the whole text where it has fewer.  How a text is broken into lines, and indented, does not count.
    """
    hashes = np.array([hash(word) for word in words(text)], dtype=np.int64).astype(np.uint64)
    width = min(WORDS, len(hashes))
    found = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for i in range(width):
        found = found * FACTOR + hashes[i : i + len(found)]
    return np.unique(found)


def words(text: bytes) -> list[Any]:
    """What stands between white space; the characters of what is too long for a word, as in scripts without spaces."""
    found = text.split()
    if max(map(len, found), default=0) <= LONG:
        return found
    cut = ([word] if len(word) <= LONG else word.decode(errors="replace") for word in found)
    return [piece for pieces in cut for piece in pieces]


def _owners(sets: Sequence[np.ndarray]) -> Iterator[list[int]]:
    """For each shingle that several documents have, which ones, in order."""
    every = np.concatenate(sets)
    order = np.argsort(every, kind="stable")
    ordered = every[order]
    owner = np.repeat(np.arange(len(sets)), [len(found) for found in sets])[order].tolist()
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    several = ends - starts > 1
    for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        yield owner[start:end]


def _find(root: list[int], i: int) -> int:
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i
