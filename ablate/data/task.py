"""The contract of a task: batches from (seed, step) alone, held-out examples, and what it asks of a model."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ablate.data.metrics import METRICS, Metric

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100  # a target that is not scored; cross_entropy's own default
SAMPLED = 16  # batches, spread over a run, that show whether all have one length


class Batch(NamedTuple):
    """What a model's forward takes, by name, and the targets to predict.

    inputs   tokens (B, T), or numbers (B, T, features); mask (B, T), 1 at real positions, where any is padded;
             sequence to sequence: also source (B, S) and source_mask (B, S)
    targets  (B, T) of ids, IGNORE where nothing is scored; classification: (B,)
    """

    inputs: dict[str, Tensor]
    targets: Tensor


def batch_positions(batch: Batch) -> int:
    """Positions that a model computes for a batch: of its tokens, and of their source."""
    return sum(x.shape[0] * x.shape[1] for name, x in batch.inputs.items() if not name.endswith("mask"))


class HeldOut(NamedTuple):
    """Examples to evaluate on, as a Batch, and the document (shaped as the targets) that each target belongs to."""

    inputs: dict[str, Tensor]
    targets: Tensor
    documents: np.ndarray
    names: list[str]


class Task:
    """What all tasks have; a task of one's own derives from it.  Nothing is consumed, so resuming is exact.

    kinds        what it can be to a model form: lm, mlm, classification, seq2seq; `kind` is the one that was asked for
    metrics      name -> min or max; the first is what variants are compared by
    own_metrics  name -> Metric, of those that are not in ablate.data.metrics
    token        what one target is called: byte, char, token, class
    vocab        ids that inputs can have; `outputs` ids that targets can have
    features     numbers per position where inputs are no ids, else None
    context      positions of the longest sequence, source or target, at the training length
    positions    positions that a model computes per example, the most where training batches change their length
    length       the training length in the task's own units (digits of a sum, tokens of a window)
    train_tokens positions of training data there are, None where batches never repeat
    yardsticks   losses that a model should be read against
    bytes_per_token  split -> bytes of text that a target stands for, where bits per byte have a meaning
    """

    kinds: tuple[str, ...]
    metrics: dict[str, str]
    own_metrics: dict[str, Metric] = {}  # noqa: RUF012 (never written to)
    name: str
    title: str
    kind: str
    token: str
    vocab: int
    outputs: int
    features: int | None = None
    context: int
    positions: int
    length: int
    train_tokens: int | None
    fingerprint: str
    notes: list[str] = []  # noqa: RUF012 (never written to)
    yardsticks: dict[str, float]
    bytes_per_token: dict[str, float] = {}  # noqa: RUF012 (never written to)

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """The training batch of a step, from (seed, step) alone."""
        raise NotImplementedError

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """About `tokens` positions of examples of a held-out split, val or test; at another length than training's.

        At any two lengths the same targets are scored, where the task has the same ones.  Raises ValueError for a
        length that there are no examples of.
        """
        raise NotImplementedError

    def changes_length(self, size: int, steps: int) -> bool:
        """Whether batches have other positions than `positions` says, as some of a run's steps show."""
        shown = {step * (steps - 1) // (SAMPLED - 1) for step in range(SAMPLED)}
        return any(batch_positions(self.batch(0, step, size)) != size * self.positions for step in sorted(shown))

    def training_text(self) -> list[np.ndarray] | None:
        """The ids of each document of the training split, (N,) each; None where there is no text."""
        return None

    def measured(self) -> dict[str, Metric]:
        """What is measured: the loss first, which training minimises.  Raises ValueError for what nothing computes."""
        known = METRICS | self.own_metrics
        if unknown := sorted(self.metrics.keys() - known.keys()):
            how = f"write own_metrics = {{{unknown[0]!r}: Metric(...)}}, with ablate.data.metrics.Metric"
            raise ValueError(f"data: nothing computes the metric {unknown[0]} of {type(self).__name__}; {how}")
        return {name: known[name] for name in dict.fromkeys(("loss", *self.metrics))}

    def metric_facts(self) -> dict[str, list[str] | dict[str, str]]:
        """What readers of its metrics have to know, as plain data: see Metric."""
        measured = self.measured()
        return {
            "shares": [name for name, metric in measured.items() if metric.share],
            "units": {name: metric.unit for name, metric in measured.items() if metric.unit},
            "beside": [name for name in self.metrics if measured[name].beside],
        }

    def trained_on(self, length: int, examples: int) -> float:
        """The share of test examples of a length that is expected among so many training examples."""
        return 0.0

    def span(self, length: int) -> int:
        """Positions that a model needs for examples of a length."""
        return length

    def blank(self) -> dict[str, Tensor]:
        """The inputs of one example, all zero, masks of ones where it has any: what models are counted with."""
        import torch

        size = (1, self.context) if self.features is None else (1, self.context, self.features)
        return {"tokens": torch.zeros(size, dtype=torch.long if self.features is None else torch.float32)}


def generator(*key: object) -> np.random.Generator:
    """The stream of random numbers of a key, the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
