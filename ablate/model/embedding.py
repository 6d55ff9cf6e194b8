"""Token embeddings: ids (B, T) -> vectors (B, T, C)."""

from collections.abc import Sequence

import numpy as np
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


class Pretrained(Embedding):
    """Row i starts as the vector of id i, trained only on the training split; a `frozen` embedding is not trained.

    Subclasses define `vectors`.  All rows are scaled by one factor to the mean square of the values that `init` draws,
    so that they differ from embedding=learned in their directions, not in their mean length.  Ids without a vector keep
    their drawn values.  The vectors are part of the initial draws: they use the same seed.  With `shared` all seeds use
    the same vectors, whose noise is not measured.
    """

    late: tuple[str, ...] = ("shared",)  # settings that affect only the vectors

    def __init__(self, vocab: int, dim: int, width: int | None, frozen: bool, shared: bool):
        super().__init__(vocab, dim, width, frozen)
        self.shared = shared
        self.weight.trained_before = True

    @property
    def note(self) -> str:
        """The note shown in tables."""
        if self.shared:
            return "one set of vectors, trained on the training split, for all seeds: intervals do not cover its noise"
        return "vectors trained on the training split anew for each seed"

    def vectors(self, documents: Sequence[np.ndarray], seed: int) -> np.ndarray:
        """Float32 vectors (vocab, width), trained from a seed on the training documents' ids, (N,) each.  Rows of ids
        without a vector are NaN."""
        raise NotImplementedError

    def expected_seconds(self, documents: Sequence[np.ndarray]) -> float | None:
        """Approximate CPU seconds of `vectors`, from a trial on a part; None if unknown."""
        return None

    @torch.no_grad()
    def begin_with(self, vectors: np.ndarray) -> None:
        """Replace drawn rows by vectors (vocab, width), scaled to the same mean square."""
        rows = torch.from_numpy(vectors).to(self.weight.dtype)
        has_vector = rows.isfinite().all(1)
        drawn_size = self.weight.square().mean().sqrt()
        vector_size = rows[has_vector].square().mean().sqrt().clamp(min=1e-12)
        self.weight[has_vector] = rows[has_vector] * (drawn_size / vector_size)


def check_tied(table: nn.Module, vocab: int, width: int) -> None:
    """Raise BadComponent if an embedding cannot be tied to the head: no `weight` (vocab, width), or frozen."""
    name = type(table).__name__
    weight = getattr(table, "weight", None)
    if not isinstance(weight, Tensor) or tuple(weight.shape) != (vocab, width):
        problem = f"{name} has no matrix of {vocab} × {width} called weight"
    elif weight.requires_grad:
        return
    else:
        problem = f"{name} is frozen"
    advice = "write model.tie_embeddings=false, in all configurations, so that their heads are equal"
    raise BadComponent("embedding", f"{problem}, and the head would be the same matrix; {advice}")
