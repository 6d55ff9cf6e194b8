"""`data=mlm`: masked language modelling over any text."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ablate.config.ranges import within
from ablate.data.documents import Files, StandardLibrary
from ablate.data.language import LanguageModelling
from ablate.data.task import IGNORE, Batch, generator, uniform

if TYPE_CHECKING:
    from torch import Tensor

MASKED = 0.8  # share of the chosen tokens that the mask replaces
RANDOM = 0.1  # share that a random token replaces; the others are not changed


class MaskedText(LanguageModelling):
    """Predict `mask_rate` of the tokens from both sides (Devlin 2018, arXiv 1810.04805).

    Of the chosen tokens 80 % are replaced by the mask, 10 % by a random token, and 10 % are not changed.  The mask is
    one id beyond the corpus's vocabulary, and never a target.
    """

    kinds = ("mlm",)
    kind = "mlm"
    verb = "MLM"

    def __init__(
        self,
        path: str | None,
        context: int,
        tokenizer: str,
        vocab_size: int | None,
        mask_rate: float,
        column: str = "text",
        order: str = "random",
        validation: str | None = None,
        test: str | None = None,
    ):
        within("data.mask_rate", mask_rate, 0, 1, "(]")
        source = StandardLibrary() if path is None else Files(path, column, validation, test)
        super().__init__(source, context, tokenizer, vocab_size, order)
        self.mask_rate = mask_rate
        self.mask_token = self.corpus.vocab
        self.vocab = self.corpus.vocab + 1  # the mask is never a target, but one table serves both
        self.outputs = self.vocab
        self.token = f"masked {tokenizer}"
        self.bytes_per_token = {}  # masked tokens do not encode the text: no bits per byte
        content = f"mlm {self.fingerprint} {mask_rate} {MASKED} {RANDOM}"
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:32]

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """Windows as for language modelling, with masked places drawn from (seed, step)."""
        windows = super().batch(seed, step, size).targets
        draws = generator("mask", seed, step).random((3, *windows.shape))
        inputs, targets = self.corrupt(windows, draws, self.context)
        return Batch(inputs, targets)

    def examples(self, split: str, starts: np.ndarray, length: int, scored: int) -> tuple[dict[str, Tensor], Tensor]:
        """See LanguageModelling; the corruption of a place does not depend on the window's length."""
        key = ("mask", self.corpus.fingerprint, split)
        size = len(self.corpus.tokens[split])
        windows = self.windows(split, starts, length)[1]
        draws = np.empty((3, len(starts), length))
        for row in range(3):
            for i, start in enumerate(starts.tolist()):
                draws[row, i] = uniform(key, row * size + start + 1, length)
        return self.corrupt(windows, draws, scored)

    def corrupt(self, windows: Tensor, draws: np.ndarray, scored: int) -> tuple[dict[str, Tensor], Tensor]:
        """Inputs and targets of windows (B, T); draws (3, B, T) decide where to corrupt, how, and with which token.

        The same number of places is chosen among the last `scored` places of each window, so that all have targets;
        earlier places, which are not scored, are chosen independently.
        """
        import torch

        where, how, what = torch.from_numpy(draws)
        number = max(1, round(self.mask_rate * scored))
        rank = where[:, -scored:].argsort(1).argsort(1)
        chosen = where < self.mask_rate
        chosen[:, -scored:] = rank < number
        random_tokens = (what * self.corpus.vocab).long()
        replaced = torch.where(how < MASKED, self.mask_token, random_tokens)
        replaced = torch.where(how < MASKED + RANDOM, replaced, windows)
        targets = torch.where(chosen, windows, IGNORE)
        targets[:, : windows.shape[1] - scored] = IGNORE
        return {"tokens": torch.where(chosen, replaced, windows)}, targets
