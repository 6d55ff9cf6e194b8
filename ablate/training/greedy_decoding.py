"""Greedy decoding: from a source to the tokens that a model itself continues with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ablate.data.task import IGNORE, HeldOut
from ablate.training.scoring import autocast, evaluation_mode, in_chunks


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
    for t in range(last_scored(scored) + 1):
        # At full length each time: products of other shapes round otherwise, and the induction would hold but for that.
        predicted[:, t] = model(**inputs | {"tokens": tokens})[:, t].argmax(-1)
        if t + 1 < tokens.shape[1]:
            tokens[:, t + 1] = torch.where(scored[:, t], predicted[:, t], tokens[:, t + 1])
    return predicted


def last_scored(scored: Tensor) -> int:
    """The last position that any example is scored at; −1 without any."""
    places = scored.any(0).nonzero()
    return int(places.max()) if len(places) else -1


def decoded(model: nn.Module, held_out: HeldOut, device: torch.device, precision: str) -> np.ndarray:
    """Where greedy decoding of held-out sources hits the targets, (examples, T); the model is left as it was."""

    def of_chunk(inputs: dict[str, Tensor], targets: Tensor) -> np.ndarray:
        return (greedy(model, inputs, targets) == targets).cpu().numpy()

    with evaluation_mode(model), autocast(device, precision):
        return np.concatenate(in_chunks(held_out, device, of_chunk))
