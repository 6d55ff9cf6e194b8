"""The gradient of a batch that does not fit into memory: by parts, half as large after every failure."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import first_line
from ablate.data.task import IGNORE, Batch
from ablate.model.dropout import begin_at
from ablate.model.norm import running_norms
from ablate.training.devices import moved
from ablate.training.out_of_memory import TooLarge, is_out_of_memory, make_room
from ablate.training.scoring import autocast


def backward_by_parts(
    model: nn.Module, batch: Batch, parts: int, device: torch.device, precision: str
) -> tuple[Tensor, int]:
    """Leave the gradient of a batch's mean loss over all its targets in the parameters: that loss, and how many parts.

    Starts with `parts` and doubles them when it is out of memory, from the same gradients as before.  Raises TooLarge.
    """
    while True:
        try:
            return backward(model, batch, parts, device, precision), parts
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            said = first_line(error)
        model.zero_grad(set_to_none=True)
        make_room(device)
        refuse_to_split(model, len(batch.targets), parts, said)
        parts *= 2


def backward(model: nn.Module, batch: Batch, parts: int, device: torch.device, precision: str) -> Tensor:
    """Backward through the mean loss over all targets of a batch, in parts of equal size but for the last."""
    size = -(-len(batch.targets) // parts)
    scored = int((batch.targets != IGNORE).sum())
    losses = []
    for start in range(0, len(batch.targets), size):
        if parts > 1:
            begin_at(model, start)
        part = slice(start, start + size)
        inputs = {name: moved(tensor[part], device) for name, tensor in batch.inputs.items()}
        targets = moved(batch.targets[part], device).flatten()
        with autocast(device, precision):
            logits = model(**inputs)
        logits = logits.float().flatten(0, -2)
        if parts == 1:
            loss = F.cross_entropy(logits, targets)
        else:
            loss = F.cross_entropy(logits, targets, reduction="sum") / scored
        loss.backward()
        losses.append(loss.detach())
    return losses[0] if parts == 1 else torch.stack(losses).sum()


def refuse_to_split(model: nn.Module, rows: int, parts: int, said: str) -> None:
    """Raise TooLarge where a batch of some rows cannot be taken in more parts."""
    if norms := running_norms(model):
        kind = type(norms[0]).__name__
        why = f"{kind} normalises by the whole batch, so that parts would be another model; write a smaller"
        raise TooLarge(f"out of memory with train.batch_size={rows}: {why} train.batch_size ({said})")
    if -(-rows // parts) == 1:
        raise TooLarge(f"out of memory with one example at a time; write a smaller model or data.context ({said})")
