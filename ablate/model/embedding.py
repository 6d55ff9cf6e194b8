"""Token embeddings: ids (B, T) -> vectors (B, T, C)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import BadComponent


class Embedding(nn.Module):
    """Row i of a table for id i (Bengio 2003), initialised by `init`; a `frozen` table is not trained.

    With `width` rows have that many features, which a matrix of the stack, and one of a tied head, map to `dim` and
    back (ALBERT, Lan 2019, arXiv 1909.11942).
    """

    def __init__(self, vocab: int, dim: int, width: int | None, frozen: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab, width or dim), requires_grad=not frozen)
        self.weight.role = "embedding"

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, C)
        """The rows of these ids."""
        return F.embedding(ids, self.weight)


def check_tied(table: nn.Module, vocab: int, width: int) -> None:
    """Raise BadComponent if an embedding cannot be tied to the head: no `weight` (vocab, width), or frozen."""
    name, weight = type(table).__name__, getattr(table, "weight", None)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (vocab, width):
        problem = f"{name} has no matrix of {vocab} × {width} called weight"
    elif weight.requires_grad:
        return
    else:
        problem = f"{name} is frozen"
    advice = "write model.tie_embeddings=false, in all cells, so that their heads are equal"
    raise BadComponent("embedding", f"{problem}, and the head would be the same matrix; {advice}")
