"""Language modelling over a corpus: what all text tasks share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ablate.data.corpus import SPLITS, Document, load_corpus
from ablate.data.task import Batch, HeldOut, Task, generator


class LanguageModelling(Task):
    """Predict each next token."""

    kinds = ("lm",)
    kind = "lm"
    metrics = {"loss": "min"}  # noqa: RUF012 (never written to)

    def __init__(self, name: str, documents: Sequence[Document], context: int, tokenizer: str, source: str = ""):
        if context < 1:
            raise ValueError(f"data.context={context} must be at least 1")
        self.corpus = load_corpus(documents, tokenizer)
        self.name, self.token = name, tokenizer
        self.context = self.positions = self.length = context
        self.title = f"{tokenizer} LM on {name}"
        self.vocab = self.outputs = self.corpus.vocab
        self.fingerprint = self.corpus.fingerprint
        self.yardsticks = self.corpus.yardsticks
        self.bytes_per_token = dict.fromkeys(SPLITS, 1.0) if tokenizer == "byte" else {}
        self.train_tokens: int = len(self.corpus.tokens["train"])
        for split in SPLITS:
            size = len(self.corpus.tokens[split])
            if size <= context:
                raise ValueError(
                    f"{source or name} is too short: its {split} split has {size} tokens, and data.context={context} "
                    f"needs {context + 1}; take a longer text or a smaller data.context"
                )

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """`size` windows of the train split at offsets drawn from (seed, step)."""
        starts = generator("batch", seed, step).integers(0, self.train_tokens - self.context, size=size)
        tokens, targets = self._windows("train", starts)
        return Batch({"tokens": tokens}, targets)

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """Windows of about `tokens` tokens in all, spaced evenly over all documents of a held-out split."""
        last = len(self.corpus.tokens[split]) - 1 - self.context
        count = min(max(1, tokens // self.context), last // self.context + 1)
        starts = np.linspace(0, last, count).astype(int)
        at = starts[:, None] + np.arange(1, self.context + 1)
        documents = np.searchsorted(self.corpus.ends[split], at, side="right")
        inputs, targets = self._windows(split, starts)
        return HeldOut({"tokens": inputs}, targets, documents, self.corpus.names[split])

    def _windows(self, split: str, starts: np.ndarray) -> tuple[Tensor, Tensor]:
        at = starts[:, None] + np.arange(self.context + 1)
        window = torch.from_numpy(self.corpus.tokens[split][at].astype(np.int64))
        return window[:, :-1], window[:, 1:]
