"""Texts as words: runs of letters, digits and underscores; any other character but spaces, line ends too, is its own.

Case counts.  Spaces and tabs part words and are no words, so that a text cannot be made again from its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

UNKNOWN = "<unk>"  # in place of a word that is not in the vocabulary; no text has it as a word
WORD = re.compile(r"\w+|\n|[^\w\s]")


def words_of(text: str) -> Iterator[str]:
    """The words of a text, in order."""
    return (found.group() for found in WORD.finditer(text))


def vocabulary(texts: Iterable[str], size: int, end: str) -> list[str]:
    """At most `size` words in order of their ids: the unknown one, `end`, then by frequency, ties by letters."""
    counts = Counter(word for text in texts for word in words_of(text))
    del counts[end]
    return [UNKNOWN, end, *sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]]


def encode(text: str, ids: dict[str, int]) -> np.ndarray:
    """The id of each word of a text, 0 for those that have none: (N,)."""
    return np.fromiter((ids.get(word, 0) for word in words_of(text)), np.uint32)
