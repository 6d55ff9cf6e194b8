"""What turns ids into vectors: (B, T) -> (B, T, C)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.errors import BadComponent


class Embedding(nn.Module):
    """Row i of a table for id i (Bengio 2003), drawn as `init` says; a `frozen` one stays as it is drawn.

    `width` features where it is given, which a matrix of the stack, and of a tied head, leads to `dim` and back
    (ALBERT, Lan 2019, arXiv 1909.11942), else `dim`.
    """

    def __init__(self, vocab: int, dim: int, width: int | None, frozen: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab, width or dim), requires_grad=not frozen)
        self.weight.role = "embedding"

    def forward(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, C)
        """The rows of these ids."""
        return F.embedding(ids, self.weight)


def check_tied(table: nn.Module, vocab: int, width: int) -> None:
    """Raise BadComponent for an embedding that cannot be the head: without a `weight` (vocab, width), or frozen."""
    name, weight = type(table).__name__, getattr(table, "weight", None)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (vocab, width):
        problem = f"{name} has no matrix of {vocab} × {width} called weight"
    elif weight.requires_grad:
        return
    else:
        problem = f"{name} is frozen"
    advice = "write model.tie_embeddings=false, in all cells, so that their heads are equal"
    raise BadComponent("embedding", f"{problem}, and the head would be the same matrix; {advice}")
