"""The gradient of a batch; where it does not fit into memory by parts, half as large after every failure."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import first_line
from ablate.config.schema import Train
from ablate.data.task import IGNORE, Batch
from ablate.model.dropout import begin_at, rekey, seed_others
from ablate.model.norm import running_norms
from ablate.model.objective import Objective, has_auxiliary, terms_of
from ablate.training.devices import TooLarge, is_out_of_memory, make_room, moved
from ablate.training.scoring import autocast


class Gradients:
    """`gradients(batch)` of a run: replaces the gradients of the parameters, and returns the losses of the batch.

    All calls within one step have the draws of that step, and running statistics are those of its first call alone.
    `parts` is how many parts a batch is taken in; `report` is called with a sentence where it has to be more.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        loop: Train,
        seed: int,
        foreign: bool,
        report: Callable[[str], None],
    ):
        self.model, self.objective, self.precision = model, objective, loop.precision
        self.device, self.seed, self.foreign, self.report = torch.device(loop.device), seed, foreign, report
        self.parts, self.step, self.calls = 1, 0, 0

    def begin(self, step: int) -> None:
        """The calls that follow, and what parts from outside draw beside them, are those of a step."""
        self.step, self.calls = step, 0
        self.seed_others()

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Leave the gradient of what a batch is trained by in the parameters.  Raises TooLarge."""
        self.model.zero_grad(set_to_none=True)
        rekey(self.model, self.seed, self.step)
        self.seed_others()
        kept = [buffer.clone() for buffer in self.model.buffers()] if self.calls else []
        losses, parts = backward_by_parts(self.model, self.objective, batch, self.parts, self.device, self.precision)
        for buffer, before in zip(self.model.buffers() if kept else (), kept, strict=True):
            buffer.copy_(before)
        self.calls += 1
        if parts > self.parts:
            self.parts = parts
            alike = "whose gradients add up to the same"
            alike += ", but for losses of components, taken of each part" * has_auxiliary(self.model)
            change = f"from step {self.step} on batches of {len(batch.targets)} are taken in {parts} parts"
            self.report(f"out of memory: {change}, {alike}")
        return losses

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint has to hold of it."""
        return {"parts": self.parts}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint."""
        self.parts = state["parts"]

    def seed_others(self) -> None:
        """Set torch's own generators for the step, where parts from outside may draw from them."""
        if self.foreign:
            seed_others(self.seed, self.step, self.device)


def backward_by_parts(
    model: nn.Module, objective: Objective, batch: Batch, parts: int, device: torch.device, precision: str
) -> tuple[dict[str, Tensor], int]:
    """Leave the gradient of what a batch is trained by in the parameters: its losses, and how many parts.

    Starts with `parts` and doubles them when it is out of memory, from the same gradients as before.  Raises TooLarge.
    """
    while True:
        try:
            return backward(model, objective, batch, parts, device, precision), parts
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            message = first_line(error)
        model.zero_grad(set_to_none=True)
        make_room(device)
        refuse_to_split(model, len(batch.targets), parts, message)
        parts *= 2


def backward(
    model: nn.Module, objective: Objective, batch: Batch, parts: int, device: torch.device, precision: str
) -> dict[str, Tensor]:
    """Backward through the mean loss over all targets of a batch, in parts of equal size but for the last.

    Returns the cross-entropy as `loss`; where terms are added to it, these by name, and the sum as `objective`.
    """
    size = -(-len(batch.targets) // parts)
    scored = int((batch.targets != IGNORE).sum())
    losses: list[dict[str, Tensor]] = []
    for start in range(0, len(batch.targets), size):
        if parts > 1:
            begin_at(model, start)
        part = slice(start, start + size)
        inputs = {name: moved(tensor[part], device) for name, tensor in batch.inputs.items()}
        targets = moved(batch.targets[part], device)
        with autocast(device, precision):
            logits = model(**inputs)
        logits = logits.float()
        loss = cross_entropy(logits, targets, scored if parts > 1 else None)
        terms = terms_of(model, objective, logits, targets, inputs, scored, len(targets) / len(batch.targets))
        whole = sum(terms.values(), loss)
        whole.backward()
        found = {"loss": loss} | (terms | {"objective": whole} if terms else {})
        losses.append({name: value.detach() for name, value in found.items()})
    return {name: torch.stack([part[name] for part in losses]).sum() for name in losses[0]}


def cross_entropy(logits: Tensor, targets: Tensor, scored: int | None) -> Tensor:
    """Mean −log p of the targets, or their sum divided by how many are scored in a whole of which these are a part."""
    logits, targets = logits.flatten(0, -2), targets.flatten()
    if scored is None:
        return F.cross_entropy(logits, targets)
    return F.cross_entropy(logits, targets, reduction="sum") / scored


def refuse_to_split(model: nn.Module, rows: int, parts: int, message: str) -> None:
    """Raise TooLarge where a batch of some rows cannot be taken in more parts."""
    if norms := running_norms(model):
        kind = type(norms[0]).__name__
        why = f"{kind} normalises by the whole batch, so that parts would be another model; write a smaller"
        raise TooLarge(f"out of memory with train.batch_size={rows}: {why} train.batch_size ({message})")
    if -(-rows // parts) == 1:
        raise TooLarge(f"out of memory with one example at a time; write a smaller model or data.context ({message})")
