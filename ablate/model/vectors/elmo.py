"""`embedding=elmo`: states of a bidirectional LSTM language model, averaged per word."""

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.ranges import at_least
from ablate.model.embedding import Pretrained
from ablate.model.products import one_thread

CLIP = 1.0  # maximal norm of a gradient
TRIAL_STEPS = 5  # steps of a trial to estimate the time


class ELMo(Pretrained):
    """Rows start as mean states of a bidirectional LSTM language model (Peters 2018, arXiv 1802.05365).

    Row i is the mean of [→h; ←h] over all positions of the training split with id i (Bommasani 2020), where →h has read
    the text up to a position and ←h from the end down to it.  ELMo itself uses the states of each position.  Here ←h
    would show a causal model the tokens that it has to predict, and the LSTM would be an additional part of the model.
    A mean over the training split contains no future tokens of a window, so it works for decoders and encoders, with
    the parameters and FLOPs of embedding=learned.  What is lost is the context of single positions.
    """

    late = ("shared", "steps", "rows", "length", "lr")

    def __init__(
        self,
        vocab: int,
        dim: int,
        width: int | None,
        frozen: bool,
        shared: bool,
        steps: int,
        rows: int,
        length: int,
        lr: float,
    ):
        super().__init__(vocab, dim, width, frozen, shared)
        if (width or dim) % 2:
            raise ValueError(f"the width of an embedding must be even for two halves, not {width or dim}")
        self.steps = at_least("steps", steps, 1)
        self.rows = at_least("rows", rows, 1)
        self.length = at_least("length", length, 2)
        self.lr = at_least("lr", lr, 0)

    @property
    def note(self) -> str:
        """The note shown in tables."""
        return f"{super().note}; a mean of states for each word, not states of each place"

    @one_thread()
    def vectors(self, documents: Sequence[np.ndarray], seed: int, steps: int | None = None) -> np.ndarray:
        """Vectors after `steps` steps of Adam on `rows` windows of `length` ids, at a rate that falls from `lr` to 0.
        Means are over the same number of windows, evenly spaced over the text, or over all of a shorter one; NaN for
        ids that occur in none."""
        steps = self.steps if steps is None else steps
        text = torch.from_numpy(np.concatenate(documents).astype(np.int64))
        vocab, width = self.weight.shape
        length = min(self.length, len(text))
        generator = torch.Generator().manual_seed(seed)
        model = initial_model(vocab, width, generator)
        optimiser = torch.optim.Adam(model.parameters(), self.lr)
        for step in range(steps):
            starts = torch.randint(len(text) - length + 1, (self.rows,), generator=generator)
            optimiser.param_groups[0]["lr"] = self.lr * (1 - step / steps)
            optimiser.zero_grad()
            model.loss(windows(text, starts, length)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimiser.step()
        return mean_states(model, text, length, self.rows, steps)

    def expected_seconds(self, documents: Sequence[np.ndarray]) -> float:
        """Approximate CPU seconds of `vectors`, from a few steps after a first one, which imports what they need."""
        self.vectors(documents, 0, 1)
        steps = min(TRIAL_STEPS, self.steps)
        start = time.process_time()
        self.vectors(documents, 0, steps)
        return (time.process_time() - start) * self.steps / steps


class LanguageModel(nn.Module):
    """Two LSTMs, one per direction, with a shared table and head; their widths add up to an embedding's."""

    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(vocab, width))
        self.forth = nn.LSTM(width, width // 2, batch_first=True)
        self.back = nn.LSTM(width, width // 2, batch_first=True)
        self.head = nn.Linear(width // 2, vocab)

    def states(self, ids: Tensor) -> Tensor:  # (B, T) -> (B, T, C)
        """[→h; ←h] of each position."""
        x = F.embedding(ids, self.table)
        forth = self.forth(x)[0]
        back = self.back(x.flip(1))[0].flip(1)
        return torch.cat([forth, back], -1)

    def loss(self, ids: Tensor) -> Tensor:  # (B, T) -> ()
        """Mean of −log p(next | →h) and −log p(previous | ←h)."""
        forth, back = self.states(ids).chunk(2, -1)
        next_loss = F.cross_entropy(self.head(forth[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        previous_loss = F.cross_entropy(self.head(back[:, 1:]).flatten(0, 1), ids[:, :-1].flatten())
        return (next_loss + previous_loss) / 2


def initial_model(vocab: int, width: int, generator: torch.Generator) -> LanguageModel:
    """A model initialised from U(−1/√n, 1/√n), n the width of a direction, without use of the global generator."""
    with torch.random.fork_rng(devices=[]):
        model = LanguageModel(vocab, width)
    bound = 1 / math.sqrt(width // 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return model


def windows(text: Tensor, starts: Tensor, length: int) -> Tensor:  # (N,), (B,) -> (B, T)
    """Windows of ids at these starts."""
    return text[starts[:, None] + torch.arange(length)]


@torch.no_grad()
def mean_states(model: LanguageModel, text: Tensor, length: int, rows: int, batches: int) -> np.ndarray:
    """The mean state (vocab, C) of each id over windows of a text, NaN for ids in none."""
    vocab, width = model.table.shape
    total = torch.zeros(vocab, width, dtype=torch.float64)
    count = torch.zeros(vocab, dtype=torch.float64)
    for starts in spaced(len(text), length, rows * batches).split(rows):
        ids = windows(text, starts, length)
        total.index_add_(0, ids.flatten(), model.states(ids).flatten(0, 1).double())
        count += torch.bincount(ids.flatten(), minlength=vocab)
    return (total / count[:, None]).float().numpy()


def spaced(size: int, length: int, most: int) -> Tensor:
    """Starts of evenly spaced windows over a text: at most `most`, and no more than needed to cover it."""
    return torch.linspace(0, size - length, min(most, -(-size // length)), dtype=torch.float64).long()
