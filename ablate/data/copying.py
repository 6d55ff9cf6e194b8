"""`data=copy`, `reverse`, `sort`, `selective_copy`: symbols of the source in another order."""

import math

import numpy as np

from ablate.config.ranges import at_least
from ablate.data.sequence import FIRST, PAD, Sequence, check_symbols


class Copy(Sequence):
    """The source itself (Graves 2014, arXiv 1410.5401)."""

    def __init__(self, kind: str, context: int, length: int, symbols: int):
        check_symbols(symbols, 2)
        super().__init__(type(self).__name__.lower(), kind, context, length, symbols, {})

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, S) -> (B, S)
        return sources


class Reverse(Copy):
    """The reversed source (Delétang 2022, arXiv 2207.02098)."""

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, S) -> (B, S)
        last = (sources != PAD).sum(1)[:, None] - 1
        place = last - np.arange(width)
        return np.where(place >= 0, np.take_along_axis(sources, place.clip(0), 1), PAD)


class Sort(Copy):
    """The sorted symbols of the source (Delétang 2022, arXiv 2207.02098)."""

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, S) -> (B, S)
        beyond = FIRST + self.symbols
        ordered = np.sort(np.where(sources == PAD, beyond, sources), 1)
        return np.where(ordered == beyond, PAD, ordered)


class SelectiveCopy(Sequence):
    """The `tokens` symbols at random places among noise, in order (Gu 2023, arXiv 2312.00752).

    All sources have `length` places and `tokens` symbols.  The paper queries them with marks after the source; here
    each symbol is predicted from those before it, as in the other tasks.
    """

    padded = False

    def __init__(self, kind: str, context: int, length: int, tokens: int, symbols: int):
        check_symbols(symbols, 3)  # noise and two others
        self.tokens = at_least("data.tokens", tokens, 1)
        super().__init__("selective_copy", kind, context, length, symbols, {"tokens": tokens})
        self.set_outputs(FIRST + symbols, symbols)  # any symbol but noise, or EOS

    def shortest(self) -> int:
        """At least one place per symbol."""
        return self.tokens

    def widths(self, length: int) -> tuple[int, int]:
        """The whole source, and its symbols."""
        return length, self.tokens

    def lengths(self, draw: np.random.Generator, size: int) -> np.ndarray:
        """All equal."""
        return np.full(size, self.length)

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Logarithm of the number of choices of symbols and of their places."""
        places = [math.log(math.comb(length, self.tokens)) for length in lengths.tolist()]
        return np.array(places) + self.tokens * math.log(self.symbols - 1)

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Noise (the first symbol), with other symbols at places drawn without replacement."""
        rows = np.full((len(lengths), width), FIRST)
        symbols = draw.integers(FIRST + 1, FIRST + self.symbols, (len(rows), self.tokens))
        places = draw.random(rows.shape).argsort(1)[:, : self.tokens]
        np.put_along_axis(rows, places, symbols, 1)
        return rows

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, S) -> (B, tokens)
        return sources[sources != FIRST].reshape(len(sources), width)
