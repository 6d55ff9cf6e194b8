"""`data=mqar` and `data=memorisation`: recall of values by their keys, from the sequence or from the weights."""

from typing import Any

import numpy as np
from torch import Tensor

from ablate.config.ranges import above, at_least
from ablate.data.sequence import Synthetic, check_symbols, ids
from ablate.data.task import IGNORE, generator


def check_even(**settings: int) -> None:
    """Raise ValueError for odd settings of `data`."""
    for name, value in settings.items():
        if value % 2:
            raise ValueError(f"data.{name}={value} is odd; half of it are keys, so write an even number")


class MQAR(Synthetic):
    """Multi-query associative recall: recall each key's value when the key returns (Arora 2023, arXiv 2312.04927).

    A sequence of `length` starts with `pairs` of a key and a value, `2 pairs` places.  Then each key returns once, at
    even distances drawn without replacement with p(g) ∝ g^(power_a − 1), g = 1 … (length − 2 pairs) / 2, and its value
    is the target there.  All other places contain random values (in the paper any symbols), so that no key occurs by
    chance.  Half the `symbols` are keys, half are values; neither repeats within a sequence.
    """

    kinds = ("lm",)

    def __init__(self, kind: str, context: int, length: int, pairs: int, symbols: int, power_a: float):
        self.pairs = at_least("data.pairs", pairs, 1)
        check_symbols(symbols, 2 * pairs)
        check_even(symbols=symbols)
        self.half = symbols // 2
        self.power_a = above("data.power_a", power_a, 0)
        super().__init__("mqar", kind, context, length, {"pairs": pairs, "symbols": symbols, "power_a": power_a})
        self.set_outputs(symbols, self.half)

    def shortest(self) -> int:
        """The pairs, and the same number of places for queries."""
        return 4 * self.pairs

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Sequences with values as targets where their keys return."""
        length = length or self.length
        start = 2 * self.pairs  # of the queries
        keys = self.distinct(draw, size)
        values = self.half + self.distinct(draw, size)
        tokens = draw.integers(self.half, 2 * self.half, (size, length))
        tokens[:, 0:start:2] = keys
        tokens[:, 1:start:2] = values
        distance = np.arange(1, (length - start) // 2 + 1)
        # Gumbel top-k: the largest of log p + Gumbel noise are a draw without replacement.
        noise = (self.power_a - 1) * np.log(distance) + draw.gumbel(size=(size, len(distance)))
        places = start + 2 * np.argsort(-noise, 1)[:, : self.pairs]
        np.put_along_axis(tokens, places, keys, 1)
        targets = np.full((size, length), IGNORE)
        np.put_along_axis(targets, places, values, 1)
        return {"tokens": ids(tokens)}, ids(targets)

    def distinct(self, draw: np.random.Generator, size: int) -> np.ndarray:
        """`pairs` distinct symbols out of half of them per sequence: (B, pairs)."""
        return draw.random((size, self.half)).argsort(1)[:, : self.pairs]


class Memorisation(Synthetic):
    """Memorise a fixed map from keys to values (MAD: Poli 2024, arXiv 2403.17844).

    A sequence alternates random keys and blanks; the target at a blank is the key's value, which never occurs in the
    inputs.  Half the `symbols` are keys, half are values.  The map is one to one and the same for all seeds and splits,
    so that held-out sequences differ only in the order of keys.
    """

    kinds = ("lm",)

    def __init__(self, kind: str, context: int, length: int, symbols: int):
        check_symbols(symbols, 4)
        check_even(symbols=symbols, length=length)
        self.half = symbols // 2
        super().__init__("memorisation", kind, context, length, {"symbols": symbols})
        self.set_outputs(symbols + 1, self.half)
        self.values = self.half + generator("memorisation", self.half).permutation(self.half)

    def shortest(self) -> int:
        """One key and its blank."""
        return 2

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Keys and blanks, with values as targets at the blanks."""
        length = length or self.length
        if length % 2:
            raise ValueError(f"memorisation has no examples of length {length}; write an even one")
        keys = draw.integers(0, self.half, (size, length // 2))
        tokens = np.full((size, length), 2 * self.half)
        targets = np.full((size, length), IGNORE)
        tokens[:, ::2] = keys
        targets[:, 1::2] = self.values[keys]
        return {"tokens": ids(tokens)}, ids(targets)
