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
        self.set_outputs(PLUS + 1, TEN + 1)  # any digit or EOS

    def widths(self, length: int) -> tuple[int, int]:
        """Both numbers and the plus sign; the sum with a final carry."""
        return 2 * length + 1, length + 1

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Logarithm of the number of pairs without leading zeros."""
        return np.where(lengths == 1, math.log(100), math.log(81) + (lengths - 1) * math.log(100))

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Digits of both numbers; the first is not zero if there are several."""
        digits = FIRST + draw.integers(0, TEN, (len(lengths), width))
        leading = FIRST + draw.integers(1, TEN, (len(lengths), 2))
        n = lengths[:, None]
        place = np.arange(width)
        several = n > 1
        rows = np.where((place == 0) & several, leading[:, :1], digits)
        rows = np.where((place == n + 1) & several, leading[:, 1:], rows)
        rows = np.where(place == n, PLUS, rows)
        return np.where(place > 2 * n, PAD, rows)

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:  # (B, 2 length + 1) -> (B, length + 1)
        row = np.arange(len(sources))
        n = ((sources != PAD).sum(1) - 1) // 2  # digits of each number
        digits = np.zeros((len(sources), width), int)
        carry = np.zeros(len(sources), int)
        for i in range(width):  # from the lowest digit upwards
            inside = i < n
            a = np.where(inside, sources[row, np.where(inside, n - 1 - i, 0)] - FIRST, 0)
            b = np.where(inside, sources[row, np.where(inside, 2 * n - i, 0)] - FIRST, 0)
            digits[:, width - 1 - i] = (a + b + carry) % TEN
            carry = (a + b + carry) // TEN
        size = n + (digits[row, width - 1 - n] > 0)
        place = width - size[:, None] + np.arange(width)
        answer = FIRST + np.take_along_axis(digits, place.clip(0, width - 1), 1)
        return np.where(place < width, answer, PAD)
