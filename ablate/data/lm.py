"""Language modelling on a corpus: the base class of all text tasks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.config.ranges import at_least
from ablate.data.corpus import SPLITS, Corpus, current
from ablate.data.prepare import corpus_of
from ablate.data.split import FACTOR
from ablate.data.task import IGNORE, Batch, HeldOut, Task, generator
from ablate.formatting import instead
from ablate.results.atomic import file_digest

if TYPE_CHECKING:
    from torch import Tensor

ORDERS = ("random", "shuffled")
TEXT = 1 << 24  # tokens of a large corpus that vectors are trained on
REACH = 8  # longest held-out windows, in training lengths


class LanguageModelling(Task):
    """Predict the next token at each position."""

    kinds: tuple[str, ...] = ("lm",)
    kind = "lm"
    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012 (never written to)
    verb = "LM"

    def __init__(self, source: Any, context: int, tokenizer: str, vocab_size: int | None = None, order: str = "random"):
        at_least("data.context", context, 1)
        if order not in ORDERS:
            raise ValueError(f"data.order={order} is not a choice; {instead(order, ORDERS)}")
        self.source, self.order = source, order
        self.corpus = self.read(source, tokenizer, vocab_size)
        self.name, self.token = source.title, Path(tokenizer).stem
        self.context = self.positions = self.length = context
        self.title = f"{self.token} {self.verb} on {self.name}"
        self.vocab = self.outputs = self.corpus.vocab
        self.fingerprint = self.corpus.fingerprint
        self.yardsticks = self.corpus.yardsticks
        self.bytes_per_token = self.corpus.bytes_per_token
        self.notes = self.corpus.notes
        if self.corpus.unknown:
            shares = ", ".join(f"{100 * share:.2g} % of {split}" for split, share in self.corpus.unknown.items())
            note = f"words beyond the {self.vocab:,} of the vocabulary are <unk>: {shares}"
            self.notes = [*self.notes, f"{note}; predicting it counts as right"]
        self.train_tokens: int = len(self.corpus.tokens["train"])
        for split in SPLITS:
            size = len(self.corpus.tokens[split])
            if size <= context:
                problem = f"its {split} split has {size} tokens, and data.context={context} needs {context + 1}"
                how = "take a longer text or a smaller data.context"
                raise ValueError(f"{source.words} is too short: {problem}; {how}")

    def read(self, source: Any, tokenizer: str, vocab_size: int | None) -> Corpus:
        """The corpus of a source."""
        return corpus_of(source, tokenizer, vocab_size)

    def verified(self) -> bool:
        """Whether all files of a large corpus are as its index says; reads them all."""
        file_digest.cache_clear()
        made = self.corpus.folder
        return made is None or current(made, self.source.listed(), every=True) is not None

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """`size` windows of the train split: `random` at offsets drawn from (seed, step); `shuffled` in an order drawn
        from the seed anew for each pass, so that a pass has each of the windows side by side once."""
        if self.order == "random":
            starts = generator("batch", seed, step).integers(0, self.train_tokens - self.context, size=size)
        else:
            starts = self.context * shuffled((self.train_tokens - 1) // self.context, seed, step * size, size)
        tokens, targets = self.windows("train", starts, self.context)
        return Batch({"tokens": tokens}, targets)

    def training_text(self) -> list[np.ndarray]:
        """The token ids (N,) of each training document; of a large corpus, the first `TEXT` tokens."""
        train, ends = self.corpus.tokens["train"], self.corpus.ends["train"]
        stop = min(len(train), TEXT) if self.corpus.folder else len(train)
        return [train[start:end] for start, end in pairwise([0, *ends[ends < stop].tolist(), stop])]

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
        inputs, targets = self.examples(split, starts, length, scored)
        owners = np.searchsorted(self.corpus.ends[split], starts[:, None] + np.arange(1, length + 1), side="right")
        return HeldOut(inputs, targets, owners, self.corpus.names[split])

    def examples(self, split: str, starts: np.ndarray, length: int, scored: int) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs and targets of held-out windows, of which the last `scored` targets count."""
        tokens, targets = self.windows(split, starts, length)
        targets[:, : length - scored] = IGNORE
        return {"tokens": tokens}, targets

    def places(self, split: str, tokens: int, length: int | None) -> tuple[np.ndarray, int]:
        """The starts of held-out windows, and the number of scored targets at the end of each."""
        last, context = len(self.corpus.tokens[split]) - 1, self.context
        if length is None:
            count = min(max(1, tokens // context), (last - context) // context + 1)
            return np.linspace(0, last - context, count).astype(int), context
        half = max(1, context // 2)
        reach = max(context, min(REACH * context, last // 2))  # independent of `length`, so that ends are equal
        if not half <= length <= reach:
            least = f"{half} (half of data.context={context})"
            most = f"{reach} tokens ({REACH} times it, and half of the {split} split at most)"
            raise ValueError(f"windows of {self.name} can have {least} to {most}, not {length}")
        count = min(max(1, tokens // context), (last - reach) // half + 1)
        return np.linspace(reach, last, count).astype(int) - length, half

    def windows(self, split: str, starts: np.ndarray, length: int) -> tuple[Tensor, Tensor]:
        """The tokens at `length` positions from each start, and those one position later."""
        at = starts[:, None] + np.arange(length + 1)
        import torch  # imported here because fingerprints are computed without torch

        window = torch.from_numpy(self.corpus.tokens[split][at].astype(np.int64))
        # Contiguous for any batch size, as a compiled model expects.
        return window[:, :-1].contiguous(), window[:, 1:].clone()


def shuffled(count: int, seed: int, first: int, size: int) -> np.ndarray:
    """The places `first`, `first` + 1, … (size,) of a random order of 0 … count − 1, a new one after each `count`.

    A Feistel network of four rounds on the least even number of bits that holds `count`; numbers beyond `count` are
    sent through it again (Black & Rogaway 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask, found = np.uint64((1 << half) - 1), np.empty(size, np.int64)
    passes, places = np.divmod(np.arange(first, first + size), count)
    for epoch in np.unique(passes):
        keys = generator("order", seed, epoch).integers(0, 2**64, size=4, dtype=np.uint64)
        at = places[passes == epoch].astype(np.uint64)
        beyond = np.ones(len(at), bool)
        while beyond.any():
            left, right = at[beyond] >> np.uint64(half), at[beyond] & mask
            for key in keys:
                mixed = (right + key) * FACTOR
                left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(32))) * FACTOR >> np.uint64(64 - half))
            at[beyond] = left << np.uint64(half) | right
            beyond = at >= count
        found[passes == epoch] = at
    return found
