"""Handwritten digits: the pictures behind the patches, the splits, and passes over them."""

from typing import Any

import numpy as np
import pytest
import torch
from tasks import build, task


@pytest.fixture(scope="module", autouse=True)
def digits() -> Any:
    """Pictures and labels."""
    return pytest.importorskip("sklearn.datasets").load_digits()


@pytest.mark.parametrize("patch", [2, 8])
def test_patches_are_the_pictures(patch, digits):
    built: Any = build("digits", "classification", patch=patch)
    assert (built.context, built.features, built.outputs) == ((8 // patch) ** 2, patch**2, 10)
    labels = {image.tobytes(): label for image, label in zip(digits.images, digits.target, strict=True)}
    pixels = digits.images[built.rows["train"]]
    held_out = built.held_out("val", 10**6)
    for patches, label in zip(held_out.inputs["tokens"].numpy(), held_out.targets.tolist(), strict=True):
        image = patches.reshape(8 // patch, 8 // patch, patch, patch).swapaxes(1, 2).reshape(8, 8)
        image = np.rint(image * pixels.std() + pixels.mean())
        assert labels[image.tobytes()] == label


def test_splits_share_no_picture_and_have_every_digit_as_often(digits):
    rows = task("digits", "classification").rows
    assert sorted(np.concatenate(list(rows.values()))) == list(range(1797))
    for split, share in (("train", 0.7), ("val", 0.15), ("test", 0.15)):
        counts = np.bincount(digits.target[rows[split]])
        assert (abs(counts - share * np.bincount(digits.target)) <= 1).all()
    assert len(np.unique(digits.images.reshape(1797, -1), axis=0)) == 1797  # else copies could be on both sides


def test_a_pass_shows_every_picture_once():
    built: Any = task("digits", "classification")
    n = len(built.rows["train"])
    size = 100  # does not divide a pass: batches go across
    rows = torch.cat([built.batch(2, step, size).inputs["tokens"].flatten(1) for step in range(2 * n // size + 2)])
    assert len(torch.unique(rows[:n], dim=0)) == len(torch.unique(rows[n : 2 * n], dim=0)) == n
    assert not torch.equal(rows[:n], rows[n : 2 * n])
    assert not torch.equal(rows[:size], built.batch(3, 0, size).inputs["tokens"].flatten(1))
