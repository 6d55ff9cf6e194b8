"""Examples drawn from a rule: what all synthetic tasks share."""

import hashlib
import json
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablate.config.ranges import at_least, at_most
from ablate.data.task import Batch, HeldOut, Task, generator

VERSION = 2  # raised when the same parameters come to mean other examples


class Synthetic(Task):
    """An endless stream of examples, one per key: training's is (seed, step), a held-out split's its name."""

    metrics = {"accuracy": "max", "exact": "max", "loss": "min"}  # noqa: RUF012 (never written to)
    token = "token"
    train_tokens = None

    def __init__(self, name: str, kind: str, context: int, length: int, parameters: dict[str, Any]):
        """`context` is the limit; `parameters` are whatever else decides the examples.  The rest is the subclass's."""
        if length < self.shortest():
            raise ValueError(f"data.length={length} is too short; {name} needs at least {self.shortest()}")
        self.name, self.kind, self.length = name, kind, length
        self.title = f"{name} at length {length}" + (", sequence to sequence" if kind == "seq2seq" else "")
        self.context, self.positions = self.span(length), self.width(length)
        if self.context > context:
            raise ValueError(
                f"data.length={length} needs data.context of at least {self.context}, not {context}; "
                "write a shorter data.length or a larger data.context"
            )
        what = [name, VERSION, kind, length, parameters]
        self.fingerprint = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]

    def outcomes(self, vocab: int, answers: int) -> None:
        """How many ids there are, and how many of them a guess has to choose from."""
        self.vocab = self.outputs = vocab
        self.yardsticks = {"chance": math.log(answers)}

    def shortest(self) -> int:
        """The least length that there are examples of."""
        return 1

    def width(self, length: int) -> int:
        """Positions that a model computes for an example of a length."""
        return self.span(length)

    def examples(self, draw: np.random.Generator, size: int, split: str, length: int | None) -> tuple[Any, Tensor]:
        """Inputs and targets: at one length, or distributed as in training."""
        raise NotImplementedError

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """Fresh examples from (seed, step)."""
        return Batch(*self.examples(generator("batch", seed, step), size, "train", None))

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """About `tokens` positions of examples, distributed as in training or all of a length.

        At any length as many as at training's, from the same draws as far as the length leaves them alone.
        """
        if length is not None and length < self.shortest():
            raise ValueError(f"{self.name} has no examples of length {length}; the shortest is {self.shortest()}")
        count = max(1, tokens // self.width(self.length))
        draw = generator("held out", self.fingerprint, split)
        inputs, targets = self.examples(draw, count, split, length)
        return HeldOut(inputs, targets, np.zeros(targets.shape, int), [self.title])


MOST = 10_000_000  # symbols, places, pairs: tables of them are made


def sizes(least: int, **given: int) -> None:
    """Raise ValueError for settings of `data` that are below the least that makes sense, or beyond all tables."""
    for name, value in given.items():
        at_least(f"data.{name}", at_most(f"data.{name}", value, MOST), least)


def ids(array: np.ndarray) -> Tensor:
    """An array as the ids that models take."""
    return torch.from_numpy(array.astype(np.int64))
