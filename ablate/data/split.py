"""Splits documents into training and held-out ones so that no held-out text has near-duplicates in training."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

WORDS = 12  # words per shingle: about three lines of code
WORD = re.compile(rb"\S+")
LONG = 64  # bytes; longer strings without white space are not words
CHARACTER = re.compile(rb"(?s).[\x80-\xbf]*")  # of UTF-8
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, and thus invertible modulo 2^64
SHARE = 0.2  # documents that share more of their shingles than this go to the same split
COMMON = 100  # a shingle in more documents than this is boilerplate, which does not count as duplication
BOILERPLATE = 0.5  # unless boilerplate that they share is more than this share of a document
HELD_OUT = (0.01, 0.15)  # if a held-out split's share of the text is outside, documents are cut instead

Part = tuple[int, int, int]  # document, first token, one past the last


def split_documents(texts: Sequence[bytes], lengths: Sequence[int]) -> dict[str, list[Part]]:
    """Parts of train, val and test, about 90/5/5.

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
        return {split: sorted(documents) for split, documents in parts.items()}
    # Of near-duplicates only the longest is used: the start of another would contain the test part of this one.
    longest = [max(cluster, key=lambda i: lengths[i]) for cluster in clusters]
    return cut_documents(sorted(longest), lengths)


def cut_documents(documents: Sequence[int], lengths: Sequence[int]) -> dict[str, list[Part]]:
    """The first 90 % of each document for train, then 5 % for val, then 5 % for test."""
    parts: dict[str, list[Part]] = {"train": [], "val": [], "test": []}
    for i in documents:
        borders = [0, int(lengths[i] * 0.9), int(lengths[i] * 0.95), lengths[i]]
        for split, (start, end) in zip(parts, pairwise(borders), strict=True):
            parts[split].append((i, start, end))
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
    sizes = np.array([len(documents) for documents in sets])
    document = np.repeat(np.arange(len(sets)), sizes)  # of each shingle
    _, shingle, count = np.unique(np.concatenate(sets), return_inverse=True, return_counts=True)
    rare = count[shingle] <= COMMON
    has = coo_array((np.ones(rare.sum(), int), (document[rare], shingle[rare])), (len(sets), len(count))).tocsr()
    shared = has @ has.T  # (N, N)
    # Of common shingles all pairs are too many; copies of one text are neighbours in every list of documents.
    order = np.lexsort((document[~rare], shingle[~rare]))
    common = shingle[~rare][order]
    owner = document[~rare][order]
    same = common[1:] == common[:-1]
    neighbours = coo_array((np.ones(same.sum(), int), (owner[:-1][same], owner[1:][same])), shared.shape).tocsr()
    links = coo_array(shared.shape, dtype=int)
    for counts, share in ((shared, SHARE), (shared + neighbours, BOILERPLATE)):
        pairs = counts.tocoo()
        above = pairs.data > share * np.minimum(sizes[pairs.row], sizes[pairs.col])
        links = links + coo_array((pairs.data[above], (pairs.row[above], pairs.col[above])), shared.shape)
    clusters: dict[int, list[int]] = defaultdict(list)
    for i, cluster in enumerate(connected_components(links, directed=False)[1].tolist()):
        clusters[cluster].append(i)
    return list(clusters.values())


def shingles(text: bytes) -> np.ndarray:
    """Unique hashes of all runs of `WORDS` words, Σ hash(word i) · FACTOR^(WORDS − 1 − i) mod 2^64.  A shorter text is
    one run.  Line breaks and indentation do not matter."""
    # Other numbers in each process, but the same words are equal in all of them.
    hashes = np.fromiter(map(hash, words_of(text)), np.int64).astype(np.uint64)
    width = min(WORDS, len(hashes))
    sums = np.zeros(len(hashes) - width + 1, dtype=np.uint64)
    for i in range(width):
        sums = sums * FACTOR + hashes[i : i + len(sums)]
    return np.unique(sums)


def words_of(text: bytes) -> Iterator[bytes]:
    """The strings between white space; the characters of too long ones, for scripts without spaces."""
    for match in WORD.finditer(text):
        word = match.group()
        if len(word) > LONG:
            yield from CHARACTER.findall(word)
        else:
            yield word
