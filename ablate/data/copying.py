"""`data=copy`, `reverse`, `sort`, `selective_copy`: a source's own symbols in an order."""

import math

import numpy as np

from ablate.data.sequence import FIRST, PAD, Sequence
from ablate.data.synthetic import sizes


class Copy(Sequence):
    """The source again (Graves 2014, arXiv 1410.5401)."""

    def __init__(self, kind: str, context: int, length: int, symbols: int):
        sizes(2, symbols=symbols)
        super().__init__(type(self).__name__.lower(), kind, context, length, symbols, {})

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """(B, S) -> (B, S)."""
        return sources


class Reverse(Copy):
    """The source from its end to its start (Delétang 2022, arXiv 2207.02098)."""

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """(B, S) -> (B, S)."""
        last = (sources != PAD).sum(1)[:, None] - 1
        at = last - np.arange(width)
        return np.where(at >= 0, np.take_along_axis(sources, at.clip(0), 1), PAD)


class Sort(Copy):
    """The source's symbols from the least to the greatest (Delétang 2022, arXiv 2207.02098)."""

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """(B, S) -> (B, S)."""
        beyond = FIRST + self.symbols
        found = np.sort(np.where(sources == PAD, beyond, sources), 1)
        return np.where(found == beyond, PAD, found)


class SelectiveCopy(Sequence):
    """The `tokens` symbols that stand among noise at random places, in order (Gu 2023, arXiv 2312.00752).

    A source is always `length` long and has always as many symbols.  The paper asks for them at marks after the
    source; here each is predicted from those before it, as in the other tasks.
    """

    padded = False

    def __init__(self, kind: str, context: int, length: int, tokens: int, symbols: int):
        sizes(1, tokens=tokens)
        sizes(3, symbols=symbols)  # noise and two others
        self.tokens = tokens
        super().__init__("selective_copy", kind, context, length, symbols, {"tokens": tokens})
        self.outcomes(FIRST + symbols, symbols)  # any symbol but noise, or the end

    def shortest(self) -> int:
        """As many places as symbols."""
        return self.tokens

    def widths(self, length: int) -> tuple[int, int]:
        """All of the source, and its symbols."""
        return length, self.tokens

    def lengths(self, draw: np.random.Generator, size: int) -> np.ndarray:
        """All alike."""
        return np.full(size, self.length)

    def frequency(self, length: int) -> float:
        """Always or never."""
        return float(length == self.length)

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Symbols other than noise, and places for them."""
        places = [math.log(math.comb(int(length), self.tokens)) for length in lengths]
        return np.array(places) + self.tokens * math.log(self.symbols - 1)

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Noise, the first symbol, and others at places drawn without replacement."""
        rows = np.full((len(lengths), width), FIRST)
        found = draw.integers(FIRST + 1, FIRST + self.symbols, (len(rows), self.tokens))
        places = draw.random(rows.shape).argsort(1)[:, : self.tokens]
        np.put_along_axis(rows, places, found, 1)
        return rows

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """(B, S) -> (B, tokens)."""
        return sources[sources != FIRST].reshape(len(sources), width)
