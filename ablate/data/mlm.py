"""`data=mlm`: masked language modelling over any text."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ablate.config.ranges import within
from ablate.data.documents import Files
from ablate.data.lm import LanguageModelling
from ablate.data.stdlib import stdlib_source
from ablate.data.task import IGNORE, Batch, generator, uniform

if TYPE_CHECKING:
    from torch import Tensor

MASKED, RANDOM = 0.8, 0.1  # shares of the chosen tokens; the others are not changed


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
    ):
        within("data.mask_rate", mask_rate, 0, 1, "(]")
        source = stdlib_source() if path is None else Files(path, column)
        super().__init__(source, context, tokenizer, vocab_size, order)
        self.mask_rate, self.mask_token = mask_rate, self.corpus.vocab
        self.vocab = self.outputs = self.corpus.vocab + 1  # the mask is never a target, but one table serves both
        self.token = f"masked {tokenizer}"  # masked tokens do not encode the text: no bits per byte
        self.bytes_per_token = {}
        content = f"mlm {self.fingerprint} {mask_rate} {MASKED} {RANDOM}"
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:32]
        self.yardsticks = {name: value for name, value in self.yardsticks.items() if name != "bigram"}  # sees one side

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """Windows as for language modelling, with masked places drawn from (seed, step)."""
        windows = super().batch(seed, step, size).targets
        draws = generator("mask", seed, step).random((3, *windows.shape))
        return Batch(*self.corrupt(windows, draws, self.context))

    def examples(self, split: str, starts: np.ndarray, length: int, scored: int) -> tuple[dict[str, Tensor], Tensor]:
        """See LanguageModelling; the corruption of a place does not depend on the window's length."""
        key, size = ("mask", self.corpus.fingerprint, split), len(self.corpus.tokens[split])
        draws = [[uniform(key, row * size + int(start) + 1, length) for start in starts] for row in range(3)]
        return self.corrupt(self.windows(split, starts, length)[1], np.array(draws), scored)

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
        shown = torch.where(how < MASKED, self.mask_token, (what * self.corpus.vocab).long())
        shown = torch.where(how < MASKED + RANDOM, shown, windows)
        targets = torch.where(chosen, windows, IGNORE)
        targets[:, : windows.shape[1] - scored] = IGNORE
        return {"tokens": torch.where(chosen, shown, windows)}, targets
