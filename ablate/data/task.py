"""Base class of tasks: training batches determined by (seed, step), held-out examples, and sizes for the model."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ablate.config.components import bind, resolve
from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.data.metrics import METRICS, Metric
from ablate.formatting import is_number

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100  # a target that is not scored; the default of cross_entropy
KINDS = {
    "lm": "for a causal model",
    "mlm": "of masked tokens",
    "classification": "of classification",
    "seq2seq": "from sequence to sequence",
}
SAMPLED = 16  # batches, spread over a run, that are checked for equal lengths


class Batch(NamedTuple):
    """The inputs of a model's forward, by name, and the targets to predict.

    inputs   tokens (B, T), or numbers (B, T, features); if there is padding, mask (B, T), 1 at real positions;
             sequence to sequence: also source (B, S) and source_mask (B, S)
    targets  ids (B, T), IGNORE where nothing is scored; classification: (B,)
    """

    inputs: dict[str, Tensor]
    targets: Tensor


def batch_positions(batch: Batch) -> int:
    """Number of positions that a model computes for a batch, including those of the source."""
    return sum(x.shape[0] * x.shape[1] for name, x in batch.inputs.items() if not name.endswith("mask"))


class HeldOut(NamedTuple):
    """Examples for evaluation, as in a Batch, with the index of each target's document and the documents' names."""

    inputs: dict[str, Tensor]
    targets: Tensor
    documents: np.ndarray
    names: list[str]


class Task:
    """Base class of all tasks, also of user tasks.  It keeps no position in the data, so resuming is exact.

    kinds        the kinds that it supports: lm, mlm, classification, seq2seq; `kind` is the one that is used
    metrics      name -> min or max, whichever is better; variants are compared by the first
    own_metrics  name -> Metric, for those that are not in ablate.data.metrics
    token        the name of one target: byte, char, token, class
    vocab        number of input ids; `outputs` number of target ids
    features     numbers per position if inputs are not ids, else None
    context      positions of the longest sequence, source or target, at the training length
    positions    positions that a model computes per example; the maximum if lengths of batches vary
    length       the training length in the task's own units (digits of a sum, tokens of a window)
    train_tokens positions of the training data, None if batches never repeat
    yardsticks   reference losses, such as that of guessing
    bytes_per_token  split -> mean bytes of text per target, if bits per byte are meaningful
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
        """The training batch of a step, determined by (seed, step)."""
        raise NotImplementedError

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """About `tokens` positions of examples of a held-out split (val or test), at the training length or another.
        If possible, the same targets are scored at all lengths.  Raises ValueError for a length without examples."""
        raise NotImplementedError

    def changes_length(self, size: int, steps: int) -> bool:
        """Whether batches differ from `positions` in size, judging from a sample of a run's steps."""
        sample = {index * (steps - 1) // (SAMPLED - 1) for index in range(SAMPLED)}
        return any(batch_positions(self.batch(0, step, size)) != size * self.positions for step in sorted(sample))

    def training_text(self) -> list[np.ndarray] | None:
        """The token ids (N,) of each training document; None for tasks without text."""
        return None

    def measured(self) -> dict[str, Metric]:
        """The metrics, with the training loss first.  Raises ValueError for an unknown metric."""
        metrics = METRICS | self.own_metrics
        for name in sorted(self.metrics):
            if name not in metrics:
                how = f"write own_metrics = {{{name!r}: Metric(...)}}, with ablate.data.metrics.Metric"
                raise ValueError(f"nothing computes the metric {name} of {type(self).__name__}; {how}")
        return {name: metrics[name] for name in ("loss", *self.metrics)}

    def metric_facts(self) -> dict[str, list[str] | dict[str, str]]:
        """The properties of its metrics as plain data; see Metric."""
        measured = self.measured()
        return {
            "shares": [name for name, metric in measured.items() if metric.share],
            "units": {name: metric.unit for name, metric in measured.items() if metric.unit},
            "beside": [name for name in self.metrics if measured[name].beside],
        }

    def holds_out(self, length: int) -> bool:
        """Whether held-out examples of a length do not occur in training."""
        return True

    def span(self, length: int) -> int:
        """Positions that a model needs for examples of a length."""
        return length

    def blank(self) -> dict[str, Tensor]:
        """Zero inputs of one example: their names, shapes and types are those of batches."""
        import torch

        if self.features is None:
            return {"tokens": torch.zeros((1, self.context), dtype=torch.long)}
        return {"tokens": torch.zeros((1, self.context, self.features))}


def generator(*key: object) -> np.random.Generator:
    """A random generator seeded by a key, the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def uniform(key: tuple[object, ...], first: int, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) of those that a key draws, from index `first` on, without drawing those before."""
    draw = generator(*key)
    draw.bit_generator.advance(first // 4)  # type: ignore[attr-defined]  # Philox makes four at a time
    return draw.random(first % 4 + count)[first % 4 :]


def places_of_passes(key: tuple[object, ...], count: int, first: int, size: int) -> np.ndarray:
    """The places `first`, `first` + 1, … (size,) of endless passes over 0 … count − 1, each in a random order of its
    own, drawn from the key and the number of the pass."""
    passes, places = np.divmod(np.arange(first, first + size), count)
    order = np.empty(size, np.int64)
    for number in np.unique(passes).tolist():
        inside = passes == number
        order[inside] = order_of_pass(count, *key, number)[places[inside]]
    return order


@functools.lru_cache(2)
def order_of_pass(count: int, *key: object) -> np.ndarray:
    """A random order of 0 … count − 1."""
    return generator(*key).permutation(count)


def build_task(config: Config) -> Any:
    """The task of a resolved configuration, in the kind that its model supports; reads or makes its cache.  Raises
    BadComponent for a task that the model does not support, ValueError for problems of the data."""
    model: Any = resolve("model", config.model._target_, config.user)
    task_class: Any = resolve("data", config.data.get("_target_", ""), config.user)
    kinds = [kind for kind in model.kinds if kind in task_class.kinds]
    if not kinds:
        offered = " or ".join(KINDS[kind] for kind in task_class.kinds)
        needed = " or ".join(KINDS[kind] for kind in model.kinds)
        message = f"{task_class.__name__} is a task {offered}, and {model.__name__} does tasks {needed}"
        raise BadComponent("data", message)
    task = bind("data", config.data, {"kind": kinds[0]}, config.user)()
    task.measured()  # raises ValueError for an unknown metric
    check_solved_at(config.data.get("solved_at"), task)
    return task


def check_solved_at(solved_at: object, task: Task) -> None:
    """Raise BadComponent for a `data.solved_at`, the value from which a run has solved a task, that is no share."""
    if solved_at is None:
        return
    first = next(iter(task.metrics))
    if first not in task.metric_facts()["shares"]:
        raise BadComponent("data.solved_at", f"is for shares, which {first}, its first metric, is not")
    if not (is_number(solved_at) and 0 < solved_at <= 1):
        raise BadComponent("data.solved_at", f"must be above 0 and at most 1, not {solved_at!r}")
