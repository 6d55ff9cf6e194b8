"""Which document is for training and which is held out, so that nothing held out was nearly seen in training."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise

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
    """Clusters of documents linked by sharing over a fifth of the smaller one's three-line shingles."""
    sets = [shingles(text) for text in texts]
    where: dict[int, list[int]] = defaultdict(list)
    for i, found in enumerate(sets):
        for shingle in found:
            where[shingle].append(i)
    shared: Counter[tuple[int, int]] = Counter()
    alike: Counter[tuple[int, int]] = Counter()
    for owners in where.values():
        if 1 < len(owners) <= COMMON:
            shared.update(combinations(owners, 2))
        elif len(owners) > COMMON:  # all pairs would be too many; copies of one text are neighbours in every list
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


def shingles(text: bytes) -> set[int]:
    """Hashes of every three consecutive non-blank lines, stripped; of the whole text where it has fewer."""
    lines = [line.strip() for line in text.split(b"\n") if line.strip()]
    return {hash(tuple(lines[i : i + 3])) for i in range(max(1, len(lines) - 2))}


def _find(root: list[int], i: int) -> int:
    while root[i] != i:
        root[i] = root[root[i]]
        i = root[i]
    return i
