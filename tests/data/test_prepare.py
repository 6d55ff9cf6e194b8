"""Large corpora: equal in every format, split without leaks, resumed after a kill, read again only if files changed."""

import contextlib
import functools
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import decoded

from ablate.cli.data import main
from ablate.data import corpus, documents, lm, prepare
from ablate.data.corpus import SPLITS, Shards
from ablate.data.documents import Files
from ablate.data.hf import HuggingFace
from ablate.data.lm import shuffled
from ablate.data.split import SHARE, place, shingles
from ablate.data.text import Text
from ablate.data.tokens import Tokens

pyarrow = pytest.importorskip("pyarrow")
WORDS = ["ant", "bee", "crow", "dingo", "élan", "fox", "gnu", "hare", "ibis", "jay", "kite", "lynx"]


def texts(count: int = 400, seed: int = 0) -> list[str]:
    """Documents that share nothing, and a near copy of every tenth."""
    pick = random.Random(seed)
    found = [" ".join(f"{pick.choice(WORDS)}{pick.randrange(900)}" for _ in range(60)) for _ in range(count)]
    return found + [f"{text}\r\nand some more" for text in found[::10]]


def written(folder: Path, kind: str, rows: list[str]) -> Path:
    """The documents as a file, or files, of a format."""
    folder.mkdir()
    lines = "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(rows)).encode()
    if kind == "parquet":
        table = pyarrow.table({"id": range(len(rows)), "text": rows})
        __import__("pyarrow.parquet").parquet.write_table(table, folder / "a.parquet", row_group_size=50)
    elif kind == "jsonl":
        (folder / "a.jsonl").write_bytes(lines)
    elif kind == "jsonl.gz":
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    elif kind == "jsonl.zst":
        with pyarrow.CompressedOutputStream(str(folder / "a.jsonl.zst"), "zstd") as stream:
            stream.write(lines)
    else:
        for i, row in enumerate(rows):
            (folder / f"{i:05}.txt").write_text(row)
    return folder


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache; everything counts as large, pieces are of 8 kB, and nothing is done in other processes."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(prepare, "cores", lambda: 1)
    monkeypatch.setattr(prepare, "LARGE", 0)
    monkeypatch.setattr(documents, "PIECE", 8192)


def split_of(text: str) -> str:
    return place(sha256(text.encode()).digest())


FORMATS = ("text", "jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def streams(corpus: Any) -> dict[str, list[int]]:
    return {split: corpus.tokens[split][:].tolist() for split in SPLITS}


@pytest.mark.parametrize(
    ("tokenizer", "large"), [("byte", True), ("byte", False), ("char", True), ("word", True), ("bpe", True)]
)
def test_one_text_in_every_format_gives_equal_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: str, large: bool
) -> None:
    monkeypatch.setattr(prepare, "LARGE", 0 if large else 10**9)
    rows, found = texts(), {}
    for kind in FORMATS if tokenizer == "byte" else FORMATS[1::3]:
        task = Text(str(written(tmp_path / kind, kind, rows)), 16, tokenizer)
        found[kind] = task
        assert task.yardsticks["unigram"] < task.yardsticks["uniform"]
    first, *others = found.values()
    for other in others:
        assert streams(other.corpus) == streams(first.corpus) and other.yardsticks == pytest.approx(first.yardsticks)
        assert other.batch(3, 7, 8).targets.equal(first.batch(3, 7, 8).targets)
        assert other.held_out("test", 300).targets.equal(first.held_out("test", 300).targets)
    for split in SPLITS if tokenizer != "word" else ():
        shown = decoded(first.corpus, first.corpus.tokens[split][:].tolist()).split("\0")[:-1]
        assert set(shown) <= set(rows) and (not large or {split_of(row) for row in shown} == {split})


@functools.cache
def parts_of(text: str) -> set[int]:
    return set(shingles(text.encode()).tolist())


def near(one: str, other: str) -> bool:
    a, b = parts_of(one), parts_of(other)
    return len(a & b) > SHARE * min(len(a), len(b))


def test_no_training_document_is_a_near_copy_of_a_held_out_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = " ".join(random.Random(1).choices(WORDS, k=90))
    rows = texts(200) + [f"page {i} of the rules: {page}" for i in range(100)]
    monkeypatch.setattr(prepare, "COMMON", 3)  # held-out documents that have the page are more
    task = Text(str(written(tmp_path / "rows", "jsonl", rows)), 16, "byte")
    found = {split: bytes(task.corpus.tokens[split][:]).decode().split("\0")[:-1] for split in SPLITS}
    held = found["val"] + found["test"]
    assert not any(near(a, b) for a in found["train"] for b in held)
    assert not any(near(a, b) for a in found["val"] for b in found["test"])
    assert 3 < sum("of the rules" in text for text in held) < 20
    lost = set(rows) - {text for texts in found.values() for text in texts}
    assert lost and all(any(near(text, other) for other in held) for text in lost)
    dropped = sum(split_of(text) == "train" for text in lost)
    of = f"{dropped} of {len(found['train']) + dropped} training documents are left out"
    assert task.notes == [f"{of}: they share over a fifth of their text with a held-out one"]
    lengths = np.diff([0, *task.corpus.ends["train"]]).tolist()
    assert lengths == [len(text.encode()) + 1 for text in found["train"]]
    assert [bytes(ids).decode() for ids in task.training_text()] == [f"{text}\0" for text in found["train"]]
    names = [int(task.corpus.names["test"][i].rpartition(":")[2]) for i in range(2)]
    line = (tmp_path / "rows" / "a.jsonl").read_bytes()[names[0] :].split(b"\n")[0]
    assert json.loads(line)["text"] == found["test"][0], "a document is named by its place in the file"


def test_a_text_file_is_cut_at_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut into the same documents whatever the pieces, and nothing is lost."""
    monkeypatch.setattr(documents, "PART", 500)
    for name, text in {
        "lines": "one line é of a text\n" * 500,
        "none": "é" * 4000,
        "few": f"{'a' * 1300}\n" * 9,
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
        source, found = Files(str(tmp_path / f"{name}.txt")), []
        for size in (1000, 3000, 10**6):
            monkeypatch.setattr(documents, "PIECE", size)
            pieces = source.pieces()
            assert len(pieces) > 3 or size > 1000
            found.append([document.text for piece in pieces for part in piece for document in source.documents(part)])
            assert b"".join(found[-1]) == text.encode() and found[-1] == found[0] and len(found[0]) > 5
        assert all(
            part.decode().endswith("\n") or name == "none" or max(map(len, found[0])) <= 1000 for part in found[0]
        )


def test_only_what_changed_is_prepared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "rows", "text", [*texts(150), "the same", "the same"])
    first = Text(str(folder), 16, "byte")
    made = first.corpus.folder
    assert made and len(list(made.glob("train-*.bin"))) < 30, "small files share a piece"
    index, file = made / "index.json", folder / "00000.txt"

    def again() -> Text:
        with monkeypatch.context() as patch:
            patch.setattr(prepare, "_make", None)  # cannot be prepared anew
            return Text(str(folder), 16, "byte")

    before = index.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "file_digest", None)  # nothing is read
        assert again().fingerprint == first.fingerprint
    assert index.stat().st_mtime_ns == before
    os.utime(file, (1, 1))
    os.utime(made / "val.bin", (1, 1))
    assert again().fingerprint == first.fingerprint and index.stat().st_mtime_ns > before, "times are written anew"
    assert first.verified()
    data = bytearray((made / "test.bin").read_bytes())
    data[5] ^= 1
    status = (made / "test.bin").stat()
    (made / "test.bin").write_bytes(data)
    os.utime(made / "test.bin", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert again().fingerprint == first.fingerprint and not first.verified(), "damage below the same time and size"
    os.utime(made / "test.bin", (1, 1))
    assert Text(str(folder), 16, "byte").fingerprint == first.fingerprint and first.verified(), "it is made again"
    text = file.read_text()
    file.write_text(text[::-1])
    assert Text(str(folder), 16, "byte").fingerprint != first.fingerprint, "an edit of the same size"
    file.write_text(text)
    (folder / "more.txt").write_text("one more document")
    assert Text(str(folder), 16, "byte").fingerprint != first.fingerprint
    (folder / "more.txt").unlink()
    assert Text(str(folder), 16, "byte").fingerprint == first.fingerprint


def test_an_interrupted_preparation_goes_on_at_the_next_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, calls = written(tmp_path / "rows", "jsonl", texts(150)), list[tuple[str, int]]()
    expected = Text(str(folder), 16, "byte")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "other"))
    for step, act in prepare.STEPS.items():

        def once(making: Path, job: Any, source: Any, i: int, step: str = step, act: Any = act) -> None:
            calls.append((step, i))
            act(making, job, source, i)
            if len(calls) % 3 == 0:
                raise KeyboardInterrupt

        monkeypatch.setitem(prepare.STEPS, step, once)
    for _ in range(20):
        with contextlib.suppress(KeyboardInterrupt):
            found = Text(str(folder), 16, "byte")
    assert streams(found.corpus) == streams(expected.corpus) and found.fingerprint == expected.fingerprint
    assert len(calls) == len(set(calls)) > 12, "each piece once"


def test_a_preparation_killed_late_or_torn_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, calls = written(tmp_path / "rows", "jsonl", texts(150)), list[int]()
    plain, encode = prepare.shutil.rmtree, prepare.STEPS["encode"]

    def step(work: Path, job: Any, source: Any, i: int) -> None:
        calls.append(i)
        encode(work, job, source, i)
        if i == 2 and len(calls) == 3:
            file = work / "encode-1.json"
            file.write_bytes(file.read_bytes()[:20])  # torn
            raise KeyboardInterrupt

    def killed(path: Path, **more: Any) -> None:
        if path.name.startswith("corpus-") and path.suffix != ".making":
            raise KeyboardInterrupt
        plain(path, **more)

    monkeypatch.setitem(prepare.STEPS, "encode", step)
    with monkeypatch.context() as patch:
        patch.setattr(prepare.shutil, "rmtree", killed)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                Text(str(folder), 16, "byte")
    assert calls[3:] == [1, *range(3, max(calls) + 1)]
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_in_workers", None)
        found = Text(str(folder), 16, "byte")
    assert found.verified() and not list((tmp_path / "cache").glob("*/scan-*"))

    def edit(*given: Any) -> None:
        encode(*given)
        (folder / "a.jsonl").write_text('{"text": "another"}\n' * 3)

    (folder / "a.jsonl").write_text((folder / "a.jsonl").read_text() + '{"text": "one more"}\n')
    monkeypatch.setitem(prepare.STEPS, "encode", edit)
    assert "changed while it was prepared" in refused(path=str(folder))


def test_the_first_error_of_a_process_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int | None] = [None, -9]

    class Process:
        def __init__(self, *_: Any, **more: Any):
            self.code, self.stdout = codes.pop(0), io.StringIO()

        def poll(self) -> int | None:
            return self.code

        def wait(self) -> None:
            raise AssertionError("waits for the others")

        def kill(self) -> None:
            self.code = self.code or -15

        def communicate(self) -> None:
            assert self.code

    monkeypatch.setattr(prepare, "cores", lambda: 2)
    monkeypatch.setattr(prepare.subprocess, "Popen", Process)
    assert "killed by signal 9" in refused(path=str(written(tmp_path / "rows", "jsonl", texts(200))))


@pytest.mark.slow
def test_several_processes_killed_go_on_at_the_next_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "rows", "jsonl", texts(1200))
    monkeypatch.setattr(prepare, "cores", lambda: 2)
    expected = Text(str(folder), 16, "byte")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "other"))
    program = "import sys; from ablate.data import prepare, documents; prepare.LARGE, documents.PIECE = 0, 8192; "
    program += "from ablate.data.text import Text; Text(sys.argv[1], 16, 'byte')"
    kills, written_pieces = 0, set[str]()
    while True:
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)], start_new_session=True)
        while process.poll() is None:
            pieces = {file.name for file in (tmp_path / "other").glob("*.making/*-*.json")}
            if pieces - written_pieces and kills < 5:
                os.killpg(process.pid, signal.SIGKILL)
                written_pieces, kills = pieces, kills + 1
            time.sleep(0.005)
        if process.returncode == 0:
            break
    assert kills >= 3
    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_make", None)
        found = Text(str(folder), 16, "byte")
    assert streams(found.corpus) == streams(expected.corpus) and found.fingerprint == expected.fingerprint


def refused(**given: Any) -> str:
    with pytest.raises(ValueError) as caught:
        Text(**{"context": 16, "tokenizer": "byte", **given})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_read_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = texts(60)
    for kind in FORMATS[1:]:
        folder = written(tmp_path / kind, kind, rows)
        assert "did you mean text?" in refused(path=str(folder), column="txt"), kind
        assert "data.column=id" in refused(path=str(folder), column="id"), kind
        (file,) = folder.iterdir()
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
        why = refused(path=str(folder))
        assert str(file) in why and any(
            word in why for word in ("cut short", "no line of JSON", "no Parquet", "read")
        ), why
    monkeypatch.setattr(prepare, "cores", lambda: 2)
    assert refused(path=str(folder)) == why, "from another process, too"
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(b"")[:10] + b"\xff" * 50)
    assert "damaged" in refused(path=str(tmp_path / "bad.jsonl.gz"))
    (tmp_path / "bad.jsonl").write_text("[" * 100_000)
    assert "no line of JSON" in refused(path=str(tmp_path / "bad.jsonl"))
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n[1]\n')
    assert "must be an object" in refused(path=str(tmp_path / "bad.jsonl"))


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """Files of at most `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [200, 6000])
def test_a_full_disk_keeps_what_was_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    folder = written(tmp_path / "rows", "jsonl", texts(300))
    with room(size):
        why = refused(path=str(folder))
    assert "cannot be written in" in why and "goes on from there" in why
    assert size < 1000 or list((tmp_path / "cache").glob("*.making/scan-*.json"))
    assert Text(str(folder), 16, "byte").verified()
    monkeypatch.setattr(prepare, "LARGE", 10**9)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "other"))
    with room(size):
        assert "cannot be written in" in refused(path=str(folder))
    assert Text(str(folder), 16, "byte").train_tokens


def test_shards_read_as_one() -> None:
    whole = np.arange(100, dtype=np.uint16)
    shards = Shards(np.split(whole, [10, 11, 11, 60]))
    assert len(shards) == 100 and (shards[:] == whole).all() and (shards[7:65] == whole[7:65]).all()
    at = np.array([[0], [8], [57], [90]]) + np.arange(10)
    assert (shards[at] == whole[at]).all() and (shards.part(9, 61)[1:3] == whole[10:12]).all()
    assert not len(shards[5:5])


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 4097])
def test_a_shuffled_pass_has_each_window_once_in_another_order(count: int) -> None:
    passes = shuffled(count, 3, 0, 3 * count).reshape(3, count)
    assert (np.sort(passes, axis=1) == np.arange(count)).all()
    assert (shuffled(count, 3, count // 2, count) == passes.ravel()[count // 2 :][:count]).all(), "random access"
    if count >= 64:
        assert (passes[0] != passes[1]).mean() > 0.9 and (shuffled(count, 4, 0, count) != passes[0]).mean() > 0.9
        assert abs(np.corrcoef(passes[0], np.arange(count))[0, 1]) < 4 / count**0.5


def test_shuffled_batches_are_windows_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "count.txt"
    file.write_text("".join(f"{i:04} " for i in range(4000)))
    monkeypatch.setattr(prepare, "LARGE", 10**9)  # one document, cut by position
    task = Text(str(file), 50, "byte", order="shuffled")
    windows = (task.train_tokens - 1) // 50
    seen = np.concatenate([task.batch(0, step, 8).inputs["tokens"].numpy() for step in range(-(-windows // 8))])[
        :windows
    ]
    assert len(np.unique(seen, axis=0)) == windows and {bytes(row)[4:5] for row in seen.astype(np.uint8)} == {b" "}


def shards(folder: Path, kind: str, ids: np.ndarray, name: str) -> None:
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


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_tokens_of_other_programs(tmp_path: Path, dtype: str) -> None:
    ids = np.random.default_rng(0).integers(0, 300, 6000).astype(dtype)
    vocab, found = 300 if dtype == "uint16" else 100_000, {}
    for kind in ("nanogpt", "llm.c", "olmo", "numpy"):
        folder = tmp_path / kind
        folder.mkdir()
        for name, part in (("train_0", ids[:2000]), ("train_1", ids[2000:5000]), ("val", ids[5000:])):
            shards(folder, kind, part, name)
        found[kind] = Tokens(str(folder), None, vocab, 7, None, 16)
    first = found["nanogpt"]
    assert first.train_tokens == 5000 and len(first.corpus.tokens["val"]) + len(first.corpus.tokens["test"]) == 1000
    assert first.corpus.tokens["val"][:][-1] == 7 and set(first.held_out("test", 200).names)
    for other in found.values():
        assert streams(other.corpus) == streams(first.corpus) and other.yardsticks == first.yardsticks
        assert other.batch(1, 2, 4).targets.equal(first.batch(1, 2, 4).targets)


NULL = ("held_out", "end", "dtype")


def test_tokens_that_are_not_what_is_said_are_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / ".cache"))  # what is hidden is no shard

    def why(**given: Any) -> str:
        with pytest.raises(ValueError) as caught:
            Tokens(
                **{"path": str(tmp_path), "held_out": None, "vocab_size": 300, "end": None, "dtype": None, "context": 8}
                | given
            )
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no shard (.bin or .npy)" in why()
    ids = np.arange(300, dtype=np.uint16)
    shards(tmp_path, "nanogpt", ids, "latest_retrieval")  # has no word that begins with val or test
    assert "data.held_out=FILE" in why()
    assert "data.held_out=nowhere does not exist" in why(held_out="nowhere")
    shards(tmp_path, "nanogpt", ids, "val")
    assert "299, beyond data.vocab_size=200" in why(vocab_size=200)
    assert "beyond data.vocab_size" in why(dtype="uint32") and "write uint16 or uint32" in why(dtype="int8")
    assert "data.end" in why(end=300) and "data.vocab_size" in why(vocab_size=0)
    assert "ends no document" in why(end=299)
    with room(100):
        assert "cannot be written" in why()
    shards(tmp_path, "llm.c", ids.astype(np.uint32), "train_2")
    assert "shards of uint16 and uint32" in why() and "holds uint32; leave it null" in why(dtype="uint16")
    (tmp_path / "train_2.bin").write_bytes((tmp_path / "train_2.bin").read_bytes()[:-4])
    assert "cut short" in why()
    (tmp_path / "train_2.bin").write_bytes(b"\1\2\3")
    assert "cut short" in why()
    (tmp_path / "train_2.bin").write_bytes(b"")
    assert "train_2.bin is empty" in why()
    np.save(tmp_path / "train_2.npy", np.zeros((2, 3)))
    (tmp_path / "train_2.bin").unlink()
    assert "float64 (2, 3)" in why()
    (tmp_path / "train_2.npy").write_bytes((tmp_path / "train_2.npy").read_bytes()[:-3])
    assert "train_2.npy is cut short" in why()


def test_a_held_out_shard_is_not_trained_on_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name, size in (("a", 1000), ("b", 300)):
        shards(folder, "nanogpt", np.arange(size, dtype=np.uint16), name)
    (folder / "link.bin").symlink_to(folder / "b.bin")
    for held_out in ("b.bin", str(folder / "b.bin"), "link.bin"):
        task = Tokens(".", held_out, 1000, None, None, 16)
        assert task.train_tokens == 1000, held_out
    assert len(task.training_text()[0]) == 1000
    monkeypatch.setattr(lm, "TEXT", 300)
    assert [len(text) for text in task.training_text()] == [300], "of a large corpus, its beginning"


def saved_tokenizer(file: Path) -> Path:
    """A tokenizer.json as another program writes it."""
    library = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    trainer = library.trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(texts(), trainer)
    made.enable_truncation(8)  # for the inputs of the model that it was made with
    made.enable_padding(length=1000)
    made.save(str(file))
    return file


@pytest.mark.parametrize("large", [True, False])
def test_an_existing_tokenizer_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    monkeypatch.setattr(prepare, "LARGE", 0 if large else 10**9)
    rows, file = texts(200), saved_tokenizer(tmp_path / "tokenizer.json")
    task = Text(str(written(tmp_path / "rows", "parquet", rows)), 16, str(file))
    assert task.vocab == 500 and task.title == "tokenizer LM on rows"
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(file))
    library.no_truncation()
    library.no_padding()
    expected = {tuple(library.encode(row).ids) for row in rows}
    begin = 0
    for end in task.corpus.ends["test"].tolist():
        ids = task.corpus.tokens["test"][begin:end].tolist()
        assert tuple(ids[:-1]) in expected and ids[-1] == 0, "each document, and the id of its end"
        begin = end
    renamed = file.rename(tmp_path / "other.json")
    again = Text(str(tmp_path / "rows"), 16, str(renamed))
    assert again.fingerprint == task.fingerprint, "what counts is its content"
    assert "does not exist" in refused(path=str(tmp_path / "rows"), tokenizer="missing.json")
    renamed.write_text("{}")
    assert "is no tokenizer.json" in refused(path=str(tmp_path / "rows"), tokenizer=str(renamed))


def test_the_tokenizer_of_gpt2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiktoken's own code, on an encoding that need not be downloaded."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([i]): i for i in range(256)} | {b"an": 256, b"ant": 257}
    small = tiktoken.Encoding("gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 258})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: {"gpt2": small}[name])
    monkeypatch.setattr(prepare, "LARGE", 10**9)
    task = Text(str(written(tmp_path / "rows", "jsonl", texts(200))), 16, "gpt2")
    test = task.corpus.tokens["test"][: task.corpus.ends["test"][0]].tolist()
    assert task.vocab == 259 and test[-1] == 258 and decoded(task.corpus, test[:-1]) in texts(200)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: (_ for _ in ()).throw(OSError("no route to host")))
    why = refused(path=str(tmp_path / "rows"), tokenizer="p50k_base")
    assert "cannot be downloaded (OSError: no route to host)" in why and "TIKTOKEN_CACHE_DIR" in why


def test_rows_of_a_dataset_are_read_in_batches(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = texts(300)
    made = datasets.Dataset.from_dict({"text": rows, "id": list(range(len(rows)))})
    made.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    task = HuggingFace(str(tmp_path / "saved"), None, "train", "text", 16, "byte")
    assert streams(task.corpus) == streams(Text(str(written(tmp_path / "rows", "jsonl", rows)), 16, "byte").corpus)
    assert len(list((tmp_path / "cache").glob("corpus-*/train-*.bin"))) > 8, "pieces of both"
    shutil.copy(tmp_path / "saved" / "data-00000-of-00003.arrow", tmp_path / "saved" / "cache-1.arrow")  # the library's
    program = "import sys; from ablate.data import prepare; prepare.LARGE = 0; from ablate.data.hf import HuggingFace; "
    program += "HuggingFace(sys.argv[1], None, 'train', 'text', 16, 'byte'); assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "saved")], check=True)


def test_the_command_prepares_and_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "EVERY", -1.0)
    folder = written(tmp_path / "rows", "jsonl", texts(600))
    words = ["prepare", "data=text", f"data.path={folder}", "scale=tiny", "data.context=16"]
    assert main([*words, "--verify"]) == 0
    printed, progress = capsys.readouterr()
    assert "byte LM on rows: " in printed and "all files are as they were written" in printed
    for step in ("reading", "tokenising"):
        assert re.search(rf"rows: {step}, 2 of \d+ pieces, .+ left\n", progress), progress
    (shard, *_) = (tmp_path / "cache").glob("corpus-*/train-*.bin")
    status, data = shard.stat(), bytearray(shard.read_bytes())
    data[3] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert main(words) == 0 and main([*words, "--verify"]) == 1
    assert "differ from the index" in capsys.readouterr().out
    with open(sorted(folder.iterdir())[0], "ab") as source:
        source.write(b'{"text": "one more"}\n')
    assert main([*words, "--verify"]) == 1 and "had changed: prepared again\n" in capsys.readouterr().out
    assert main([*words, "--verify"]) == 0 and "all files are as they were written" in capsys.readouterr().out
    assert main(["prepare", "data=copy"]) == 2 and "has no text to prepare" in capsys.readouterr().err
    assert main(["prepare", "data=text", "data.path=nowhere"]) == 2 and "does not exist" in capsys.readouterr().err


def measured(*command: str) -> tuple[float, float]:
    """Seconds on a CPU, and MB of memory at most, of a process of Python."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


@pytest.mark.slow
def test_twenty_gigabytes_are_planned_and_trained_on_like_a_few_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards with holes, which take no disk, are read once; a plan, and each run, opens their index."""
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):  # with which freed memory is kept
        monkeypatch.delenv(name, raising=False)
    taken = {}
    for name, size in (("small", 1 << 20), ("large", 10 << 30)):
        (tmp_path / name).mkdir()
        for i, shard in enumerate(("train_0", "train_1", "val")):
            ids = np.random.default_rng(i).integers(0, 300, 200_000).astype(np.uint16)
            with open(tmp_path / name / f"{shard}.bin", "wb") as file:
                file.write(ids.tobytes())
                file.truncate(size if shard != "val" else ids.nbytes)
        words = ["data=tokens", f"data.path={tmp_path / name}", "data.vocab_size=300", "scale=tiny", "track=none"]
        _, memory = measured("-m", "ablate", "data", "prepare", *words)
        assert memory < 1000
        sweep = ["-m", "ablate", "-m", *words, "norm=ln,rms", "seeds=1", "train.steps=20", "optim.warmup=2"]
        taken[name] = [*measured(*sweep, "dry_run=true"), *measured(*sweep)]
    planned, trained = (np.subtract(taken["large"][i : i + 2], taken["small"][i : i + 2]) for i in (0, 2))
    print(taken)
    assert max(planned[0], trained[0]) < 5 and max(planned[1], trained[1]) < 300, taken
    begun = time.monotonic()
    task = Tokens(str(tmp_path / "large"), None, 300, None, None, 16)
    assert time.monotonic() - begun < 1 and task.train_tokens == 10 << 30


@pytest.mark.slow
def test_the_model_of_gpt2_is_planned_on_shards_of_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / ".cache"))
    for i, (name, size) in enumerate((("train_0", 3_000_000), ("train_1", 1_000_000), ("val", 100_000))):
        ids = np.random.default_rng(i).integers(0, 50257, size).astype(np.uint16)
        ids[::1000] = 50256
        shards(tmp_path, "llm.c", ids, name)
    words = ["data=tokens", f"data.path={tmp_path}", "data.vocab_size=50257", "data.end=50256", "scale=gpt2"]
    words += ["norm=ln,rms", "train.device=cuda", "train.memory=h100", "track=none", "dry_run=true"]
    command = [sys.executable, "-m", "ablate", "-m", *words]
    shown = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    assert "123,6" in shown and " of 80 GB (h100)" in shown
    steps, tokens, passes = re.search(r"([\d,]+) steps of ([\d,]+) tokens \(([\d.]+) epochs", shown).groups()  # type: ignore[union-attr]
    assert float(passes) == pytest.approx(
        float(f"{steps}e0".replace(",", "")) * int(tokens.replace(",", "")) / 4e6, rel=0.1
    )
