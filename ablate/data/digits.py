"""`data=digits`: scikit-learn's handwritten digits, 8 by 8 pixels, as a sequence of patches."""

import hashlib
import math

import numpy as np
import torch

from ablate.config.extra import extra
from ablate.data.task import Batch, HeldOut, Task, generator

SIDE = 8
SHARES = {"train": 0.7, "val": 0.15, "test": 0.15}


class Digits(Task):
    """Classify images of digits from their patches in reading order (Dosovitskiy 2020, arXiv 2010.11929).

    Images are split at random within each class; the writers are unknown, so a writer may occur in several splits.
    Variants are compared by loss: accuracy changes in steps of one test image, about 0.4 %, and is close to 1.
    """

    kinds = ("classification",)
    kind = "classification"
    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012 (never written to)
    name, token, vocab, outputs = "digits", "class", 0, 10

    def __init__(self, context: int, patch: int):
        if patch < 1 or SIDE % patch:
            raise ValueError(f"data.patch={patch} must divide the pictures' {SIDE} pixels: 1, 2, 4 or 8")
        found = extra("sklearn.datasets", "data=digits").load_digits()
        self.places = split_by_class(found.target)
        self.labels = torch.from_numpy(found.target.astype(np.int64))  # (N,)
        across = SIDE // patch  # (N, 8, 8) -> (N, T, patch · patch), patches and their pixels in reading order
        patches = found.images.reshape(-1, across, patch, across, patch).swapaxes(2, 3)
        patches = patches.reshape(-1, across * across, patch * patch)
        seen = patches[self.places["train"]]
        self.patches = torch.from_numpy(((patches - seen.mean()) / seen.std()).astype(np.float32))  # (N, T, features)
        self.context = self.positions = self.length = self.patches.shape[1]
        self.features = self.patches.shape[2]
        if self.context > context:
            raise ValueError(f"data.patch={patch} needs data.context of at least {self.context}, not {context}")
        self.title = f"digits in {self.context} patches"
        self.train_tokens = len(self.places["train"]) * self.context
        self.yardsticks = {"chance": math.log(10)}
        content = f"digits 1 {patch}".encode() + found.images.tobytes() + self.labels.numpy().tobytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:32]

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """The next images of endless passes over the data, each in an order drawn from (seed, pass)."""
        places = self.places["train"]
        at = np.arange(step * size, (step + 1) * size)
        orders = {i: generator("pass", seed, i).permutation(len(places)) for i in np.unique(at // len(places))}
        rows = places[[orders[i // len(places)][i % len(places)] for i in at]]
        return Batch({"tokens": self.patches[rows]}, self.labels[rows])

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """The first images of the split in its random order, with about `tokens` patches in total."""
        if length not in (None, self.length):
            raise ValueError(f"digits have {self.length} patches each and no other length, not {length}")
        rows = self.places[split][: max(1, tokens // self.positions)]
        labels = self.labels[rows]
        return HeldOut({"tokens": self.patches[rows]}, labels, labels.numpy(), [str(digit) for digit in range(10)])


def split_by_class(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Indices of each split in random order, with the same shares of every class."""
    parts: dict[str, list[np.ndarray]] = {split: [] for split in SHARES}
    for label in np.unique(labels):
        members = generator("digits", label).permutation(np.flatnonzero(labels == label))
        first, second = round(SHARES["train"] * len(members)), round((1 - SHARES["test"]) * len(members))
        for split, part in zip(parts, np.split(members, [first, second]), strict=True):
            parts[split].append(part)
    return {split: generator("digits", split).permutation(np.concatenate(part)) for split, part in parts.items()}
