"""Evaluation of models: scores of held-out targets, their metrics, and a run's final evaluation."""

import contextlib
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.schema import Config, Train
from ablate.data.metrics import Metric, Scores, loss
from ablate.data.task import IGNORE, Batch, HeldOut, Task
from ablate.model.norm import running_norms
from ablate.runs.folder import Run
from ablate.runs.records import Documents, Evaluation
from ablate.training.devices import is_out_of_memory, make_room, to_device

CHUNK = 4096  # positions per forward pass on the CPU
RECALIBRATION_BATCHES = 32
T = TypeVar("T")


class Setting(NamedTuple):
    """Settings of evaluation."""

    tokens: int  # approximate number of positions of the test split
    device: torch.device
    precision: str
    chunk: int = CHUNK  # positions per forward pass
    val_share: float = 1.0  # share of `tokens` used on the validation split during training
    rows: int | None = None  # examples per forward pass, if the model is compiled for a fixed batch size

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
        chunks = in_chunks(held_out, setting, compute_chunk, may_split=not batch_statistics)
    count = len(held_out.targets)  # the last chunk may be padded
    losses = np.concatenate([loss for loss, _ in chunks])[:count]
    right = np.concatenate([right for _, right in chunks])[:count]
    return Scores(losses, right, (held_out.targets != IGNORE).numpy())


def positions_at_once(loop: Train, context: int) -> int:
    """Positions per forward pass in evaluation: on a GPU as many as in training, which fit and keep it busy."""
    return max(CHUNK, loop.part_rows * context) if loop.device == "cuda" else CHUNK


def in_chunks(
    held_out: HeldOut, setting: Setting, compute: Callable[[dict[str, Tensor], Tensor], T], may_split: bool
) -> list[T]:
    """Apply `compute` to inputs and targets in chunks of about `setting.chunk` positions; returns the results.

    When out of memory, later chunks have half as many examples if they may be split.  With `setting.rows` each chunk
    has exactly that many examples; the last one is padded with its last example.
    """
    device = setting.device
    count = len(held_out.targets)
    positions = max(tensor.shape[1] for tensor in held_out.inputs.values())
    rows = setting.rows or max(1, setting.chunk // positions)
    results: list[T] = []
    start = 0
    while start < count:
        chunk: slice | Tensor = slice(start, start + rows)
        if setting.rows and start + rows > count:
            chunk = torch.arange(start, start + rows).clamp(max=count - 1)
        try:
            inputs = {name: to_device(tensor[chunk], device) for name, tensor in held_out.inputs.items()}
            results.append(compute(inputs, to_device(held_out.targets[chunk], device)))
        except RuntimeError as error:
            if not may_split or rows == 1 or not is_out_of_memory(error):
                raise
            rows = math.ceil(rows / 2)
        else:
            start += rows
            continue
        make_room(device)  # not in the except block, where the error keeps its tensors alive
    return results


@contextlib.contextmanager
def evaluation_mode(model: nn.Module, batch_statistics: bool = False) -> Iterator[None]:
    """The model in evaluation mode, restored at the end; with `batch_statistics`, running norms use the statistics of
    each batch and keep their own unchanged."""
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
        for norm, was_frozen in zip(norms, frozen, strict=True):
            norm.frozen = was_frozen


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
    values = {name: metric.compute(scores) for name, metric in metrics.items()}
    if bytes_per_token:
        values["bpb"] = values["loss"] / math.log(2) / bytes_per_token
    return {at_length(f"{split}/{name}", length): value for name, value in values.items()}


def at_length(metric: str, length: int | None) -> str:
    """The name of a metric at a length; None is the training length."""
    return metric if length is None else f"{metric}@{length}"


def losses_by_document(scores: Scores, documents: np.ndarray, names: list[str]) -> Documents:
    """The number of scored targets and their mean loss, for each held-out document with at least one.

    `documents` is each target's index in `names`; empty for a task without documents.
    """
    if not names:
        return Documents()
    document_of_target = documents[scores.scored]
    counts = np.bincount(document_of_target, minlength=len(names))
    loss_sums = np.bincount(document_of_target, weights=scores.loss[scores.scored], minlength=len(names))
    present = np.flatnonzero(counts)
    means = loss_sums[present] / counts[present]
    return Documents(name=[names[i] for i in present], tokens=counts[present].tolist(), loss=means.tolist())


def setting_of(config: Config) -> Setting:
    """The evaluation settings of a resolved configuration."""
    train = config.train
    return Setting(
        tokens=config.eval.tokens,
        device=torch.device(train.device),
        precision=train.precision,
        chunk=positions_at_once(train, config.data["context"]),
        val_share=config.eval.val_share,
        rows=train.part_rows if train.compile else None,
    )


class Measured(NamedTuple):
    """Metrics of a split, and the scores and examples that they come from."""

    metrics: dict[str, float]
    scores: Scores
    held_out: HeldOut


def measure(model: nn.Module, task: Task, split: str, setting: Setting, length: int | None = None) -> Measured:
    """Metrics of a split, at the training length or another."""
    held_out = task.held_out(split, setting.of(split), length)
    # Other lengths get their own graph, which need not save activations for a backward pass.
    scores = score(model, held_out, setting if length is None else setting._replace(rows=None))
    metrics = summarise(scores, split, task.measured(), task.bytes_per_token.get(split), length)
    return Measured(metrics, scores, held_out)


def final_evaluation(
    model: nn.Module, task: Task, setting: Setting, batches: Iterator[Batch]
) -> tuple[dict[str, float], Documents]:
    """Test metrics of a trained model, and losses per document; `batches` are the training batches after the last step.

    Models with running statistics get two more losses: `test/loss_recalibrated`, with statistics estimated anew, and
    `test/loss_batch`, with those of each chunk of examples, which depend on the tokens to be predicted.
    """
    metrics, scores, held_out = measure(model, task, "test", setting)
    if running_norms(model):
        fixed_chunks = setting._replace(chunk=CHUNK, rows=None)  # the same on all devices
        recalibrated_model = recalibrated(model, setting, batches)
        metrics["test/loss_recalibrated"] = loss(score(recalibrated_model, held_out, fixed_chunks))
        metrics["test/loss_batch"] = loss(score(model, held_out, fixed_chunks, batch_statistics=True))
    return metrics, losses_by_document(scores, held_out.documents, held_out.names)


def at_lengths(model: nn.Module, task: Task, setting: Setting, lengths: list[int]) -> dict[str, float]:
    """Test metrics at other lengths: `test/loss@128` and so on."""
    metrics: dict[str, float] = {}
    for length in lengths:
        metrics |= measure(model, task, "test", setting, length).metrics
    return metrics


def add_length(run: Run, model: nn.Module, task: Task, setting: Setting, length: int) -> None:
    """Evaluate a trained model at a length and add the metrics to the run's evaluation.json.  Always in eager mode:
    each length would be compiled anew, and saved weights are evaluated in eager mode, too.  `eval.lengths` is not part
    of a run's key: new lengths evaluate the saved weights, and nothing is trained again."""
    metrics = at_lengths(copy.deepcopy(model), task, setting, [length])
    evaluation = Evaluation(torch=torch.__version__, data_fingerprint=task.fingerprint)
    earlier = run.evaluation(evaluation)
    run.write(run.evaluation_file, dataclasses.replace(evaluation, metrics={**earlier, **metrics}))


def following(task: Task, seed: int, step: int, size: int) -> Iterator[Batch]:
    """The training batches from a step on, generated lazily."""
    return (task.batch(seed, later_step, size) for later_step in itertools.count(step))


@torch.no_grad()
def recalibrated(model: nn.Module, setting: Setting, batches: Iterator[Batch]) -> nn.Module:
    """A copy of the model, in evaluation mode, whose running statistics are the mean over 32 training batches, computed
    without dropout (precise statistics: Wu 2021, arXiv 2105.07576)."""
    model = copy.deepcopy(model).eval()
    for norm in running_norms(model):
        norm.reset()
        norm.momentum = None
        norm.train()
    for batch in itertools.islice(batches, RECALIBRATION_BATCHES):
        inputs = {name: to_device(tensor, setting.device) for name, tensor in batch.inputs.items()}
        with autocast(setting.device, setting.precision):
            model(**inputs)
    return model.eval()
