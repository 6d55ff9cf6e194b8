"""Language modelling on a corpus: the base class of all text tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ablate.config.ranges import at_least
from ablate.data.corpus import SPLITS, Document, load_corpus
from ablate.data.task import IGNORE, Batch, HeldOut, Task, generator

if TYPE_CHECKING:
    from torch import Tensor

REACH = 8  # longest held-out windows, in training lengths


class LanguageModelling(Task):
    """Predict the next token at each position."""

    kinds: tuple[str, ...] = ("lm",)
    kind = "lm"
    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012 (never written to)
    verb = "LM"

    def __init__(
        self,
        name: str,
        documents: Sequence[Document],
        context: int,
        tokenizer: str,
        vocab_size: int | None = None,
        source: str = "",
    ):
        at_least("data.context", context, 1)
        self.corpus = load_corpus(documents, tokenizer, vocab_size)
        self.name, self.token = name, tokenizer
        self.context = self.positions = self.length = context
        self.title = f"{tokenizer} {self.verb} on {name}"
        self.vocab = self.outputs = self.corpus.vocab
        self.fingerprint = self.corpus.fingerprint
        self.yardsticks = self.corpus.yardsticks
        self.bytes_per_token = self.corpus.bytes_per_token
        if self.corpus.unknown:
            shares = ", ".join(f"{100 * share:.2g} % of {split}" for split, share in self.corpus.unknown.items())
            note = f"words beyond the {self.vocab:,} of the vocabulary are <unk>: {shares}"
            self.notes = [f"{note}; predicting it counts as right"]
        self.train_tokens: int = len(self.corpus.tokens["train"])
        for split in SPLITS:
            size = len(self.corpus.tokens[split])
            if size <= context:
                raise ValueError(
                    f"{source or name} is too short: its {split} split has {size} tokens, and data.context={context} "
                    f"needs {context + 1}; take a longer text or a smaller data.context"
                )

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """`size` windows of the train split, at offsets drawn from (seed, step)."""
        starts = generator("batch", seed, step).integers(0, self.train_tokens - self.context, size=size)
        tokens, targets = self.windows("train", starts, self.context)
        return Batch({"tokens": tokens}, targets)

    def training_text(self) -> list[np.ndarray]:
        """The token ids (N,) of each training document."""
        return np.split(self.corpus.tokens["train"], self.corpus.ends["train"][:-1])

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """Windows of about `tokens` tokens in total, evenly spaced over all documents of a held-out split.

        Without a length every target is scored.  With one, even the training length, only the last half context of each
        window is scored, and windows of all lengths end at the same places.  The first tokens of a window are harder to
        predict, since they have little context, and longer windows with fewer first tokens would have an advantage.
        Thus all lengths are scored on the same targets, each with at least half a context before it, or the rest of a
        shorter window.  Raises ValueError for a length below half a context or beyond the split's reach.
        """
        starts, scored = self.places(split, tokens, length)
        length = length or self.context
        inputs, targets = self.windows(split, starts, length)
        targets[:, : length - scored] = IGNORE
        return HeldOut({"tokens": inputs}, targets, self.owners(split, starts, length), self.corpus.names[split])

    def places(self, split: str, tokens: int, length: int | None) -> tuple[np.ndarray, int]:
        """The starts of held-out windows, and the number of scored targets at the end of each."""
        last, context = len(self.corpus.tokens[split]) - 1, self.context
        if length is None:
            count = min(max(1, tokens // context), (last - context) // context + 1)
            return np.linspace(0, last - context, count).astype(int), context
        half = max(1, context // 2)
        reach = max(context, min(REACH * context, last // 2))  # independent of `length`, so that ends are equal
        if not half <= length <= reach:
            raise ValueError(
                f"windows of {self.name} can have {half} (half of data.context={context}) to {reach} tokens "
                f"({REACH} times it, and half of the {split} split at most), not {length}"
            )
        count = min(max(1, tokens // context), (last - reach) // half + 1)
        return np.linspace(reach, last, count).astype(int) - length, half

    def windows(self, split: str, starts: np.ndarray, length: int) -> tuple[Tensor, Tensor]:
        """The tokens at `length` positions from each start, and those one position later."""
        at = starts[:, None] + np.arange(length + 1)
        import torch  # imported here because fingerprints are computed without torch

        window = torch.from_numpy(self.corpus.tokens[split][at].astype(np.int64))
        # Contiguous for any batch size, as a compiled model expects.
        return window[:, :-1].contiguous(), window[:, 1:].clone()

    def owners(self, split: str, starts: np.ndarray, length: int) -> np.ndarray:
        """The index of each target's document."""
        at = starts[:, None] + np.arange(1, length + 1)
        return np.searchsorted(self.corpus.ends[split], at, side="right")
