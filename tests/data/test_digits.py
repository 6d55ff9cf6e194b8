"""Handwritten digits: the pictures behind the patches, the splits, and passes over them."""

import numpy as np
import pytest
import torch
from tasks import build, task


@pytest.fixture(scope="module", autouse=True)
def library() -> tuple[np.ndarray, np.ndarray]:
    """Pictures and labels."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    return found.images, found.target


@pytest.mark.parametrize("patch", [2, 8])
def test_patches_are_the_pictures(patch: int, library: tuple[np.ndarray, np.ndarray]) -> None:
    it = build("digits", "classification", patch=patch)
    images, labels = library
    assert (it.context, it.features, it.outputs) == ((8 // patch) ** 2, patch**2, 10)
    found = it.held_out("val", 10**6)
    known = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    pixels = images[it.rows["train"]]  # type: ignore[attr-defined]
    for patches, label in zip(found.inputs["tokens"].numpy(), found.targets.tolist(), strict=True):
        image = patches.reshape(8 // patch, 8 // patch, patch, patch).swapaxes(1, 2).reshape(8, 8)
        image = np.rint(image * pixels.std() + pixels.mean())
        assert known[image.tobytes()] == label


def test_splits_share_no_picture_and_every_digit_alike(library: tuple[np.ndarray, np.ndarray]) -> None:
    rows = task("digits", "classification").rows  # type: ignore[attr-defined]
    everything = np.concatenate(list(rows.values()))
    assert sorted(everything) == list(range(1797))
    for split, share in (("train", 0.7), ("val", 0.15), ("test", 0.15)):
        counts = np.bincount(library[1][rows[split]])
        assert (abs(counts - share * np.bincount(library[1])) <= 1).all()
    assert len(np.unique(library[0].reshape(1797, -1), axis=0)) == 1797  # else copies could be on both sides


def test_a_pass_shows_every_picture_once() -> None:
    it = task("digits", "classification")
    n = len(it.rows["train"])  # type: ignore[attr-defined]
    size = 100  # does not divide a pass: batches go across
    rows = torch.cat([it.batch(2, step, size).inputs["tokens"].flatten(1) for step in range(2 * n // size + 2)])
    first, second = rows[:n], rows[n : 2 * n]
    for one in (first, second):
        assert len(torch.unique(one, dim=0)) == n
    assert not torch.equal(first, second)
    assert not torch.equal(first[:size], it.batch(3, 0, size).inputs["tokens"].flatten(1))


def test_documents_are_the_digits() -> None:
    found = task("digits", "classification").held_out("test", 10**6)
    assert found.names == [str(i) for i in range(10)] and (found.documents == found.targets.numpy()).all()
    some = task("digits", "classification").held_out("test", 16 * 60)
    assert len(some.targets) == 60 and len(set(some.targets.tolist())) == 10


@pytest.mark.parametrize("patch", [0, -2, 3])
def test_patches_that_do_not_fit_are_refused(patch: int) -> None:
    with pytest.raises(ValueError, match=rf"^data\.patch={patch} must divide"):
        build("digits", "classification", patch=patch)
    with pytest.raises(ValueError, match=r"^data\.patch=2 needs data\.context of at least 16, not 15"):
        build("digits", "classification", context=15)
