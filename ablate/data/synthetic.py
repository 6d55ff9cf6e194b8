"""Generated examples: the base class of all synthetic tasks."""

import hashlib
import json
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablate.config.ranges import at_least, at_most
from ablate.data.task import Batch, HeldOut, Task, generator

VERSION = 2  # raise it when the same parameters give other examples


class Synthetic(Task):
    """Endless generated examples, seeded by (seed, step) in training, and by the split's name for held-out ones."""

    metrics = {"accuracy": "max", "exact": "max", "loss": "min"}  # noqa: RUF012 (never written to)
    token = "token"
    train_tokens = None

    def __init__(self, name: str, kind: str, context: int, length: int, parameters: dict[str, Any]):
        """`context` is the maximal length in positions; `parameters` are all other settings of the examples."""
        if length < self.shortest():
            raise ValueError(f"data.length={length} is too short; {name} needs at least {self.shortest()}")
        self.name, self.kind, self.length = name, kind, length
        self.title = f"{name} at length {length}" + (", sequence to sequence" if kind == "seq2seq" else "")
        self.context, self.positions = self.span(length), self.width(length)
        if self.context > context:
            problem = f"data.length={length} needs data.context of at least {self.context}, not {context}"
            raise ValueError(f"{problem}; write a shorter data.length or a larger data.context")
        what = [name, VERSION, kind, length, parameters]
        self.fingerprint = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]

    def outcomes(self, vocab: int, answers: int) -> None:
        """Set the number of ids, and the number of possible answers for the chance level."""
        self.vocab = self.outputs = vocab
        self.yardsticks = {"chance": math.log(answers)}

    def shortest(self) -> int:
        """The smallest possible length."""
        return 1

    def width(self, length: int) -> int:
        """Positions that a model computes for an example of this length."""
        return self.span(length)

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Inputs and targets, of one length or distributed as in training."""
        raise NotImplementedError

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """New examples for (seed, step)."""
        return Batch(*self.examples(generator("batch", seed, step), size, "train", None))

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """About `tokens` positions of examples, distributed as in training or of one length.  All lengths have the same
        number of examples as the training length, from the same random draws where possible."""
        if length is not None and length < self.shortest():
            raise ValueError(f"{self.name} has no examples of length {length}; the shortest is {self.shortest()}")
        count = max(1, tokens // self.width(self.length))
        draw = generator("held out", self.fingerprint, split)
        inputs, targets = self.examples(draw, count, split, length)
        return HeldOut(inputs, targets, np.zeros(targets.shape, int), [self.title])


MOST = 10_000_000  # largest number of symbols, places or pairs, which are stored in tables


def sizes(least: int, **given: int) -> None:
    """Raise ValueError for settings of `data` below `least` or above `MOST`."""
    for name, value in given.items():
        at_least(f"data.{name}", at_most(f"data.{name}", value, MOST), least)


def ids(array: np.ndarray) -> Tensor:
    """Convert an array to a tensor of ids."""
    return torch.from_numpy(array.astype(np.int64))
