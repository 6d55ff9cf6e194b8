"""Tasks with generated examples, and those that map a source to a target sequence: as one sequence for a decoder, or
from encoder to decoder."""

import hashlib
import json
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablate.config.ranges import at_least, at_most
from ablate.data.task import IGNORE, Batch, HeldOut, Task, generator

VERSION = 2  # raise it when the same parameters give other examples
MOST = 10_000_000  # symbols
PAD, BOS, SEP, EOS, FIRST = range(5)  # FIRST is the id of the first symbol
LARGE = 10_000  # lengths with at least this many possible sources have separate ones in each split


class Synthetic(Task):
    """Endless generated examples, seeded by (seed, step) in training, and by the split's name for held-out ones."""

    metrics = {"accuracy": "max", "exact": "max", "loss": "min"}  # noqa: RUF012 (never written to)
    token = "token"
    train_tokens = None

    def __init__(self, name: str, kind: str, context: int, length: int, parameters: dict[str, Any]):
        """`context` is the maximal length in positions; `parameters` are all other settings of the examples."""
        if length < self.shortest():
            raise ValueError(f"data.length={length} is too short; {name} needs at least {self.shortest()}")
        self.name = name
        self.kind = kind
        self.length = length
        self.title = f"{name} at length {length}"
        if kind == "seq2seq":
            self.title += ", sequence to sequence"
        self.context = self.span(length)
        self.positions = self.context
        if self.context > context:
            problem = f"data.length={length} needs data.context of at least {self.context}, not {context}"
            raise ValueError(f"{problem}; write a shorter data.length or a larger data.context")
        content = json.dumps([name, VERSION, kind, length, parameters], sort_keys=True)
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:32]

    def set_outputs(self, vocab: int, answers: int) -> None:
        """Set the number of ids, and the number of possible answers for the chance level."""
        self.vocab = vocab
        self.outputs = vocab
        self.yardsticks = {"chance": math.log(answers)}

    def shortest(self) -> int:
        """The smallest possible length."""
        return 1

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Inputs and targets, of one length or distributed as in training."""
        raise NotImplementedError

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """New examples for (seed, step)."""
        inputs, targets = self.examples(generator("batch", seed, step), size, "train", None)
        return Batch(inputs, targets)

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """About `tokens` positions of examples, distributed as in training or of one length.  All lengths have the same
        number of examples as the training length, from the same random draws where possible."""
        if length is not None and length < self.shortest():
            raise ValueError(f"{self.name} has no examples of length {length}; the shortest is {self.shortest()}")
        count = max(1, tokens // self.positions)
        draw = generator("held out", self.fingerprint, split)
        inputs, targets = self.examples(draw, count, split, length)
        return HeldOut(inputs, targets, np.zeros(targets.shape, int), [self.title])


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
        if kind == "seq2seq":
            self.positions = sum(self.widths(length)) + 1
        self.set_outputs(FIRST + symbols, symbols + 1)  # any symbol or EOS
        if not self.has_separate_splits(np.arange(self.shortest(), length + 1)).any():
            self.notes = [f"{name} has fewer than {LARGE:,} sources of any length: held-out ones were seen in training"]

    def widths(self, length: int) -> tuple[int, int]:
        """The maximal number of symbols of a source and of an answer at a length."""
        return length, length

    def lengths(self, draw: np.random.Generator, size: int) -> np.ndarray:
        """Draw the lengths of training examples."""
        return draw.integers(1, self.length + 1, size)

    def sources(self, draw: np.random.Generator, lengths: np.ndarray, width: int) -> np.ndarray:
        """Draw sources of these lengths, (B,) -> (B, width), padded."""
        symbols = draw.integers(FIRST, FIRST + self.symbols, (len(lengths), width))
        return np.where(np.arange(width) < lengths[:, None], symbols, PAD)

    def log_count(self, lengths: np.ndarray) -> np.ndarray:
        """Logarithm of the number of possible sources of each length."""
        return lengths * math.log(self.symbols)

    def has_separate_splits(self, lengths: np.ndarray) -> np.ndarray:
        """Whether each length has enough sources to give each split separate ones."""
        return self.log_count(lengths) >= math.log(LARGE)

    def holds_out(self, length: int) -> bool:
        """See Task."""
        return bool(self.has_separate_splits(np.array([length]))[0])

    def answers(self, sources: np.ndarray, width: int) -> np.ndarray:
        """The target of each source, (B, S) -> (B, width), padded."""
        raise NotImplementedError

    def span(self, length: int) -> int:
        """Positions of the longer of source and target at a length."""
        source, target = self.widths(length)
        if self.kind == "lm":
            return source + target + 2
        return max(source, target + 1)

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Draw sources with their answers, repeatedly until all sources belong to the split."""
        longest = length or self.length
        source_width, target_width = self.widths(longest)
        if length is not None:
            lengths = np.full(size, length)
        else:
            lengths = self.lengths(draw, size)
            while split != "train" and not self.notes:
                too_short = ~self.has_separate_splits(lengths)
                if not too_short.any():
                    break
                lengths[too_short] = self.lengths(draw, int(too_short.sum()))
        separated = self.has_separate_splits(lengths)
        sources = self.sources(draw, lengths, source_width)
        while (wrong := separated & (splits_of(sources) != split)).any():
            sources[wrong] = self.sources(draw, lengths[wrong], source_width)
        inputs, scored = encode(self.kind, sources, self.answers(sources, target_width), self.span(longest))
        if not self.padded:
            inputs = {name: tensor for name, tensor in inputs.items() if "mask" not in name}
        return inputs, scored

    def blank(self) -> dict[str, Tensor]:
        """Zero inputs of one example, without masking."""
        return blank(self.batch(0, 0, 1))


def encode(kind: str, source: np.ndarray, target: np.ndarray, width: int) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs and targets of padded sources (B, S) and their answers (B, T), of which the answer and EOS are scored.

    For a decoder one sequence `BOS source SEP answer EOS`: (B, width).  From sequence to sequence the source, and
    `BOS answer EOS`: (B, T + 1).
    """
    column = np.ones((len(source), 1), int)
    if kind == "lm":
        line = np.concatenate([BOS * column, source, SEP * column, target, EOS * column], 1)
        first_scored = (source != PAD).sum(1, keepdims=True) + 1
    else:
        line = np.concatenate([BOS * column, target, EOS * column], 1)
        width = target.shape[1] + 1
        first_scored = 0 * column
    padding_last = np.argsort(line == PAD, 1, kind="stable")
    line = np.take_along_axis(line, padding_last, 1)[:, : width + 1]
    place = np.arange(width)
    mask = place < (line != PAD).sum(1, keepdims=True) - 1  # EOS is never an input
    tokens = np.where(mask, line[:, :-1], PAD)
    targets = np.where(mask & (place >= first_scored), line[:, 1:], IGNORE)
    inputs = {"tokens": ids(tokens), "mask": torch.from_numpy(mask).float()}
    if kind == "seq2seq":
        inputs |= {"source": ids(source), "source_mask": torch.from_numpy(source != PAD).float()}
    return inputs, ids(targets)


def blank(batch: Batch) -> dict[str, Tensor]:
    """Inputs of the shapes of a batch: zeros, and masks of ones."""
    inputs = {}
    for name, tensor in batch.inputs.items():
        fill = 1 if "mask" in name else 0
        inputs[name] = torch.full(tensor.shape, fill, dtype=tensor.dtype)
    return inputs


def splits_of(rows: np.ndarray) -> np.ndarray:
    """The split of each row of ids by its hash, which ignores padding: (B, S) -> (B,)."""
    weights = mix(np.arange(1, rows.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    share = mix((rows.astype(np.uint64) * weights).sum(1, dtype=np.uint64)) % np.uint64(20)
    return np.where(share < 18, "train", np.where(share == 18, "val", "test"))


def mix(x: np.ndarray) -> np.ndarray:
    """Mix 64-bit numbers so that each output depends on all input bits (splitmix64, Steele 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def check_symbols(symbols: int, least: int) -> None:
    """Raise ValueError for a number of symbols that is too small, or too large for tables of them."""
    at_most("data.symbols", symbols, MOST)
    at_least("data.symbols", symbols, least)


def ids(array: np.ndarray) -> Tensor:
    """Convert an array to a tensor of ids."""
    return torch.from_numpy(array.astype(np.int64))
