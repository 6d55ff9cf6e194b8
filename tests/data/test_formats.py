"""Texts in every format, tokenizers made elsewhere, and passes in a shuffled order."""

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.data.corpus import SPLITS
from ablate.data.hf import HuggingFace
from ablate.data.lm import shuffled
from ablate.data.text import Text

pyarrow = pytest.importorskip("pyarrow")
WORDS = ["ant", "bee", "crow", "dingo", "élan", "fox", "gnu", "hare", "ibis", "jay", "kite", "lynx"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache for each test."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))


def texts(count: int = 400, seed: int = 0) -> list[str]:
    """Documents that share nothing, and a near copy of every tenth."""
    pick = random.Random(seed)
    found = [" ".join(f"{pick.choice(WORDS)}{pick.randrange(900)}" for _ in range(60)) for _ in range(count)]
    return found + [f"{text} and some more" for text in found[::10]]


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


FORMATS = ("text", "jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def streams(corpus: Any) -> dict[str, list[int]]:
    """The token streams as lists."""
    return {split: corpus.tokens[split].tolist() for split in SPLITS}


@pytest.mark.parametrize("tokenizer", ["byte", "char", "word"])
def test_one_text_in_every_format_gives_equal_batches(tmp_path: Path, tokenizer: str) -> None:
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
    if tokenizer == "byte":
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_dict({"text": rows}).save_to_disk(str(tmp_path / "saved"), num_shards=3)
        saved = HuggingFace(str(tmp_path / "saved"), None, "train", "text", 16, "byte")
        assert streams(saved.corpus) == streams(first.corpus)
    begin, end = (first.corpus.ends["test"][i] for i in (0, 1))
    if tokenizer != "word":
        assert first.corpus.decode(first.corpus.tokens["test"][begin:end].tolist()).removesuffix("\0") in rows


def refused(**given: Any) -> str:
    with pytest.raises(ValueError) as caught:
        Text(**{"context": 16, "tokenizer": "byte", **given})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_read_is_a_line(tmp_path: Path) -> None:
    rows = texts(60)
    for kind in FORMATS[1:]:
        folder = written(tmp_path / kind, kind, rows)
        assert "did you mean text?" in refused(path=str(folder), column="txt"), kind
        assert "data.column=id" in refused(path=str(folder), column="id"), kind
        (file,) = folder.iterdir()
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
        why = refused(path=str(folder))
        assert str(file) in why and re.search("cut short|no line of JSON|no Parquet|read", why), why
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n[1]\n')
    assert "must be an object" in refused(path=str(tmp_path / "bad.jsonl"))


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000, 4097])
def test_a_shuffled_pass_has_each_window_once_in_another_order(count: int) -> None:
    passes = shuffled(count, 3, 0, 3 * count).reshape(3, count)
    assert (np.sort(passes, axis=1) == np.arange(count)).all()
    assert (shuffled(count, 3, count // 2, count) == passes.ravel()[count // 2 :][:count]).all(), "random access"
    if count >= 64:
        assert (passes[0] != passes[1]).mean() > 0.9 and (shuffled(count, 4, 0, count) != passes[0]).mean() > 0.9
        assert abs(np.corrcoef(passes[0], np.arange(count))[0, 1]) < 4 / count**0.5


def test_shuffled_batches_are_windows_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "count.txt"
    file.write_text("".join(f"{i:04} " for i in range(4000)))
    task = Text(str(file), 50, "byte", order="shuffled")
    windows = (task.train_tokens - 1) // 50
    steps = range(-(-windows // 8))
    seen = np.concatenate([task.batch(0, step, 8).inputs["tokens"].numpy() for step in steps])[:windows]
    assert len(np.unique(seen, axis=0)) == windows and {bytes(row)[4:5] for row in seen.astype(np.uint8)} == {b" "}


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
    made.save(str(file))
    return file


def test_an_existing_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    rows, file = texts(200), saved_tokenizer(tmp_path / "tokenizer.json")
    task = Text(str(written(tmp_path / "rows", "parquet", rows)), 16, str(file))
    assert task.vocab == 500 and task.title == "tokenizer LM on rows"
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(file))
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
    task = Text(str(written(tmp_path / "rows", "jsonl", texts(200))), 16, "gpt2")
    test = task.corpus.tokens["test"][: task.corpus.ends["test"][0]].tolist()
    assert task.vocab == 259 and test[-1] == 258 and task.corpus.decode(test[:-1]) in texts(200)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: (_ for _ in ()).throw(OSError("no route to host")))
    why = refused(path=str(tmp_path / "rows"), tokenizer="p50k_base")
    assert "cannot be downloaded (OSError: no route to host)" in why and "TIKTOKEN_CACHE_DIR" in why
