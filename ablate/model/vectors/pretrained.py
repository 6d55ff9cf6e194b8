"""Base class of embeddings that start from vectors trained on the training split before the model."""

from collections.abc import Sequence

import numpy as np
import torch

from ablate.model.embedding import Embedding


class Pretrained(Embedding):
    """Row i starts as the vector of id i, trained only on the training split; a `frozen` embedding is not trained.

    Subclasses define `vectors`.  All rows are scaled by one factor to the mean square of the values that `init` draws,
    so that they differ from embedding=learned in their directions, not in their mean length.  Ids without a vector keep
    their drawn values.  The vectors are part of the initial draws: they use the same seed, and placebos that redraw the
    embedding train them anew.  With `shared` all seeds and placebos use the same vectors, whose noise is not measured.
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
            note = "one set of vectors, trained on the training split, for all seeds and placebos"
            return f"{note}: neither intervals nor placebos cover its noise"
        return "vectors trained on the training split anew for each seed, and for its placebos init and embedding"

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
        found = torch.from_numpy(vectors).to(self.weight.dtype)
        known = found.isfinite().all(1)
        size = self.weight.square().mean().sqrt() / found[known].square().mean().sqrt().clamp(min=1e-12)
        self.weight[known] = found[known] * size
