"""What a model is measured by: metrics of a held-out split, greedy decoding, and all that a run ends with."""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ablate.config.schema import Config
from ablate.data.metrics import Scores, exact, loss
from ablate.data.task import IGNORE, Batch, HeldOut, Task
from ablate.model.norm import running_norms
from ablate.training.devices import moved
from ablate.training.scoring import (
    CHUNK,
    DocumentLosses,
    at_length,
    autocast,
    by_document,
    evaluation_mode,
    in_chunks,
    positions_at_once,
    score,
    summarise,
)


class Setting(NamedTuple):
    """How models are measured."""

    tokens: int  # positions of the test split, about
    device: torch.device
    precision: str
    chunk: int = CHUNK  # positions of one forward pass
    val_share: float = 1.0  # of `tokens`, on the validation split during training
    rows: int | None = None  # examples of one forward pass, where the model is compiled for so many

    def of(self, split: str) -> int:
        """Positions of a split."""
        return self.tokens if split == "test" else max(1, round(self.tokens * self.val_share))


def setting_of(config: Config) -> Setting:
    """The setting of a resolved configuration."""
    train, evaluated = config.train, config.eval
    chunk = positions_at_once(train.device, train.batch_size, config.data["context"])
    rows = train.batch_size if train.compile else None
    device = torch.device(train.device)
    return Setting(evaluated.tokens, device, train.precision, chunk, evaluated.val_share, rows)


class Measured(NamedTuple):
    """Metrics of a split, the scores behind them and the examples."""

    metrics: dict[str, float]
    scores: Scores
    held_out: HeldOut


class FinalEvaluation(NamedTuple):
    """Test metrics at the end of training, and losses by document."""

    metrics: dict[str, float]
    documents: DocumentLosses


def measure(model: nn.Module, task: Task, split: str, setting: Setting, length: int | None = None) -> Measured:
    """Metrics of a split, at the training length or another.

    On the test split of sequence-to-sequence tasks `exact` is that of greedy decoding.
    """
    device, precision, chunk = setting.device, setting.precision, setting.chunk
    held_out = task.held_out(split, setting.of(split), length)
    # Examples of another length have a graph of their own, which need not keep what a backward pass would need.
    rows = setting.rows if length is None else None
    scores = score(model, held_out, device, precision, chunk=chunk, rows=rows)
    found = summarise(scores, split, task.measured(), task.bytes_per_token.get(split), length)
    if split == "test" and task.kind == "seq2seq" and "exact" in task.metrics:
        of_its_own = scores._replace(right=decoded(model, held_out, device, precision, chunk))
        found[at_length("test/exact", length)] = exact(of_its_own)
    return Measured(found, scores, held_out)


def final_evaluation(model: nn.Module, task: Task, setting: Setting, batches: Iterator[Batch]) -> FinalEvaluation:
    """A trained model on the test split; `batches` are those of training that would have followed the last.

    Where norms keep running statistics, beside `test/loss` with those: `test/loss_recalibrated`, with statistics
    estimated anew, and `test/loss_batch`, with those of each chunk of examples, which look at what is predicted.
    """
    found, scores, held_out = measure(model, task, "test", setting)
    if running_norms(model):
        device, precision = setting.device, setting.precision  # chunks are of one size on every device
        fresh = recalibrated(model, setting, batches)
        for name, of, batch in (("loss_recalibrated", fresh, False), ("loss_batch", model, True)):
            found |= {f"test/{name}": loss(score(of, held_out, device, precision, batch))}
    return FinalEvaluation(found, by_document(scores, held_out.documents, held_out.names))


def at_lengths(model: nn.Module, task: Task, setting: Setting, lengths: list[int]) -> dict[str, float]:
    """Test metrics at other lengths: `test/loss@128` and so on."""
    found: dict[str, float] = {}
    for length in lengths:
        found |= measure(model, task, "test", setting, length).metrics
    return found


def following(task: Task, seed: int, step: int, size: int) -> Iterator[Batch]:
    """The training batches from a step on; none is made before it is asked for."""
    return (task.batch(seed, later, size) for later in itertools.count(step))


BATCHES = 32


@torch.no_grad()
def recalibrated(model: nn.Module, setting: Setting, batches: Iterator[Batch]) -> nn.Module:
    """A copy of the model, in evaluation mode, whose running statistics are the mean over 32 training batches.

    Without dropout (precise statistics: Wu 2021, arXiv 2105.07576).
    """
    copied = copy.deepcopy(model).eval()
    for norm in running_norms(copied):
        norm.reset()
        norm.momentum = None
        norm.train()
    for batch in itertools.islice(batches, BATCHES):
        with autocast(setting.device, setting.precision):
            copied(**{name: moved(tensor, setting.device) for name, tensor in batch.inputs.items()})
    return copied.eval()


@torch.no_grad()
def greedy(model: nn.Module, inputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    """What a sequence-to-sequence model predicts at each position, reading its own predictions before it: (B, T).

    The first token of each example starts it.  Where a target is scored the next token is the prediction; where it
    is not, the given one stays.

    An example is all right exactly if it is so with teacher forcing.  By induction over t: while all scored
    predictions before t are right, the tokens up to t are the given ones, so the prediction at t is that of teacher
    forcing, right or wrong.  The first wrong one is thus the same in both, or there is none in either.
    """
    scored = targets != IGNORE
    tokens = inputs["tokens"].clone()
    tokens[:, 1:] = tokens[:, 1:].masked_fill(scored[:, :-1], 0)  # what is to be predicted is nowhere to be read
    predicted = torch.zeros_like(tokens)
    logits, places = continuing(model, inputs), scored.any(0).nonzero()
    for t in range(int(places.max()) + 1 if len(places) else 0):
        # At full length each time: products of other shapes round otherwise, and the induction would hold but for that.
        predicted[:, t] = logits(tokens)[:, t].argmax(-1)
        if t + 1 < tokens.shape[1]:
            tokens[:, t + 1] = torch.where(scored[:, t], predicted[:, t], tokens[:, t + 1])
    return predicted


def continuing(model: nn.Module, inputs: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """The logits of a model as a function of the tokens alone: the source is encoded once, where its class says how.

    A compiled model is called whole: its parts by themselves run eagerly and would round otherwise.
    """
    if "encode" not in vars(type(model)) or model._compiled_call_impl is not None:
        return lambda tokens: model(**inputs | {"tokens": tokens})
    source, source_mask = inputs["source"], inputs.get("source_mask")
    memory = model.encode(source, source_mask)
    return lambda tokens: model.decode(memory, tokens, source_mask, inputs.get("mask"))


def decoded(
    model: nn.Module, held_out: HeldOut, device: torch.device, precision: str, chunk: int = CHUNK
) -> np.ndarray:
    """Where greedy decoding of held-out sources hits the targets, (examples, T); the model is left as it was."""

    def of_chunk(inputs: dict[str, Tensor], targets: Tensor) -> np.ndarray:
        return (greedy(model, inputs, targets) == targets).cpu().numpy()

    with evaluation_mode(model), autocast(device, precision):
        return np.concatenate(in_chunks(held_out, device, of_chunk, chunk))
