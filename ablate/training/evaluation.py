"""Evaluation of models: metrics of a held-out split, greedy decoding, and the final evaluation of a run."""

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
from ablate.training import scoring
from ablate.training.devices import to_device
from ablate.training.scoring import DocumentLosses, Setting


def setting_of(config: Config) -> Setting:
    """The evaluation settings of a resolved configuration."""
    train, evaluated = config.train, config.eval
    chunk = scoring.positions_at_once(train, config.data["context"])
    rows = train.part_rows if train.compile else None
    device = torch.device(train.device)
    return Setting(evaluated.tokens, device, train.precision, chunk, evaluated.val_share, rows)


class Measured(NamedTuple):
    """Metrics of a split, and the scores and examples that they come from."""

    metrics: dict[str, float]
    scores: Scores
    held_out: HeldOut


def measure(model: nn.Module, task: Task, split: str, setting: Setting, length: int | None = None) -> Measured:
    """Metrics of a split, at the training length or another.  On the test split of sequence-to-sequence tasks, `exact`
    uses greedy decoding."""
    held_out = task.held_out(split, setting.of(split), length)
    # Other lengths get their own graph, which need not save activations for a backward pass.
    scores = scoring.score(model, held_out, setting if length is None else setting._replace(rows=None))
    found = scoring.summarise(scores, split, task.measured(), task.bytes_per_token.get(split), length)
    if split == "test" and task.kind == "seq2seq" and "exact" in task.metrics:
        generated = scores._replace(right=decoded(model, held_out, setting))
        found[scoring.at_length("test/exact", length)] = exact(generated)
    return Measured(found, scores, held_out)


def final_evaluation(
    model: nn.Module, task: Task, setting: Setting, batches: Iterator[Batch]
) -> tuple[dict[str, float], DocumentLosses]:
    """Test metrics of a trained model, and losses per document; `batches` are the training batches after the last step.

    Models with running statistics get two more losses: `test/loss_recalibrated`, with statistics estimated anew, and
    `test/loss_batch`, with those of each chunk of examples, which depend on the tokens to be predicted.
    """
    found, scores, held_out = measure(model, task, "test", setting)
    if running_norms(model):
        alike = setting._replace(chunk=scoring.CHUNK, rows=None)  # the chunk size is the same on all devices
        fresh = recalibrated(model, setting, batches)
        for name, of, batch in (("loss_recalibrated", fresh, False), ("loss_batch", model, True)):
            found |= {f"test/{name}": loss(scoring.score(of, held_out, alike, batch))}
    return found, scoring.by_document(scores, held_out.documents, held_out.names)


def at_lengths(model: nn.Module, task: Task, setting: Setting, lengths: list[int]) -> dict[str, float]:
    """Test metrics at other lengths: `test/loss@128` and so on."""
    found: dict[str, float] = {}
    for length in lengths:
        found |= measure(model, task, "test", setting, length).metrics
    return found


def following(task: Task, seed: int, step: int, size: int) -> Iterator[Batch]:
    """The training batches from a step on, generated lazily."""
    return (task.batch(seed, later, size) for later in itertools.count(step))


BATCHES = 32


@torch.no_grad()
def recalibrated(model: nn.Module, setting: Setting, batches: Iterator[Batch]) -> nn.Module:
    """A copy of the model, in evaluation mode, whose running statistics are the mean over 32 training batches, computed
    without dropout (precise statistics: Wu 2021, arXiv 2105.07576)."""
    copied = copy.deepcopy(model).eval()
    for norm in running_norms(copied):
        norm.reset()
        norm.momentum = None
        norm.train()
    for batch in itertools.islice(batches, BATCHES):
        with scoring.autocast(setting.device, setting.precision):
            copied(**{name: to_device(tensor, setting.device) for name, tensor in batch.inputs.items()})
    return copied.eval()


@torch.no_grad()
def greedy(model: nn.Module, inputs: dict[str, Tensor], targets: Tensor) -> Tensor:
    """Greedy predictions (B, T) of a sequence-to-sequence model, which reads its own earlier predictions.

    The first token of each example is given.  The next token is the prediction where a target is scored, and the given
    token elsewhere.

    An example is entirely right exactly if it is so with teacher forcing.  By induction over t: while all scored
    predictions before t are right, the tokens up to t are the given ones, so the prediction at t is that of teacher
    forcing.  The first wrong prediction is thus the same in both, or neither has any.
    """
    scored = targets != IGNORE
    tokens = inputs["tokens"].clone()
    tokens[:, 1:] = tokens[:, 1:].masked_fill(scored[:, :-1], 0)  # hide the targets
    predicted = torch.zeros_like(tokens)
    logits, places = continuing(model, inputs), scored.any(0).nonzero()
    for t in range(int(places.max()) + 1 if len(places) else 0):
        # Always at full length: products of other shapes round differently, which would break the induction.
        predicted[:, t] = logits(tokens)[:, t].argmax(-1)
        if t + 1 < tokens.shape[1]:
            tokens[:, t + 1] = torch.where(scored[:, t], predicted[:, t], tokens[:, t + 1])
    return predicted


def continuing(model: nn.Module, inputs: dict[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """A model's logits as a function of only the tokens; the source is encoded once if its class has `encode`.  A
    compiled model is called as a whole: its submodules alone would run eagerly and round differently."""
    if "encode" not in vars(type(model)) or model._compiled_call_impl is not None:
        return lambda tokens: model(**inputs | {"tokens": tokens})
    source, source_mask = inputs["source"], inputs.get("source_mask")
    memory = model.encode(source, source_mask)
    return lambda tokens: model.decode(memory, tokens, source_mask, inputs.get("mask"))


def decoded(model: nn.Module, held_out: HeldOut, setting: Setting) -> np.ndarray:
    """Whether greedy decoding of each held-out source matches the targets, (examples, T)."""

    def compute_chunk(inputs: dict[str, Tensor], targets: Tensor) -> np.ndarray:
        return (greedy(model, inputs, targets) == targets).cpu().numpy()

    with scoring.evaluation_mode(model), scoring.autocast(setting.device, setting.precision):
        return np.concatenate(scoring.in_chunks(held_out, setting._replace(rows=None), compute_chunk))
