"""Language modelling over a corpus: the contract of a task, and what all text tasks share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ablate.data.corpus import SPLITS, Document, load_corpus


class Batch(NamedTuple):
    """Inputs and the targets to predict from them, both (B, T) of token ids."""

    inputs: Tensor
    targets: Tensor


class HeldOut(NamedTuple):
    """Windows to evaluate on: inputs and targets (N, T), and the document (N, T) that each target belongs to."""

    inputs: Tensor
    targets: Tensor
    documents: np.ndarray
    names: list[str]


class LanguageModelling:
    """Predict each next token.  A batch is a function of (seed, step): nothing is consumed, so resuming is exact."""

    kind = "lm"
    metrics = {"loss": "min"}  # noqa: RUF012 (never written to)

    def __init__(self, name: str, documents: Sequence[Document], context: int, tokenizer: str, source: str = ""):
        if context < 1:
            raise ValueError(f"data.context={context} must be at least 1")
        self.corpus = load_corpus(documents, tokenizer)
        self.name, self.context, self.token = name, context, tokenizer
        self.title = f"{tokenizer} LM on {name}"
        self.vocab, self.fingerprint = self.corpus.vocab, self.corpus.fingerprint
        self.yardsticks = self.corpus.yardsticks
        self.train_tokens = len(self.corpus.tokens["train"])
        for split in SPLITS:
            size = len(self.corpus.tokens[split])
            if size <= context:
                raise ValueError(
                    f"{source or name} is too short: its {split} split has {size} tokens, and data.context={context} "
                    f"needs {context + 1}; take a longer text or a smaller data.context"
                )

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """`size` windows of the train split at offsets drawn from (seed, step)."""
        key = int.from_bytes(hashlib.sha256(f"batch/{seed}/{step}".encode()).digest()[:16], "little")
        stream = np.random.Generator(np.random.Philox(key=key))
        starts = stream.integers(0, self.train_tokens - self.context, size=size)
        return Batch(*self._windows("train", starts))

    def held_out(self, split: str, tokens: int) -> HeldOut:
        """Windows of about `tokens` tokens in all, spaced evenly over all documents of a held-out split."""
        last = len(self.corpus.tokens[split]) - 1 - self.context
        count = min(max(1, tokens // self.context), last // self.context + 1)
        starts = np.linspace(0, last, count).astype(int)
        at = starts[:, None] + np.arange(1, self.context + 1)
        documents = np.searchsorted(self.corpus.ends[split], at, side="right")
        return HeldOut(*self._windows(split, starts), documents, self.corpus.names[split])

    def _windows(self, split: str, starts: np.ndarray) -> tuple[Tensor, Tensor]:
        at = starts[:, None] + np.arange(self.context + 1)
        window = torch.from_numpy(self.corpus.tokens[split][at].astype(np.int64))
        return window[:, :-1], window[:, 1:]
