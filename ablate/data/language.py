"""`data=stdlib`, `text` and `hf`: language modelling, and the base class of all text tasks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.config.ranges import at_least
from ablate.data.corpus import SPLITS, Corpus
from ablate.data.documents import Files, StandardLibrary
from ablate.data.prepare import corpus_of
from ablate.data.rows import Rows
from ablate.data.task import IGNORE, Batch, HeldOut, Task, generator, places_of_passes
from ablate.formatting import instead

if TYPE_CHECKING:
    from torch import Tensor

ORDERS = ("random", "shuffled")
TEXT = 1 << 24  # tokens that vectors are trained on
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
        self.source = source
        self.order = order
        self.corpus = self.read(source, tokenizer, vocab_size)
        self.name = source.title
        self.token = Path(tokenizer).stem
        self.title = f"{self.token} {self.verb} on {self.name}"
        self.context = context
        self.positions = context
        self.length = context
        self.vocab = self.corpus.vocab
        self.outputs = self.corpus.vocab
        self.fingerprint = self.corpus.fingerprint
        self.yardsticks = self.corpus.yardsticks
        self.bytes_per_token = self.corpus.bytes_per_token
        self.notes = self.corpus.notes
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

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """`size` windows of the train split: `random` at offsets drawn from (seed, step); `shuffled` in an order drawn
        from the seed anew for each pass, so that a pass has each of the windows side by side once."""
        if self.order == "random":
            starts = generator("batch", seed, step).integers(0, self.train_tokens - self.context, size=size)
        else:
            windows = (self.train_tokens - 1) // self.context
            starts = self.context * places_of_passes(("order", seed), windows, step * size, size)
        tokens, targets = self.windows("train", starts, self.context)
        return Batch({"tokens": tokens}, targets)

    def training_text(self) -> list[np.ndarray]:
        """The token ids (N,) of each training document, among the first `TEXT` tokens."""
        train = self.corpus.tokens["train"]
        ends = self.corpus.ends["train"]
        stop = min(len(train), TEXT)
        borders = [0, *ends[ends < stop].tolist(), stop]
        return [train[start:end] for start, end in pairwise(borders)]

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """`tokens // context` windows (fewer if the split is short), evenly spaced over a held-out split.

        Without `length`: windows of the training length, of which every target is scored.  With it: windows of `length`
        whose last context/2 targets are scored; windows of all lengths end at the same places, thus have the same
        scored targets.  The first tokens of a window have little context: if they counted, longer windows would have an
        advantage.  Raises ValueError for a length below half a context or beyond the split's reach.
        """
        starts, scored = self.window_starts(split, tokens, length)
        if length is None:
            length = self.context
        inputs, targets = self.examples(split, starts, length, scored)
        target_positions = starts[:, None] + np.arange(1, length + 1)
        documents = np.searchsorted(self.corpus.ends[split], target_positions, side="right")
        return HeldOut(inputs, targets, documents, self.corpus.names[split])

    def examples(self, split: str, starts: np.ndarray, length: int, scored: int) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs and targets of held-out windows, of which the last `scored` targets count."""
        tokens, targets = self.windows(split, starts, length)
        targets[:, : length - scored] = IGNORE
        return {"tokens": tokens}, targets

    def window_starts(self, split: str, tokens: int, length: int | None) -> tuple[np.ndarray, int]:
        """The starts of held-out windows, and the number of scored targets at the end of each."""
        context = self.context
        last = len(self.corpus.tokens[split]) - 1
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
        import torch  # imported here because fingerprints are computed without torch

        tokens = self.corpus.tokens[split]
        ids = np.stack([tokens[start : start + length + 1] for start in starts.tolist()])
        window = torch.from_numpy(ids.astype(np.int64))
        # Contiguous for any batch size, as a compiled model expects.
        return window[:, :-1].contiguous(), window[:, 1:].clone()


class Stdlib(LanguageModelling):
    """The standard library of the running Python, without tests, generated files and code pages."""

    def __init__(self, context: int, tokenizer: str, vocab_size: int | None = None, order: str = "random"):
        super().__init__(StandardLibrary(), context, tokenizer, vocab_size, order)


class Text(LanguageModelling):
    """The documents of a file, of all files in a folder, or of those that match a glob pattern; with files for
    `validation` and `test`, these are held out as they are."""

    def __init__(
        self,
        path: str,
        context: int,
        tokenizer: str,
        vocab_size: int | None = None,
        column: str = "text",
        order: str = "random",
        validation: str | None = None,
        test: str | None = None,
    ):
        super().__init__(Files(path, column, validation, test), context, tokenizer, vocab_size, order)


class HuggingFace(LanguageModelling):
    """The rows of one split of a dataset as documents, which are split again into train, validation and test; or
    its splits for `validation` and `test`, as they are."""

    def __init__(
        self,
        name: str,
        config: str | None,
        split: str,
        column: str,
        context: int,
        tokenizer: str,
        vocab_size: int | None = None,
        order: str = "random",
        validation: str | None = None,
        test: str | None = None,
    ):
        source = Rows(name, config, split, column, validation, test)
        super().__init__(source, context, tokenizer, vocab_size, order)
