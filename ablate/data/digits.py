"""`data=digits`: scikit-learn's handwritten digits, 8 by 8 pixels, as a sequence of patches."""

import hashlib
import math

import numpy as np
import torch

from ablate.config.extra import extra
from ablate.data.task import Batch, HeldOut, Task, generator, places_of_passes

SIDE = 8  # pixels
CLASSES = 10
VAL = 0.7  # shares of a class at which the images of a split begin
TEST = 0.85


class Digits(Task):
    """Classify images of digits from their patches in reading order (Dosovitskiy 2020, arXiv 2010.11929).

    Images are split at random within each class; the writers are unknown, so a writer may occur in several splits.
    Variants are compared by loss: accuracy changes in steps of one test image, about 0.4 %, and is close to 1.
    """

    kinds = ("classification",)
    kind = "classification"
    metrics = {"loss": "min", "accuracy": "max"}  # noqa: RUF012 (never written to)
    name = "digits"
    token = "class"
    vocab = 0
    outputs = CLASSES

    def __init__(self, context: int, patch: int):
        if patch < 1 or SIDE % patch:
            raise ValueError(f"data.patch={patch} must divide the pictures' {SIDE} pixels: 1, 2, 4 or 8")
        digits = extra("sklearn.datasets", "data=digits").load_digits()
        self.rows = split_by_class(digits.target)
        self.labels = torch.from_numpy(digits.target.astype(np.int64))  # (N,)
        patches = patches_of(digits.images, patch)
        trained = patches[self.rows["train"]]
        self.patches = torch.from_numpy(((patches - trained.mean()) / trained.std()).astype(np.float32))
        self.length = self.patches.shape[1]
        self.context = self.length
        self.positions = self.length
        self.features = self.patches.shape[2]
        if self.context > context:
            raise ValueError(f"data.patch={patch} needs data.context of at least {self.context}, not {context}")
        self.title = f"digits in {self.context} patches"
        self.train_tokens = len(self.rows["train"]) * self.context
        self.yardsticks = {"chance": math.log(CLASSES)}
        content = f"digits 1 {patch}".encode() + digits.images.tobytes() + self.labels.numpy().tobytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:32]

    def batch(self, seed: int, step: int, size: int) -> Batch:
        """The next images of endless passes over the data, each in an order drawn from (seed, pass)."""
        train = self.rows["train"]
        chosen = train[places_of_passes(("pass", seed), len(train), step * size, size)]
        return Batch({"tokens": self.patches[chosen]}, self.labels[chosen])

    def held_out(self, split: str, tokens: int, length: int | None = None) -> HeldOut:
        """The first images of the split in its random order, with about `tokens` patches in total."""
        if length not in (None, self.length):
            raise ValueError(f"digits have {self.length} patches each and no other length, not {length}")
        rows = self.rows[split][: max(1, tokens // self.positions)]
        labels = self.labels[rows]
        names = [str(digit) for digit in range(CLASSES)]
        return HeldOut({"tokens": self.patches[rows]}, labels, labels.numpy(), names)


def patches_of(images: np.ndarray, side: int) -> np.ndarray:
    """Patches and their pixels in reading order: (N, 8, 8) -> (N, T, side · side)."""
    across = SIDE // side
    patches = images.reshape(-1, across, side, across, side).swapaxes(2, 3)
    return patches.reshape(-1, across * across, side * side)


def split_by_class(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Indices of each split in random order, with the same shares of every class."""
    parts: dict[str, list[np.ndarray]] = {"train": [], "val": [], "test": []}
    for label in np.unique(labels):
        members = generator("digits", label).permutation(np.flatnonzero(labels == label))
        borders = [round(VAL * len(members)), round(TEST * len(members))]
        for split, part in zip(parts, np.split(members, borders), strict=True):
            parts[split].append(part)
    return {split: generator("digits", split).permutation(np.concatenate(members)) for split, members in parts.items()}
