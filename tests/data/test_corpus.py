"""The corpus and its cache: streams of tokens, yardsticks by brute force, damage repaired; the standard library."""

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from corpora import flip, load, some_documents, streams

from ablate.data import corpus as module
from ablate.data import documents as reading
from ablate.data import prepare
from ablate.data.corpus import SPLITS, Corpus, Shards, cache_folder, yardsticks
from ablate.data.documents import Document
from ablate.runs.files import digest_at, write_json


def same(a: Corpus, b: Corpus) -> bool:
    """Whether two corpora are equal in every field."""
    for name in ("fingerprint", "state", "vocab", "names", "yardsticks", "bytes_per_token"):
        if getattr(a, name) != getattr(b, name):
            return False
    return streams(a) == streams(b) and all((a.ends[split] == b.ends[split]).all() for split in SPLITS)


def folders(cache: Path) -> list[str]:
    """What lies in a cache beside locks."""
    return [folder.name for folder in cache.glob("*") if folder.suffix != ".lock"]


def test_one_document_is_its_bytes_and_nothing_more(empty_cache):
    """Be they UTF-8 or not."""
    text = b"\xff\xfe\r\nany bytes at all\x80" * 40
    corpus = load([Document("one", text)])
    assert b"".join(bytes(corpus.tokens[split]) for split in SPLITS) == text
    assert all(corpus.names[split] == ["one"] for split in SPLITS)


@pytest.mark.parametrize("tokenizer", ["char", "bpe"])
def test_what_cannot_be_tokenised_is_named(empty_cache, tokenizer):
    with pytest.raises(ValueError, match=rf"data\.tokenizer={tokenizer}.*bad\.txt \(byte 3\).*data\.tokenizer=byte"):
        load([Document("good.txt", b"abc"), Document("bad.txt", b"abc\xff")], tokenizer)


def test_a_second_load_is_equal_and_makes_nothing(empty_cache, monkeypatch):
    first = load(some_documents(), "char")
    monkeypatch.setattr(prepare, "make_corpus", None)
    second = load(some_documents(), "char")
    assert same(first, second)
    assert all(isinstance(second.tokens[split].base, np.memmap) for split in SPLITS)


def test_fingerprints_tell_texts_and_tokenizers_apart(empty_cache):
    documents = some_documents()
    last = documents[-1]
    corpora = [
        load(documents),
        load(documents, "char"),
        load(documents[:-1]),
        load([*documents[:-1], Document(last.name, last.text + b" ")]),
        load([Document("x", b"a" * 50), Document("y", b"b" * 50)]),
        load([Document("x", b"a" * 50 + b"b" * 50)]),
    ]
    assert len({corpus.fingerprint for corpus in corpora}) == len(corpora)


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tokens missing": ("train.bin", Path.unlink),
    "tokens cut": ("train.bin", lambda file: os.truncate(file, 5000)),
    "tokens with a bit flipped": ("train.bin", flip),
    "tokens a pipe": ("train.bin", lambda file: (file.unlink(), os.mkfifo(file))),
    "ends cut in the header": ("test.ends.npy", lambda file: os.truncate(file, 40)),
    "index with a bit flipped": ("index.json", flip),
    "index no UTF-8": ("index.json", lambda file: file.write_bytes(b"\xff\xfe{}")),
    "index without all keys": ("index.json", lambda file: write_json(file, {"vocab": 256})),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_made_again(empty_cache, damage):
    name, harm = DAMAGE[damage]
    whole = load(some_documents())
    whole.tokens = {split: np.array(tokens) for split, tokens in whole.tokens.items()}  # out of the damage's reach
    [file] = empty_cache.glob(f"*/{name}")
    harm(file)
    digest_at.cache_clear()  # as in another process
    assert same(whole, load(some_documents()))
    assert same(whole, load(some_documents()))
    assert folders(empty_cache) == [file.parent.name]


def test_processes_without_locks_make_a_corpus_side_by_side(empty_cache, monkeypatch):
    """As on file servers that have none."""
    write_index = module.write_index

    def meanwhile(work, corpus):
        monkeypatch.setattr(module, "write_index", write_index)
        load(some_documents())
        write_index(work, corpus)

    monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)
    monkeypatch.setattr(module, "write_index", meanwhile)
    assert same(load(some_documents()), load(some_documents()))
    assert len(folders(empty_cache)) == 1


@pytest.mark.parametrize(("start", "stop"), [(0, None), (9, 61)])
def test_shards_read_as_one(start, stop):
    ids = np.arange(100, dtype=np.uint16)
    shards = Shards(np.split(ids, [10, 11, 60]), start, stop)
    expected = ids[start:stop]
    for places in (slice(None), slice(1, 3), slice(7, 52), slice(5, 5)):
        assert shards[places].tolist() == expected[places].tolist()


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "file"))  # nothing can be made below a file
    assert cache_folder() == tmp_path / f"ablate-{os.getuid()}"
    monkeypatch.delenv("ABLATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "b" / "ablate"
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a" and (tmp_path / "a").is_dir()


@pytest.mark.parametrize("block", [100, 10**6])
def test_yardsticks_by_brute_force(block, monkeypatch):
    """Test tokens have an id that training never saw."""
    monkeypatch.setattr(module, "BLOCK", block)
    train = np.array([0, 1, 1, 2] * 75, np.uint8)
    test = np.array([0, 1, 6], np.uint8)
    unigram = np.array([75 + 1, 150 + 1, 0 + 1]) / (300 + 7)  # of the ids 0, 1 and 6
    bigrams = np.array([(75 + unigram[1]) / (75 + 1), (0 + unigram[2]) / (150 + 1)])  # of 0, 1 and of 1, 6
    losses = {"unigram": -np.log(unigram).mean(), "bigram": -np.log(bigrams).mean()}
    expected = {"uniform": math.log(7), **losses}
    assert yardsticks(train, test, 7) == pytest.approx(expected)


def test_stdlib_is_source_alone():
    source = reading.StandardLibrary()
    documents = [document for split, part in source.parts() for document in source.documents(split, part)]
    names = {document.name for document in documents}
    assert len(documents) == len(names) > 400 and {"ast.py", "json/decoder.py", "collections/__init__.py"} <= names
    for name in names:
        assert name.endswith(".py") and not Path(name).name.startswith("_sysconfigdata")
        assert not {"test", "tests", "idle_test", "site-packages", "encodings"} & {*Path(name).parts}, name
    assert "pydoc_data/topics.py" not in names
    sizes = [len(document.text) for document in documents]
    assert 8e6 < sum(sizes) < 14e6 and max(sizes) < 0.02 * sum(sizes)
