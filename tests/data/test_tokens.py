"""Tokens of other programs: in every format, of every width, and refused where they cannot be what is said."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import refusal, streams

from ablate.data.corpus import SPLITS
from ablate.data.tokens import Tokens

pytestmark = pytest.mark.usefixtures("empty_cache")


def write_shard(folder: Path, kind: str, ids: np.ndarray, name: str) -> None:
    """A shard as nanoGPT, llm.c, OLMo or NumPy writes it."""
    file = folder / f"{name}.{'npy' if kind in ('olmo', 'numpy') else 'bin'}"
    if kind == "llm.c":
        head = np.zeros(256, np.int32)
        head[:3] = (20240520, 1, len(ids)) if ids.dtype == np.uint16 else (20240801, 7, len(ids))
        file.write_bytes(head.tobytes() + ids.tobytes())
    elif kind == "numpy":
        np.save(file, ids)
    else:
        ids.tofile(file)


def read(folder: Path, **more: Any) -> Tokens:
    """The task of a folder's shards."""
    settings = {"held_out": None, "vocab_size": 300, "dtype": None, "context": 16}
    return Tokens(str(folder), **settings | more)


def refused(folder: Path, **more: Any) -> str:
    return refusal(read, folder, **more)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
@pytest.mark.parametrize("kind", ["nanogpt", "llm.c", "olmo", "numpy"])
def test_every_format_gives_the_ids_that_were_written(kind, dtype, tmp_path):
    ids = np.random.default_rng(0).integers(0, 300, 6000).astype(dtype)
    for name, part in (("train_0", ids[:2000]), ("train_1", ids[2000:5000]), ("val", ids[5000:])):
        write_shard(tmp_path, kind, part, name)
    task = read(tmp_path, dtype=dtype)
    assert np.concatenate([task.corpus.tokens[split][:] for split in SPLITS]).tolist() == ids.tolist()
    assert task.train_tokens == 5000
    batch = task.batch(1, 2, 4)
    assert batch.inputs["tokens"][:, 1:].equal(batch.targets[:, :-1])


def test_held_out_tokens_are_halved(tmp_path):
    ids = np.random.default_rng(0).integers(0, 300, 4000).astype(np.uint16)
    write_shard(tmp_path, "nanogpt", ids[:3000], "train")
    write_shard(tmp_path, "nanogpt", ids[3000:], "val")
    tokens = streams(read(tmp_path).corpus)
    assert (tokens["val"], tokens["test"]) == (ids[3000:3500].tolist(), ids[3500:].tolist())


def test_names_say_what_shards_are_for(tmp_path):
    for i, name in enumerate(
        ("latest_retrieval", "my_val", "test_0", "shard-val-1")
    ):  # no word begins with val or test
        write_shard(tmp_path, "nanogpt", np.full(100, i, np.uint16), name)
    assert {split: set(ids) for split, ids in streams(read(tmp_path).corpus).items()} == {
        "train": {0},
        "val": {1, 3},
        "test": {2},
    }


# The type on disk, the type that is asked for, and the vocabulary.
WIDTHS = [(dtype, dtype, 256) for dtype in ("int64", "int32", "uint32", "uint16", "uint8")]
WIDTHS += [("uint16", None, 1 << 16), ("uint32", None, (1 << 16) + 1)]


@pytest.mark.parametrize(("dtype", "asked", "vocab"), WIDTHS)
def test_raw_ids_have_the_width_that_is_asked_for_or_that_of_the_vocabulary(tmp_path, dtype, asked, vocab):
    ids = np.random.default_rng(0).integers(0, vocab, 4000)
    for name, part in (("train", ids[:3000]), ("val", ids[3000:])):
        write_shard(tmp_path, "nanogpt", part.astype(dtype), name)
    task = read(tmp_path, vocab_size=vocab, dtype=asked)
    assert task.corpus.tokens["train"][:].tolist() == ids[:3000].tolist()


# The type on disk, the largest id, the vocabulary that is said, the type that is asked for, and the refusal.
MISREAD = {
    "four bytes as two": ("uint32", 300, 50257, "uint16", "every second id is at most 0"),
    "eight bytes as four": ("int64", 300, 50257, "uint32", "every second id is at most 0"),
    "large ids of four bytes as two": ("uint32", 200_000, 1 << 16, "uint16", "every second id is at most 3"),
    "two bytes as four": ("uint16", 300, 300, "uint32", "beyond data.vocab_size=300"),
    "of another vocabulary": ("uint16", 300, 200, None, "its ids go up to 299 as uint16, beyond data.vocab_size=200"),
    "one byte as two": ("uint8", 200, 200, None, "or data.dtype="),
    "negative": ("int32", -5, 300, "int32", "its ids go down to -5"),
}


@pytest.mark.parametrize("case", MISREAD)
def test_ids_that_cannot_be_are_refused(tmp_path, case):
    dtype, most, vocab, asked, words = MISREAD[case]
    ids = np.random.default_rng(0).integers(min(0, most), max(1, most), 4000)
    ids[:2] = [most, 1] if most < 0 else [most - 1, 1]
    for name in ("train", "val"):
        write_shard(tmp_path, "nanogpt", ids.astype(dtype), name)
    assert words in refused(tmp_path, vocab_size=vocab, dtype=asked)


IDS = np.arange(300, dtype=np.uint16)
RAW = IDS.tobytes()
HEAD = np.array([20240520, 1, 300] + [0] * 253, np.int32).tobytes()
# The content of train.bin, settings, and the refusal.
REFUSED: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "part of an id": (b"\1\2\3", {}, "train.bin is empty or cut short"),
    "less than its header says": (HEAD + RAW[:-2], {}, "train.bin is cut short: its header says 300"),
    "no type": (RAW, {"dtype": "int8"}, "write one of uint16, uint32, uint8, int32, int64, or null"),
    "held-out shards that are not there": (RAW, {"held_out": "nowhere"}, "data.held_out=nowhere does not exist"),
    "arrays of NumPy that are no rows": (b"\x93NUMPY\1\0", {}, "train.bin is cut short or no array of NumPy"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_a_line(tmp_path, case):
    content, settings, words = REFUSED[case]
    (tmp_path / "train.bin").write_bytes(content)
    write_shard(tmp_path, "nanogpt", IDS, "val")
    assert words in refused(tmp_path, **settings)


def test_a_folder_without_shards_of_both_kinds_is_refused(tmp_path):
    assert "has no shard" in refused(tmp_path)
    write_shard(tmp_path, "nanogpt", IDS, "train")
    assert "write data.held_out=FILE" in refused(tmp_path)
    (tmp_path / "train.bin").rename(tmp_path / "val.bin")
    assert "no shard (.bin or .npy) to train on" in refused(tmp_path)


@pytest.mark.parametrize("held_out", ["b.bin", "tokens/../b.bin", "link.bin"])
def test_a_held_out_shard_is_not_trained_on_however_it_is_named(tmp_path, monkeypatch, held_out):
    (tmp_path / "tokens").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, size in (("a", 1000), ("b", 300)):
        write_shard(tmp_path, "nanogpt", np.arange(size, dtype=np.uint16), name)
    (tmp_path / "link.bin").symlink_to(tmp_path / "b.bin")
    assert read(Path("."), held_out=held_out, vocab_size=1000).train_tokens == 1000


def test_only_sizes_and_times_are_read_again(tmp_path, monkeypatch):
    ids = np.random.default_rng(0).integers(0, 300, 4000).astype(np.uint16)
    for name in ("train", "val"):
        write_shard(tmp_path, "nanogpt", ids, name)
    first = read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("ablate.data.tokens.TokenFiles.read_all", None)
        assert read(tmp_path).fingerprint == first.fingerprint
    write_shard(tmp_path, "nanogpt", ids[::-1].copy(), "train")
    os.utime(tmp_path / "train.bin", (1, 1))
    assert read(tmp_path).fingerprint != first.fingerprint
