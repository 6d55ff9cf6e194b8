"""Embeddings whose rows begin as vectors that were trained on the training split before the model."""

from collections.abc import Sequence

import numpy as np
import torch

from ablate.model.embedding import Embedding


class Pretrained(Embedding):
    """Row i begins as the vector of id i, trained on the training split alone; a `frozen` one stays so.

    A class that derives from it has `vectors`.  All rows are scaled by one factor to the mean square that `init` draws,
    so that what differs from embedding=learned and random is where rows point, not how long they are on average.  Ids
    that have no vector keep their draws.  The vectors belong to the initial draws: they come from the seed of those,
    and placebos that draw the embedding anew train them anew; with `shared` all seeds and placebos begin with one set,
    whose noise nothing covers.

    late  settings that act on nothing but the vectors
    """

    late: tuple[str, ...] = ("shared",)

    def __init__(self, vocab: int, dim: int, width: int | None, frozen: bool, shared: bool):
        super().__init__(vocab, dim, width, frozen)
        self.shared = shared
        self.weight.trained_before = True

    @property
    def note(self) -> str:
        """What every table says of it."""
        if self.shared:
            note = "one set of vectors, trained on the training split, for all seeds and placebos"
            return f"{note}: neither intervals nor placebos cover its noise"
        return "vectors trained on the training split anew for each seed, and for its placebos init and embedding"

    def vectors(self, documents: Sequence[np.ndarray], seed: int) -> np.ndarray:
        """Vectors (vocab, width) in float32 of the ids of the training split's documents, (N,) each, from a seed.

        NaN in rows of ids that have none.
        """
        raise NotImplementedError

    def expected_seconds(self, documents: Sequence[np.ndarray]) -> float | None:
        """About how many CPU-seconds `vectors` takes, by a trial on a part; None where not known."""
        return None

    @torch.no_grad()
    def begin_with(self, vectors: np.ndarray) -> None:
        """Put vectors (vocab, width) in the place of the rows that were drawn, at the mean square of those."""
        found = torch.from_numpy(vectors).to(self.weight.dtype)
        known = found.isfinite().all(1)
        size = self.weight.square().mean().sqrt() / found[known].square().mean().sqrt().clamp(min=1e-12)
        self.weight[known] = found[known] * size
