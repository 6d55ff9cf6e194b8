"""Tasks that map a source to a target sequence: as one sequence for a decoder, or from encoder to decoder."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablate.data.synthetic import Synthetic, ids
from ablate.data.task import IGNORE

PAD, BOS, SEP, EOS, FIRST = range(5)  # FIRST is the id of the first symbol
LARGE = 10_000  # lengths with at least this many possible sources have separate ones in each split


def joined(source: np.ndarray, target: np.ndarray, width: int) -> tuple[dict[str, Tensor], Tensor]:
    """`BOS source SEP target EOS` with target and EOS scored: padded (B, S) and (B, T) -> (B, width)."""
    rows, (S, T) = np.arange(len(source)), (source.shape[1], target.shape[1])
    s, t = (source != PAD).sum(1), (target != PAD).sum(1)
    line = np.full((len(rows), max(S + T + 3, width + 1)), PAD)
    line[:, 0], line[:, 1 : S + 1] = BOS, source
    np.put_along_axis(line, 2 + s[:, None] + np.arange(T), target, 1)
    line[rows, 1 + s], line[rows, 2 + s + t] = SEP, EOS
    tokens, targets = line[:, :width].copy(), line[:, 1 : width + 1].copy()
    place = np.arange(width)
    mask = place < (s + t + 2)[:, None]
    tokens[~mask] = PAD  # EOS is never an input
    targets[~mask | (place < 1 + s[:, None])] = IGNORE
    return {"tokens": ids(tokens), "mask": torch.from_numpy(mask).float()}, ids(targets)


def separate(source: np.ndarray, target: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
    """The source for an encoder, `BOS target` for a decoder, with `target EOS` scored: (B, S), (B, T) -> (B, T + 1)."""
    rows, t = np.arange(len(source)), (target != PAD).sum(1)
    tokens = np.concatenate([np.full((len(rows), 1), BOS), target], 1)
    mask = np.arange(tokens.shape[1]) <= t[:, None]
    targets = np.concatenate([target, np.full((len(rows), 1), PAD)], 1)
    targets[rows, t] = EOS
    targets[~mask] = IGNORE
    masks = {"source_mask": torch.from_numpy(source != PAD).float(), "mask": torch.from_numpy(mask).float()}
    return {"source": ids(source), "tokens": ids(tokens)} | masks, ids(targets)


def blank(kind: str, source: int, target: int, context: int) -> dict[str, Tensor]:
    """Zero inputs of one example of these widths, without masking."""
    sizes = {"tokens": context} if kind == "lm" else {"source": source, "tokens": target + 1}
    inputs = {name: torch.zeros((1, size), dtype=torch.long) for name, size in sizes.items()}
    masks = {"source": "source_mask", "tokens": "mask"}
    return inputs | {masks[name]: torch.ones(1, size) for name, size in sizes.items()}


class Sequence(Synthetic):
    """Sources of 1 to `length` symbols, with uniform lengths; subclasses define `sources` and `answers`.

    Each source belongs to one split by its hash (90/5/5), so that no held-out source occurs in training.  Lengths with
    fewer than `LARGE` possible sources are used for training only, and held-out examples are longer.  If no length has
    enough, all splits use the same sources, and plan and summary say so.
    """

    kinds = ("lm", "seq2seq")
    padded = True  # whether examples of one batch can differ in length

    def __init__(self, name: str, kind: str, context: int, length: int, symbols: int, parameters: dict[str, Any]):
        self.symbols = symbols
        self.kind = kind  # needed by `span`
        super().__init__(name, kind, context, length, parameters | {"symbols": symbols})
        self.outcomes(FIRST + symbols, symbols + 1)  # any symbol or EOS
        if not self.shared_out(np.arange(self.shortest(), length + 1)).any():
            self.notes = [f"{name} has fewer than {LARGE:,} sources of any length: held-out ones were seen in training"]

    def widths(self, length: int) -> tuple[int, int]:
        """The maximal number of symbols of a source and of an answer at a length."""
        return length, length

    def lengths(self, draw: np.random.Generator, size: int) -> np.ndarray:
        """Draw the lengths of training examples."""
        return draw.integers(1, self.length + 1, size)

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Draw sources of these lengths, (B,) -> (B, width), padded."""
        rows = draw.integers(FIRST, FIRST + self.symbols, (len(lengths), width))
        return np.where(np.arange(width) < lengths[:, None], rows, PAD)

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Logarithm of the number of possible sources of each length."""
        return lengths * math.log(self.symbols)

    def shared_out(self, lengths: np.ndarray) -> np.ndarray:
        """Whether each length has enough sources to give each split separate ones."""
        return self.log_count(lengths) >= math.log(LARGE)

    def frequency(self, length: int) -> float:
        """The probability that a training example has this length."""
        return 1 / self.length if length <= self.length else 0.0

    def trained_on(self, length: int, examples: int) -> float:
        """1 − (1 − 1/N)^m for N sources and m training examples of the length; 0 if splits have separate sources."""
        if self.shared_out(np.array([length]))[0]:
            return 0.0
        sources = math.exp(self.log_count(np.array([length]))[0])
        return 1 - (1 - 1 / sources) ** (examples * self.frequency(length))

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """The target of each source, (B, S) -> (B, width), padded."""
        raise NotImplementedError

    def span(self, length: int) -> int:
        """Positions of the longer of source and target at a length."""
        source, target = self.widths(length)
        return source + target + 2 if self.kind == "lm" else max(source, target + 1)

    def width(self, length: int) -> int:
        """Positions of source and target together."""
        source, target = self.widths(length)
        return source + target + (2 if self.kind == "lm" else 1)

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Draw sources with their answers, repeatedly until all sources belong to the split."""
        lengths = self.lengths(draw, size) if length is None else np.full(size, length)
        while length is None and split != "train" and not self.notes and not (large := self.shared_out(lengths)).all():
            lengths[~large] = self.lengths(draw, int((~large).sum()))
        length = length or self.length
        width, answer = self.widths(length)
        sources = self.sources(draw, lengths, width)
        ours = self.shared_out(lengths)
        while (wrong := ours & (sides(sources) != split)).any():
            sources[wrong] = self.sources(draw, lengths[wrong], width)
        targets = self.answers(sources, answer)
        found = joined(sources, targets, self.span(length)) if self.kind == "lm" else separate(sources, targets)
        return self.seen(found[0]), found[1]

    def seen(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The inputs, without masks if examples are never padded."""
        return {name: tensor for name, tensor in inputs.items() if self.padded or "mask" not in name}

    def blank(self) -> dict[str, Tensor]:
        """Zero inputs of one example, without masking."""
        return self.seen(blank(self.kind, *self.widths(self.length), self.context))


def sides(rows: np.ndarray) -> np.ndarray:
    """The split of each row of ids by its hash, which ignores padding: (B, S) -> (B,)."""
    weights = mix(np.arange(1, rows.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    share = mix((rows.astype(np.uint64) * weights).sum(1, dtype=np.uint64)) % np.uint64(20)
    return np.where(share < 18, "train", np.where(share == 18, "val", "test"))


def mix(x: np.ndarray) -> np.ndarray:
    """Mix 64-bit numbers so that each output depends on all input bits (splitmix64, Steele 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
