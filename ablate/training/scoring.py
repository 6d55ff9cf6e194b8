"""Held-out targets scored: the loss of each and whether it was predicted, summed up by the metrics of `ablate.data`."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.data.metrics import Metric, Scores
from ablate.data.task import IGNORE, HeldOut
from ablate.model.norm import running_norms
from ablate.training.devices import is_out_of_memory, make_room, moved

CHUNK = 4096  # positions of one forward pass on the CPU
T = TypeVar("T")


@torch.no_grad()
def score(
    model: nn.Module,
    held_out: HeldOut,
    device: torch.device,
    precision: str,
    batch_statistics: bool = False,
    chunk: int = CHUNK,
    rows: int | None = None,
) -> Scores:
    """Scores of held-out examples in evaluation mode, `chunk` positions at a time; the model is left as it was.

    With `batch_statistics`, norms that keep running statistics use those of each chunk of examples instead.  With
    `rows` a compiled model takes as many examples at a time as in training, by the graph that it has from there.
    """

    def of_chunk(inputs: dict[str, Tensor], targets: Tensor) -> tuple[np.ndarray, np.ndarray]:
        # The graph of training keeps what a backward pass would need; one for inference would be compiled anew.
        with autocast(device, precision), torch.set_grad_enabled(rows is not None):
            logits = model(**inputs)
        logits = logits.detach().float()
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="none")
        right = (logits.argmax(-1) == targets).cpu().numpy()
        return loss.view(targets.shape).double().cpu().numpy(), right

    with evaluation_mode(model, batch_statistics):
        losses, right = zip(*in_chunks(held_out, device, of_chunk, chunk, batch_statistics, rows), strict=True)
    count = len(held_out.targets)
    return Scores(np.concatenate(losses)[:count], np.concatenate(right)[:count], (held_out.targets != IGNORE).numpy())


def positions_at_once(device: str, batch: int, context: int) -> int:
    """Positions of one forward pass in evaluation: on a GPU as many as a step trains, which fit and keep it busy."""
    return max(CHUNK, batch * context) if device == "cuda" else CHUNK


def in_chunks(
    held_out: HeldOut,
    device: torch.device,
    compute: Callable[[dict[str, Tensor], Tensor], T],
    chunk: int = CHUNK,
    whole: bool = False,
    alike: int | None = None,
) -> list[T]:
    """What is computed of inputs and targets on a device, as many examples at a time as have `chunk` positions.

    Out of memory, half as many are taken from there on; not with `whole`, where chunks have a meaning.  Where chunks
    must be `alike`, each has so many examples, the last one its own last example again and again.
    """
    rows, start = alike or max(1, chunk // max(tensor.shape[1] for tensor in held_out.inputs.values())), 0
    count = len(held_out.targets)
    found: list[T] = []
    while start < count:
        part: slice | Tensor = slice(start, start + rows)
        if alike and start + rows > count:
            part = torch.arange(start, start + rows).clamp(max=count - 1)
        try:
            inputs = {name: moved(tensor[part], device) for name, tensor in held_out.inputs.items()}
            found.append(compute(inputs, moved(held_out.targets[part], device)))
        except RuntimeError as error:
            if whole or rows == 1 or not is_out_of_memory(error):
                raise
            rows = -(-rows // 2)
        else:
            start += rows
            continue
        make_room(device)  # here, where the error no longer holds on to what it was raised in
    return found


@contextmanager
def evaluation_mode(model: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """The model in evaluation mode, its running norms on request in training mode and frozen; put back at the end."""
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
    """bf16 autocast where the precision asks for it, else nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def summarise(
    scores: Scores,
    split: str,
    metrics: Mapping[str, Metric],
    bytes_per_token: float | None = None,
    length: int | None = None,
) -> dict[str, float]:
    """`split/metric` of metrics by name, at a length `split/metric@length`.

    Beside the loss, where targets stand for bytes: bits per byte.  Raises ValueError where nothing is scored.
    """
    if not scores.scored.any():
        raise ValueError(f"eval.tokens is too small: no target of the {split} split is scored; write more")
    found = {name: metric.compute(scores) for name, metric in metrics.items()}
    found |= {"bpb": found["loss"] / math.log(2) / bytes_per_token} if bytes_per_token else {}
    return {at_length(f"{split}/{name}", length): value for name, value in found.items()}


def at_length(metric: str, length: int | None) -> str:
    """The name of a metric at a length, or at the training length."""
    return metric if length is None else f"{metric}@{length}"


class DocumentLosses(NamedTuple):
    """Scored targets and mean loss of held-out documents, by their names."""

    name: Sequence[str] = ()
    tokens: Sequence[int] = ()
    loss: Sequence[float] = ()


def by_document(scores: Scores, documents: np.ndarray, names: list[str]) -> DocumentLosses:
    """Scored targets and mean loss of each held-out document that has any; nothing for a task without documents."""
    if not names:
        return DocumentLosses()
    here = documents[scores.scored]
    tokens = np.bincount(here, minlength=len(names))
    total = np.bincount(here, weights=scores.loss[scores.scored], minlength=len(names))
    scored = np.flatnonzero(tokens)
    losses = (total[scored] / tokens[scored]).tolist()
    return DocumentLosses([names[i] for i in scored], tokens[scored].tolist(), losses)
