"""The gradient of a batch, accumulated over parts: `train.parts`, more when out of memory, shared by several ranks."""

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
from ablate.model.products import padded_logits
from ablate.training import capture
from ablate.training.devices import TooLarge, is_out_of_memory, make_room, to_device
from ablate.training.evaluation import autocast
from ablate.training.ranks import ALONE, Ranks

Losses = dict[str, Tensor]


class Gradients:
    """`gradients(batch)` replaces the gradients of the parameters and returns the losses of the batch by name.

    All calls within one step draw the same random numbers; only the first updates running statistics.  `warn` is called
    with a sentence when the number of parts grows.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: Train,
        seed: int,
        user_code: bool,
        warn: Callable[[str], None],
        ranks: Ranks = ALONE,
    ):
        self.model = model
        self.parameters = list(model.parameters())
        self.objective = objective
        self.precision = config.precision
        self.device = torch.device(config.device)
        self.seed = seed
        self.user_code = user_code
        self.warn = warn
        self.ranks = ranks
        self.parts = config.parts
        self.step = 0
        self.calls = 0  # within the step
        self.graphs: capture.CapturedPasses | None = None
        if config.capture and capture.available(self.device) and not user_code:  # a graph would repeat its draws
            # Not a method: in a cycle, graphs would be freed by garbage collection only, which no full GPU starts.
            whole_batch = functools.partial(backward, model, objective, precision=config.precision)
            self.graphs = capture.CapturedPasses(model, whole_batch, warn, config)
        if config.capture is True and user_code:
            warn("train.capture: not captured as CUDA graphs, which would repeat the draws of components of your own")

    def begin_step(self, step: int) -> None:
        """Start a step: the following calls, and the random numbers of user components, belong to it."""
        self.step = step
        self.calls = 0
        self.seed_user_code()

    def __call__(self, batch: Batch) -> Losses:
        """Compute the gradient of the training objective on a batch.  Raises TooLarge."""
        for parameter in self.parameters:
            parameter.grad = None
        rekey(self.model, self.seed, self.step)
        self.seed_user_code()
        buffers: list[Tensor] = []
        if self.calls > 0:
            buffers = [buffer.clone() for buffer in self.model.buffers()]
        losses = self.by_graph(batch) or self.by_parts(batch)
        if self.parts > 1:  # what the step draws itself must not depend on which parts were computed here
            self.seed_user_code(len(batch.targets))
        if self.calls > 0:
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        self.calls += 1
        return losses

    def by_graph(self, batch: Batch) -> Losses | None:
        """The losses of a batch computed by a CUDA graph; None if there is none, or not enough memory for it."""
        if self.graphs is None or self.parts > 1:
            return None
        try:
            return self.graphs(batch.inputs, batch.targets, count_scored(batch))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        self.graphs = None
        self.free_memory()
        return None

    def by_parts(self, batch: Batch) -> Losses:
        """The losses of a batch in `parts` parts, twice as many whenever a rank is out of memory.  Raises TooLarge."""
        rows = len(batch.targets)
        parts_before = self.parts
        while True:
            losses: Losses = {}
            message = ""
            try:
                losses = self.accumulate(batch)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                message = first_line(error) or "out of memory"
            if not self.ranks.any([message != ""])[0]:
                break
            self.free_memory()  # not in the except block, where the error keeps its tensors alive
            refuse_to_split(self.model, rows, self.parts, message or "on another device")
            self.parts *= 2
        if self.ranks.count > 1:
            self.add_up(losses)
        if self.parts > parts_before and self.ranks.rank == 0:
            message = f"out of memory: from step {self.step} on batches of {rows} are computed in {self.parts} parts"
            if has_auxiliary(self.model):
                message += "; losses of components are those of each part"
            self.warn(message)
        return losses

    def accumulate(self, batch: Batch) -> Losses:
        """Add up the gradients and losses of this rank's parts of a batch, one part after another."""
        rows = len(batch.targets)
        if rows < self.ranks.count:
            raise ValueError(f"a batch of {rows} cannot be shared by train.devices={self.ranks.count}")
        scored = count_scored(batch)
        parts_of_rank = self.parts // self.ranks.count
        first = self.ranks.rank * parts_of_rank
        totals: Losses = {}
        for part in range(first, first + parts_of_rank):
            start = -(-part * rows // self.parts)  # rounded up
            stop = -(-(part + 1) * rows // self.parts)
            if start == stop:  # more parts than rows
                continue
            if self.parts > 1:
                begin_at(self.model, start)
                self.seed_user_code(start)
            inputs = {name: to_device(tensor[start:stop], self.device) for name, tensor in batch.inputs.items()}
            targets = to_device(batch.targets[start:stop], self.device)
            share = (stop - start) / rows
            losses = backward(self.model, self.objective, inputs, targets, scored, self.precision, share)
            for name, loss in losses.items():
                totals[name] = totals[name] + loss if name in totals else loss
        return totals

    def add_up(self, losses: Losses) -> None:
        """Add up gradients and losses over the ranks.  A parameter that only some ranks used has a gradient on all."""
        has_gradient = self.ranks.any([parameter.grad is not None for parameter in self.parameters])
        used = [parameter for parameter, is_used in zip(self.parameters, has_gradient, strict=True) if is_used]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in used if parameter.grad is not None]
        self.ranks.add(gradients + list(losses.values()))

    def seed_user_code(self, row: int = 0) -> None:
        """Seed torch's global generators, from which user components may draw, for rows of the batch from `row` on."""
        if self.user_code:
            seed_torch(self.seed, self.step, self.device, row)

    def free_memory(self) -> None:
        self.model.zero_grad(set_to_none=True)
        make_room(self.device)

    def state_dict(self) -> dict[str, int]:
        return {"parts": self.parts}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.parts = state["parts"]


def backward(
    model: nn.Module,
    objective: Objective,
    inputs: Mapping[str, Tensor],
    targets: Tensor,
    scored: int,
    precision: str,
    share: float = 1.0,
) -> Losses:
    """Add the gradients of rows that are a share of a batch with `scored` targets; returns their losses.

    These are the cross-entropy as `loss`, and if there are other terms, those by name and the sum as `objective`.
    """
    arguments = model, inputs, targets, precision, share == 1
    if targets.is_cuda and model._compiled_call_impl is not None and objective.is_plain:
        with padded_logits(model):
            loss, logits = compiled_loss()(*arguments)
    else:
        loss, logits = loss_of(*arguments)
    if share < 1:
        loss = loss / scored  # not in compiled code, which would be made anew for each number
    losses = {"loss": loss}
    terms = terms_of(model, objective, logits, targets, inputs, scored, share)
    total = sum(terms.values(), loss)
    total.backward()
    if terms:
        losses |= terms
        losses["objective"] = total
    return {name: value.detach() for name, value in losses.items()}


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
    return torch.compile(lambda *arguments: (loss_of(*arguments)[0], None), dynamic=False)


def refuse_to_split(model: nn.Module, rows: int, parts: int, message: str) -> None:
    """Raise TooLarge if a batch cannot be split into more parts."""
    norms = running_norms(model)
    if norms:
        reason = f"{type(norms[0]).__name__} normalises by the whole batch, so that parts would be another model"
        raise TooLarge(
            f"out of memory with train.batch_size={rows}: {reason}; write a smaller train.batch_size ({message})"
        )
    if -(-rows // parts) == 1:
        raise TooLarge(f"out of memory with one example at a time; write a smaller model or data.context ({message})")
