"""`data=addition`: the sum of two numbers, digit by digit."""

import math

import numpy as np

from ablate.data.sequence import FIRST, PAD, Sequence

TEN = 10
PLUS = FIRST + TEN


class Addition(Sequence):
    """`a+b` to its sum; both numbers have the same 1 to `length` digits, highest digit first.

    As in studies of length generalisation (Kazemnejad 2023, arXiv 2305.19466).  Numbers of one and two digits have too
    few sums to give each split separate ones; see `Sequence`.
    """

    def __init__(self, kind: str, context: int, length: int):
        super().__init__("addition", kind, context, length, TEN + 1, {})
        self.outcomes(PLUS + 1, TEN + 1)  # any digit or EOS

    def widths(self, length: int) -> tuple[int, int]:
        """Both numbers and the plus sign; the sum with a final carry."""
        return 2 * length + 1, length + 1

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Logarithm of the number of pairs without leading zeros."""
        return np.where(lengths == 1, math.log(100), math.log(81) + (lengths - 1) * math.log(100))

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Digits of both numbers; the first is not zero if there are several."""
        digits = FIRST + draw.integers(0, TEN, (len(lengths), width))
        first = FIRST + draw.integers(1, TEN, (len(lengths), 2))
        n, place = lengths[:, None], np.arange(width)
        longer = n > 1
        rows = np.where((place == 0) & longer, first[:, :1], digits)
        rows = np.where((place == n + 1) & longer, first[:, 1:], rows)
        return np.where(place > 2 * n, PAD, np.where(place == n, PLUS, rows))

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, 2 length + 1) -> (B, length + 1)
        digits = np.zeros((len(sources), width), int)
        carry = np.zeros(len(sources), int)
        n = ((sources != PAD).sum(1) - 1) // 2
        row = np.arange(len(sources))
        for i in range(width):  # from the lowest digit upwards
            real = i < n
            a, b = (np.where(real, sources[row, np.where(real, end - i, 0)] - FIRST, 0) for end in (n - 1, 2 * n))
            digits[:, width - 1 - i] = (a + b + carry) % TEN
            carry = (a + b + carry) // TEN
        size = n + (digits[row, width - 1 - n] > 0)
        at = width - size[:, None] + np.arange(width)
        return np.where(at < width, FIRST + np.take_along_axis(digits, at.clip(0, width - 1), 1), PAD)
