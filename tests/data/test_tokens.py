"""Tokens of other programs: in every format, of every width, and refused where they cannot be what is said."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.data import language
from ablate.data.corpus import SPLITS, Corpus
from ablate.data.tokens import Tokens


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, which is hidden and thus no shard."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / ".cache"))


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
    settings = {"held_out": None, "vocab_size": 300, "end": None, "dtype": None, "context": 16}
    return Tokens(str(folder), **settings | more)


def streams(corpus: Corpus) -> dict[str, list[int]]:
    """The ids of each split."""
    return {split: corpus.tokens[split][:].tolist() for split in SPLITS}


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_every_format_gives_the_same_batches(tmp_path: Path, dtype: str) -> None:
    ids = np.random.default_rng(0).integers(0, 300, 6000).astype(dtype)
    tasks = {}
    for kind in ("nanogpt", "llm.c", "olmo", "numpy"):
        folder = tmp_path / kind
        folder.mkdir()
        for name, part in (("train_0", ids[:2000]), ("train_1", ids[2000:5000]), ("val", ids[5000:])):
            write_shard(folder, kind, part, name)
        tasks[kind] = read(folder, end=7)
    first = tasks["nanogpt"]
    assert np.concatenate([first.corpus.tokens[split][:] for split in SPLITS]).tolist() == ids.tolist()
    assert first.train_tokens == 5000
    assert first.corpus.tokens["val"][:][-1] == 7 and set(first.held_out("test", 200).names)
    for task in tasks.values():
        assert streams(task.corpus) == streams(first.corpus) and task.yardsticks == first.yardsticks
        assert task.batch(1, 2, 4).targets.equal(first.batch(1, 2, 4).targets)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32", "uint16", "uint8"])
@pytest.mark.parametrize("asked", [True, False])
def test_the_width_of_raw_ids_is_found(tmp_path: Path, dtype: str, asked: bool) -> None:
    ids = np.random.default_rng(0).integers(0, 256, 4000)
    for name, part in (("train", ids[:3000]), ("val", ids[3000:])):
        write_shard(tmp_path, "nanogpt", part.astype(dtype), name)
    task = read(tmp_path, vocab_size=256, dtype=dtype if asked else None)
    assert task.corpus.tokens["train"][:].tolist() == ids[:3000].tolist()


# The type on disk, the largest id, the vocabulary that is said, the type that is asked for, and the refusal.
MISREAD = {
    "four bytes as two": ("uint32", 300, 50257, "uint16", "every second id is 0"),
    "eight bytes as four": ("int64", 300, 50257, "uint32", "every second id is 0"),
    "large ids of four bytes as two": ("uint32", 200_000, 1 << 16, "uint16", "every second id is below 256"),
    "two bytes as four": ("uint16", 300, 300, "uint32", "beyond data.vocab_size=300"),
    "of another vocabulary": ("uint16", 300, 200, None, "its ids go up to 299 as uint16, beyond data.vocab_size=200"),
    "of a larger vocabulary": ("uint32", 200_000, 100_000, None, "beyond data.vocab_size=100000"),
    "negative": ("int32", -5, 300, "int32", "its ids go down to -5"),
}


@pytest.mark.parametrize("case", MISREAD)
def test_ids_that_cannot_be_are_refused(tmp_path: Path, case: str) -> None:
    dtype, most, vocab, asked, said = MISREAD[case]
    ids = np.random.default_rng(0).integers(min(0, most), max(1, most), 4000)
    ids[:2] = [most, 1] if most < 0 else [most - 1, 1]
    for name in ("train", "val"):
        write_shard(tmp_path, "nanogpt", ids.astype(dtype), name)
    assert said in why(tmp_path, vocab_size=vocab, dtype=asked)


def why(folder: Path, **more: Any) -> str:
    """The line that refuses a folder's shards."""
    with pytest.raises(ValueError) as caught:
        read(folder, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_read_is_a_line(tmp_path: Path) -> None:
    assert "no shard (.bin or .npy)" in why(tmp_path)
    ids = np.arange(300, dtype=np.uint16)
    write_shard(tmp_path, "nanogpt", ids, "latest_retrieval")  # has no word that begins with val or test
    assert "data.held_out=FILE" in why(tmp_path)
    assert "data.held_out=nowhere does not exist" in why(tmp_path, held_out="nowhere")
    write_shard(tmp_path, "nanogpt", ids, "val")
    assert "write int64, uint32, uint16, uint8 or int32, or null" in why(tmp_path, dtype="int8")
    assert "data.end" in why(tmp_path, end=300) and "data.vocab_size" in why(tmp_path, vocab_size=0)
    assert "ends no document" in why(tmp_path, end=299)
    write_shard(tmp_path, "llm.c", ids.astype(np.uint32), "train_2")
    assert "shards of uint16 and uint32" in why(tmp_path)
    assert "holds uint32; leave it null" in why(tmp_path, dtype="uint16")


@pytest.mark.parametrize("content", ["less by an id", b"\1\2\3", b""])
def test_a_shard_that_is_cut_short_is_named(tmp_path: Path, content: bytes | str) -> None:
    for name in ("train_2", "val"):
        write_shard(tmp_path, "llm.c" if content == "less by an id" else "nanogpt", np.arange(300, dtype="u2"), name)
    file = tmp_path / "train_2.bin"
    file.write_bytes(file.read_bytes()[:-2] if isinstance(content, str) else content)
    assert "train_2.bin is empty or cut short" in why(tmp_path)


def test_an_array_of_numpy_that_is_no_row_of_ids_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path, "numpy", np.arange(300, dtype=np.uint16), "val")
    np.save(tmp_path / "train.npy", np.zeros((2, 3)))
    assert "float64 (2, 3)" in why(tmp_path)
    (tmp_path / "train.npy").write_bytes((tmp_path / "train.npy").read_bytes()[:-3])
    assert "train.npy is cut short" in why(tmp_path)


def test_a_held_out_shard_is_not_trained_on_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, size in (("a", 1000), ("b", 300)):
        write_shard(folder, "nanogpt", np.arange(size, dtype=np.uint16), name)
    (folder / "link.bin").symlink_to(folder / "b.bin")
    for held_out in ("b.bin", str(folder / "b.bin"), "link.bin"):
        task = read(Path("."), held_out=held_out, vocab_size=1000)
        assert task.train_tokens == 1000, held_out
    assert len(task.training_text()[0]) == 1000


def test_vectors_are_trained_on_the_beginning_of_a_large_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "val"):
        write_shard(tmp_path, "nanogpt", np.arange(1000, dtype=np.uint16), name)
    task = read(tmp_path, vocab_size=1000)
    monkeypatch.setattr(language, "TEXT", 300)
    assert [len(text) for text in task.training_text()] == [300]


def test_only_sizes_and_times_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.random.default_rng(0).integers(0, 300, 4000).astype(np.uint16)
    for name in ("train", "val"):
        write_shard(tmp_path, "nanogpt", ids, name)
    first = read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("ablate.data.tokens.read_shard", None)
        assert read(tmp_path).fingerprint == first.fingerprint
    write_shard(tmp_path, "nanogpt", ids[::-1].copy(), "train")
    os.utime(tmp_path / "train.bin", (1, 1))
    assert read(tmp_path).fingerprint != first.fingerprint


@pytest.mark.slow
def test_the_model_of_gpt2_is_planned_on_shards_of_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / ".cache"))
    for i, (name, size) in enumerate((("train_0", 3_000_000), ("train_1", 1_000_000), ("val", 100_000))):
        ids = np.random.default_rng(i).integers(0, 50257, size).astype(np.uint16)
        ids[::1000] = 50256
        write_shard(tmp_path, "llm.c", ids, name)
    words = ["data=tokens", f"data.path={tmp_path}", "data.vocab_size=50257", "data.end=50256", "scale=gpt2"]
    words += ["norm=ln,rms", "train.device=cuda", "train.memory=h100", "track=none", "dry_run=true"]
    command = [sys.executable, "-m", "ablate", "-m", *words]
    shown = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    assert "123,6" in shown and " of 80 GB (h100)" in shown
    steps, tokens, passes = re.search(r"([\d,]+) steps of ([\d,]+) tokens \(([\d.]+) epochs", shown).groups()  # type: ignore[union-attr]
    assert float(passes) == pytest.approx(
        float(f"{steps}e0".replace(",", "")) * int(tokens.replace(",", "")) / 4e6, rel=0.1
    )
