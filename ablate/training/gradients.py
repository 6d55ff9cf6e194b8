"""The gradient of a batch, in parts that are summed in a fixed binary tree: `train.parts`, more when out of memory."""

import functools
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import first_line
from ablate.config.schema import Train
from ablate.data.task import IGNORE, Batch
from ablate.model.dropout import begin_at, rekey, seed_torch
from ablate.model.norm import running_norms
from ablate.model.objective import Objective, has_auxiliary, terms_of
from ablate.model.products import whole_logits
from ablate.training import capture
from ablate.training.devices import TooLarge, is_out_of_memory, make_room, to_device
from ablate.training.evaluation import autocast
from ablate.training.ranks import ALONE, Ranks


class Gradients:
    """`gradients(batch)` replaces the gradients of the parameters and returns the losses of the batch.

    All calls within one step use the same random draws; only the first updates running statistics.
    `parts` is the number of parts that a batch is split into; `say` is called with a sentence when it grows.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        loop: Train,
        seed: int,
        user_code: bool,
        say: Callable[[str], None],
        ranks: Ranks = ALONE,
    ):
        self.model, self.objective, self.precision = model, objective, loop.precision
        self.device, self.seed, self.user_code, self.say = torch.device(loop.device), seed, user_code, say
        self.parts, self.step, self.calls, self.parameters = loop.parts, 0, 0, list(model.parameters())
        self.ranks = ranks
        graphs = loop.capture and capture.available(self.device) and not user_code  # a graph would repeat its draws
        # Not a method: in a cycle, graphs would be freed by garbage collection only, which no full GPU starts.
        whole = functools.partial(compute, model, objective, precision=loop.precision)
        self.captured = capture.Captured(model, whole, say, loop) if graphs else None
        if user_code and loop.capture is True:
            say("train.capture: not captured as CUDA graphs, which would repeat the draws of components of your own")

    def begin(self, step: int) -> None:
        """Start a step: the following calls, and the random numbers of user components, belong to it."""
        self.step, self.calls = step, 0
        self.seed_torch()

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the gradient of the training objective on a batch.  Raises TooLarge."""
        for parameter in self.parameters:
            parameter.grad = None
        rekey(self.model, self.seed, self.step)
        self.seed_torch()
        kept = [buffer.clone() for buffer in self.model.buffers()] if self.calls else []
        losses, parts = self.of_graph(batch) or self.by_parts(batch)
        if parts > 1:  # what the step draws itself does not depend on which parts were computed here
            self.seed_torch(len(batch.targets))
        for buffer, before in zip(self.model.buffers() if kept else (), kept, strict=True):
            buffer.copy_(before)
        self.calls += 1
        if parts > self.parts:
            self.parts = parts
            alike = "whose gradients add up to the same"
            alike += ", but for losses of components, taken of each part" * has_auxiliary(self.model)
            change = f"from step {self.step} on batches of {len(batch.targets)} are taken in {parts} parts"
            if self.ranks.rank == 0:
                self.say(f"out of memory: {change}, {alike}")
        return losses

    def of_graph(self, batch: Batch) -> tuple[dict[str, Tensor], int] | None:
        """The losses of a batch that a CUDA graph computes, in one part; None if none does, or for want of memory."""
        if self.captured is None or self.parts > 1:
            return None
        try:
            return self.captured(batch.inputs, batch.targets, count_scored(batch)), 1
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        self.captured = None
        self.model.zero_grad(set_to_none=True)
        make_room(self.device)
        return None

    def by_parts(self, batch: Batch) -> tuple[dict[str, Tensor], int]:
        """The losses of a batch, and the number of parts used: `parts`, doubled when a rank is out of memory, starting
        over each time.  Raises TooLarge."""
        parts, scored = self.parts, count_scored(batch)
        while True:
            message, losses = "", dict[str, Tensor]()
            try:
                losses = self.of_rows(batch, scored, *self.ranks.rows(len(batch.targets)), parts // self.ranks.count)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                message = first_line(error) or "out of memory"
            parameters = self.parameters if self.ranks.count > 1 else []
            full, *used = self.ranks.most([bool(message), *(p.grad is not None for p in parameters)])
            if not full:
                for parameter in (p for p, is_used in zip(parameters, used, strict=True) if is_used and p.grad is None):
                    parameter.grad = torch.zeros_like(parameter)  # what another rank's rows alone depend on
                self.ranks.add([p.grad for p in parameters if p.grad is not None] + [*losses.values()])
                return losses, parts
            self.model.zero_grad(set_to_none=True)
            make_room(self.device)
            refuse_to_split(self.model, len(batch.targets), parts, message or "on another device")
            parts *= 2

    def of_rows(self, batch: Batch, scored: int, start: int, stop: int, parts: int) -> dict[str, Tensor]:
        """Backpropagate the share of some rows, taken in parts, in the mean loss over all targets of a batch.  Returns
        their cross-entropy as `loss`; if there are other terms, also these by name and their sum as `objective`.

        Gradients and losses are summed in a binary tree: those of a half of the rows are those of its two halves
        together.  The order of summation then depends on the number of parts only, and log₂ of it gradients are in
        memory, at least one.
        """
        if parts == 1 or stop - start == 1:
            share, rows = (stop - start) / len(batch.targets), slice(start, stop)
            if share < 1:
                begin_at(self.model, start)
                self.seed_torch(start)
            inputs = {name: to_device(tensor[rows], self.device) for name, tensor in batch.inputs.items()}
            targets = to_device(batch.targets[rows], self.device)
            return compute(self.model, self.objective, inputs, targets, scored, self.precision, share)
        middle = (start + stop + 1) // 2
        losses = self.of_rows(batch, scored, start, middle, parts // 2)
        first = [] if parts == 2 else [p.grad for p in self.parameters]  # autograd adds the second of two itself
        if first:
            self.model.zero_grad(set_to_none=True)
        others = self.of_rows(batch, scored, middle, stop, parts // 2)
        for parameter, gradient in zip(self.parameters, first, strict=False):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)
        return {name: loss + others[name] for name, loss in losses.items()}

    def state_dict(self) -> dict[str, int]:
        """The state to save in a checkpoint."""
        return {"parts": self.parts}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore from a checkpoint."""
        self.parts = state["parts"]

    def seed_torch(self, row: int = 0) -> None:
        """Seed torch's global generators for the part of the step's batch that starts at a row, if user components may
        draw from them."""
        if self.user_code:
            seed_torch(self.seed, self.step, self.device, row)


def compute(
    model: nn.Module,
    objective: Objective,
    inputs: Mapping[str, Tensor],
    targets: Tensor,
    scored: int,
    precision: str,
    share: float = 1.0,
) -> dict[str, Tensor]:
    """Add the gradients of rows of a batch, which are a share of them; returns their losses."""
    given = model, inputs, targets, precision, share == 1
    if targets.is_cuda and model._compiled_call_impl is not None and objective.is_plain:
        with whole_logits(model):
            loss, logits = compiled_loss()(*given)
    else:
        loss, logits = loss_of(*given)
    loss = loss if share == 1 else loss / scored  # not in compiled code, which would be made anew for each number
    terms = terms_of(model, objective, logits, targets, inputs, scored, share)
    whole = sum(terms.values(), loss)
    whole.backward()
    found = {"loss": loss} | (terms | {"objective": whole} if terms else {})
    return {name: value.detach() for name, value in found.items()}


def count_scored(batch: Batch) -> int:
    """The number of scored targets."""
    return int((batch.targets != IGNORE).sum())


def loss_of(
    model: nn.Module, inputs: Mapping[str, Tensor], targets: Tensor, precision: str, is_whole: bool
) -> tuple[Tensor, Tensor]:
    """Mean −log p of the targets of a whole batch, for a part of it their sum, and the logits."""
    with autocast(targets.device, precision):
        logits = model(**inputs)
    logits = logits.float()
    reduction = "mean" if is_whole else "sum"
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction), logits


@functools.cache
def compiled_loss() -> Callable[..., tuple[Tensor, None]]:
    """The loss of `loss_of`, compiled together with the model: logits in bf16 are read as such, without a copy in
    float32, nor are probabilities kept.  At a vocabulary of 50,257 that copy and its gradient take a quarter of a step
    of GPT-2.  Inductor's options are its defaults: those in `compiling` were chosen on CPUs."""
    return torch.compile(lambda *given: (loss_of(*given)[0], None), dynamic=False)


def refuse_to_split(model: nn.Module, rows: int, parts: int, message: str) -> None:
    """Raise TooLarge if a batch cannot be split into more parts."""
    if norms := running_norms(model):
        kind = type(norms[0]).__name__
        why = f"{kind} normalises by the whole batch, so that parts would be another model; write a smaller"
        raise TooLarge(f"out of memory with train.batch_size={rows}: {why} train.batch_size ({message})")
    if -(-rows // parts) == 1:
        raise TooLarge(f"out of memory with one example at a time; write a smaller model or data.context ({message})")
