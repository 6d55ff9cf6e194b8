"""Greedy decoding: from a source to the tokens that a model itself continues with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from ablate.data.task import IGNORE, HeldOut
from ablate.training.scoring import CHUNK, autocast, evaluation_mode, in_chunks


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
    logits = continuing(model, inputs)
    for t in range(last_scored(scored) + 1):
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


def last_scored(scored: Tensor) -> int:
    """The last position that any example is scored at; −1 without any."""
    places = scored.any(0).nonzero()
    return int(places.max()) if len(places) else -1


def decoded(
    model: nn.Module, held_out: HeldOut, device: torch.device, precision: str, chunk: int = CHUNK
) -> np.ndarray:
    """Where greedy decoding of held-out sources hits the targets, (examples, T); the model is left as it was."""

    def of_chunk(inputs: dict[str, Tensor], targets: Tensor) -> np.ndarray:
        return (greedy(model, inputs, targets) == targets).cpu().numpy()

    with evaluation_mode(model), autocast(device, precision):
        return np.concatenate(in_chunks(held_out, device, of_chunk, chunk))
