"""Scores of held-out targets: the loss of each and whether it was predicted, summarised by metrics of `ablate.data`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.schema import Train
from ablate.data.metrics import Metric, Scores
from ablate.data.task import IGNORE, HeldOut
from ablate.model.norm import running_norms
from ablate.training.devices import is_out_of_memory, make_room, to_device
from ablate.training.ranks import ALONE, Ranks

CHUNK = 4096  # positions per forward pass on the CPU
T = TypeVar("T")


class Setting(NamedTuple):
    """Settings of evaluation."""

    tokens: int  # approximate number of positions of the test split
    device: torch.device
    precision: str
    chunk: int = CHUNK  # positions per forward pass
    val_share: float = 1.0  # share of `tokens` used on the validation split during training
    rows: int | None = None  # examples per forward pass, if the model is compiled for a fixed batch size
    ranks: Ranks = ALONE  # which share the examples

    def of(self, split: str) -> int:
        """Number of positions of a split."""
        return self.tokens if split == "test" else max(1, round(self.tokens * self.val_share))


@torch.no_grad()
def score(model: nn.Module, held_out: HeldOut, setting: Setting, batch_statistics: bool = False) -> Scores:
    """Scores of held-out examples in evaluation mode; leaves the model unchanged.

    With `batch_statistics`, norms with running statistics use those of each chunk of examples instead.  A compiled
    model's training graph is used again.
    """

    def compute_chunk(inputs: dict[str, Tensor], targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
        # With gradients disabled a compiled model would need another graph, for inference.
        with autocast(setting.device, setting.precision), torch.set_grad_enabled(setting.rows is not None):
            logits = model(**inputs)
        logits = logits.detach().float()
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
        right = (logits.argmax(-1) == targets).cpu().numpy()
        return loss.view(targets.shape).double().cpu().numpy(), right

    with evaluation_mode(model, batch_statistics):
        losses, right = zip(*in_chunks(held_out, setting, compute_chunk, batch_statistics), strict=True)
    count = len(held_out.targets)
    return Scores(np.concatenate(losses)[:count], np.concatenate(right)[:count], (held_out.targets != IGNORE).numpy())


def positions_at_once(loop: Train, context: int) -> int:
    """Positions per forward pass in evaluation: on a GPU as many as in training, which fit and keep it busy."""
    return max(CHUNK, loop.part_rows * context) if loop.device == "cuda" else CHUNK


def in_chunks(
    held_out: HeldOut, setting: Setting, compute: Callable[[dict[str, Tensor], Tensor], T], whole: bool = False
) -> list[T]:
    """Apply `compute` to inputs and targets in chunks of about `setting.chunk` positions; returns the results.  Each
    rank computes an equal share of the chunks.

    When out of memory, later chunks have half as many examples, except with `whole`, where chunks must not be split.
    With `setting.rows` each chunk has exactly that many examples; the last one is padded with its last example.
    """
    device, alike, ranks, count = setting.device, setting.rows, setting.ranks, len(held_out.targets)
    rows = alike or max(1, setting.chunk // max(tensor.shape[1] for tensor in held_out.inputs.values()))
    found: list[T] = []
    start, stop = (min(count, -(-count // rows) * end // ranks.count * rows) for end in (ranks.rank, ranks.rank + 1))
    while start < stop:
        part: slice | Tensor = slice(start, min(start + rows, stop))
        if alike and start + rows > count:
            part = torch.arange(start, start + rows).clamp(max=count - 1)
        try:
            inputs = {name: to_device(tensor[part], device) for name, tensor in held_out.inputs.items()}
            found.append(compute(inputs, to_device(held_out.targets[part], device)))
        except RuntimeError as error:
            if whole or rows == 1 or not is_out_of_memory(error):
                raise
            rows = -(-rows // 2)
        else:
            start += rows
            continue
        make_room(device)  # not in the except block, where the error keeps its tensors alive
    return ranks.gather(found)


@contextmanager
def evaluation_mode(model: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """The model in evaluation mode, on request with running norms in training mode and frozen; restored at the end."""
    modes = {module: module.training for module in model.modules()}
    norms = running_norms(model) if batch_statistics else []
    frozen = [norm.frozen for norm in norms]
    try:
        model.eval()
        for norm in norms:
            norm.train()
            norm.frozen = True
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, was in zip(norms, frozen, strict=True):
            norm.frozen = was


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bf16 autocast if the precision is bf16, else a context that does nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def summarise(
    scores: Scores,
    split: str,
    metrics: Mapping[str, Metric],
    bytes_per_token: float | None = None,
    length: int | None = None,
) -> dict[str, float]:
    """Metrics by name `split/metric`, or `split/metric@length` at a given length.  Adds bits per byte if
    `bytes_per_token` is known.  Raises ValueError if nothing is scored."""
    if not scores.scored.any():
        raise ValueError(f"eval.tokens is too small: no target of the {split} split is scored; write more")
    found = {name: metric.compute(scores) for name, metric in metrics.items()}
    found |= {"bpb": found["loss"] / math.log(2) / bytes_per_token} if bytes_per_token else {}
    return {at_length(f"{split}/{name}", length): value for name, value in found.items()}


def at_length(metric: str, length: int | None) -> str:
    """The name of a metric at a length; None is the training length."""
    return metric if length is None else f"{metric}@{length}"


class DocumentLosses(NamedTuple):
    """Number of scored targets and mean loss of held-out documents, with their names."""

    name: Sequence[str] = ()
    tokens: Sequence[int] = ()
    loss: Sequence[float] = ()


def by_document(scores: Scores, documents: np.ndarray, names: list[str]) -> DocumentLosses:
    """Scored targets and mean loss of each held-out document that has any; empty for a task without documents."""
    if not names:
        return DocumentLosses()
    here = documents[scores.scored]
    tokens = np.bincount(here, minlength=len(names))
    total = np.bincount(here, weights=scores.loss[scores.scored], minlength=len(names))
    scored = np.flatnonzero(tokens)
    losses = (total[scored] / tokens[scored]).tolist()
    return DocumentLosses([names[i] for i in scored], tokens[scored].tolist(), losses)
