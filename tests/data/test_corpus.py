"""The corpus and its cache: token streams, yardsticks against brute force, damage repaired; the standard library."""

import itertools
import json
import math
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ablate.config.errors import PlanError
from ablate.data import corpus as module
from ablate.data import documents as reading
from ablate.data import language
from ablate.data.corpus import SPLITS, Corpus, Shards, cache_folder, load_corpus, written_at_end, yardsticks
from ablate.data.documents import Document
from ablate.planning.plan import plan_study
from ablate.runs.files import write_json


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ABLATE_CACHE", str(folder))
    return folder


def some_documents(count: int = 120, alphabet: str = "abcdé𝄞\n ") -> list[Document]:
    """Texts that share nothing."""
    pick = random.Random(0)
    return [Document(f"d{i}", "".join(pick.choices(alphabet, k=200)).encode()) for i in range(count)]


def streams(corpus: Corpus) -> dict[str, list[int]]:
    """The token streams as lists."""
    return {split: corpus.tokens[split].tolist() for split in SPLITS}


def same(a: Corpus, b: Corpus) -> bool:
    """Whether two corpora are equal in every field."""
    told = [(c.fingerprint, c.state, c.vocab, c.names, c.by_document, c.yardsticks, c.bytes_per_token) for c in (a, b)]
    ends = all((a.ends[split] == b.ends[split]).all() for split in SPLITS)
    return told[0] == told[1] and streams(a) == streams(b) and ends


def made(cache: Path) -> list[str]:
    """What lies in a cache beside locks."""
    return [folder.name for folder in cache.iterdir() if folder.suffix != ".lock"]


def test_byte_streams_are_the_documents_each_ended() -> None:
    documents = some_documents()
    texts = {document.name: document.text for document in documents}
    corpus = load_corpus(documents, "byte")
    assert corpus.vocab == 256 and corpus.by_document
    assert sorted(name for split in SPLITS for name in corpus.names[split]) == sorted(texts)
    for split in SPLITS:
        begin = 0
        for name, end in zip(corpus.names[split], corpus.ends[split], strict=True):
            assert bytes(corpus.tokens[split][begin:end]) == texts[name] + b"\0"
            begin = end
        assert begin == len(corpus.tokens[split])


def test_one_document_is_its_bytes_and_nothing_more() -> None:
    text = b"\xff\xfe\r\nany bytes at all\x80" * 40
    corpus = load_corpus([Document("one", text)], "byte")
    assert b"".join(bytes(corpus.tokens[split]) for split in SPLITS) == text
    assert not corpus.by_document and all(corpus.names[split] == ["one"] for split in SPLITS)


def test_characters_are_numbered_by_their_order() -> None:
    """That ids decode to the text is asked in test_tokenizer."""
    text = "".join(document.text.decode() + "\0" for document in some_documents())
    alphabet = sorted(set(text))
    corpus = load_corpus(some_documents(), "char")
    assert corpus.vocab == len(alphabet)
    assert Counter(alphabet[i] for stream in streams(corpus).values() for i in stream) == Counter(text)


def test_what_cannot_be_tokenised_is_named() -> None:
    for tokenizer in ("char", "bpe", "word"):
        match = rf"data\.tokenizer={tokenizer}.*bad\.txt \(byte 3\).*data\.tokenizer=byte"
        with pytest.raises(ValueError, match=match):
            load_corpus([Document("good.txt", b"abc"), Document("bad.txt", b"abc\xff")], tokenizer)
    with pytest.raises(ValueError, match=r"data\.tokenizer='words'.*did you mean word"):
        load_corpus(some_documents(), "words")


def test_a_second_load_is_equal_and_makes_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_corpus(some_documents(), "char")
    before = {file: file.stat().st_mtime_ns for file in own_cache.rglob("*")}
    monkeypatch.setattr(module, "learn", None)
    second = load_corpus(some_documents(), "char")
    assert same(first, second)
    assert before == {file: file.stat().st_mtime_ns for file in own_cache.rglob("*")}
    assert all(isinstance(second.tokens[split], np.memmap) for split in SPLITS)
    assert not second.tokens["train"].flags.writeable


def test_fingerprints_tell_texts_and_tokenizers_apart() -> None:
    documents = some_documents()
    others = [
        load_corpus(documents, "byte"),
        load_corpus(documents, "char"),
        load_corpus(documents[:-1], "byte"),
        load_corpus([*documents[:-1], Document(documents[-1].name, documents[-1].text + b" ")], "byte"),
        load_corpus([Document("x", b"a" * 50), Document("y", b"b" * 50)], "byte"),
        load_corpus([Document("x", b"a" * 50 + b"b" * 50)], "byte"),
    ]
    assert len({corpus.fingerprint for corpus in others}) == len(others)
    assert load_corpus(documents, "byte").fingerprint == others[0].fingerprint


def flipped(file: Path) -> None:
    """Damage of one bit in the middle, that leaves no other trace."""
    data, status = bytearray(file.read_bytes()), file.stat()
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tokens missing": ("train.npy", Path.unlink),
    "tokens cut in the header": ("test.npy", lambda file: os.truncate(file, 40)),
    "tokens cut in the data": ("train.npy", lambda file: os.truncate(file, 5000)),
    "tokens with a bit flipped": ("train.npy", flipped),
    "tokens a pipe": ("train.npy", lambda file: (file.unlink(), os.mkfifo(file))),
    "tokenizer missing": ("learned.txt", Path.unlink),
    "tokenizer that is none": ("learned.txt", lambda file: file.write_text("null")),
    "names of others": ("names.json", flipped),
    "index a folder": ("index.json", lambda file: (file.unlink(), file.mkdir())),
    "index with a bit flipped": ("index.json", flipped),
    "index no UTF-8": ("index.json", lambda file: file.write_bytes(b"\xff\xfe{}")),
    "index without a key": ("index.json", lambda file: file.write_text('{"vocab": 256}')),
    "index without all keys": ("index.json", lambda file: write_json(file, {"vocab": 256})),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_made_again(own_cache: Path, damage: str) -> None:
    name, harm = DAMAGE[damage]
    tokenizer = "bpe" if name == "learned.txt" else "byte"
    whole = load_corpus(some_documents(), tokenizer)
    whole.tokens = {split: np.array(stream) for split, stream in whole.tokens.items()}  # off the files
    [file] = own_cache.glob(f"*/{name}")
    harm(file)
    module.file_digest.cache_clear()  # as in another process
    assert same(whole, load_corpus(some_documents(), tokenizer))
    assert same(whole, load_corpus(some_documents(), tokenizer))
    assert made(own_cache) == [file.parent.name]


def test_an_interrupted_making_leaves_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(module.np, "save", full)
        with pytest.raises(ValueError, match=r"cannot be written.*disk full"):
            load_corpus(some_documents(), "byte")
    assert not made(own_cache)
    assert load_corpus(some_documents(), "byte").vocab == 256


def test_a_damaged_cache_met_by_several_is_made_once(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds damage must not remove what another has just made in its place."""
    whole = load_corpus(some_documents(), "byte")
    whole.tokens = {split: np.array(stream) for split, stream in whole.tokens.items()}
    [index] = own_cache.glob("*/index.json")
    index.write_text("{}")
    all_saw_it, write, read, written, found = threading.Barrier(4), module.save_corpus, module.open_corpus, [], []
    waiting = threading.local()

    def slow_read(*given: Any) -> Any:
        try:
            return read(*given)
        finally:
            if not hasattr(waiting, "done"):  # the first look of each comes before any repair
                waiting.done = True
                all_saw_it.wait(10)

    monkeypatch.setattr(module, "open_corpus", slow_read)
    monkeypatch.setattr(module, "save_corpus", lambda *arguments: written.append(1) or write(*arguments))
    threads = [threading.Thread(target=lambda: found.append(load_corpus(some_documents(), "byte"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(same(whole, other) for other in found)
    assert len(written) == 1 and made(own_cache) == [index.parent.name]


def test_a_plan_writes_its_corpora_at_its_end_and_one_that_is_refused_none(own_cache: Path) -> None:
    with pytest.raises(ValueError, match="refused"), written_at_end():
        load_corpus(some_documents(), "byte")
        raise ValueError("refused")
    assert not list(own_cache.glob("*"))
    with written_at_end():
        planned = load_corpus(some_documents(), "byte")
        assert load_corpus(some_documents(), "byte") is planned, "made once"
        assert not list(own_cache.glob("*"))
    assert len(made(own_cache)) == 1
    assert same(planned, load_corpus(some_documents(), "byte"))


def test_a_refused_command_leaves_a_fresh_cache_empty(own_cache: Path, text: Path) -> None:
    words = ["data=text", f"data.path={text}", "scale=tiny", "data.context=16"]
    with pytest.raises(PlanError):
        plan_study([*words, "norm=ln,rms", "model.dim=64", "model.heads=7"])
    with pytest.raises(PlanError):
        plan_study([*words, "norm=ln,rms", "ffn.hiden=8"])
    assert not list(own_cache.glob("corpus-*"))
    plan_study([*words, "norm=ln,rms", "train.steps=4", "optim.warmup=1"])
    assert list(own_cache.glob("corpus-*/index.json"))


def test_shards_read_as_one() -> None:
    whole = np.arange(100, dtype=np.uint16)
    shards = Shards(np.split(whole, [10, 11, 11, 60]))
    assert len(shards) == 100 and (shards[:] == whole).all() and (shards[7:65] == whole[7:65]).all()
    at = np.array([[0], [8], [57], [90]]) + np.arange(10)
    assert (shards[at] == whole[at]).all() and (shards.part(9, 61)[1:3] == whole[10:12]).all()
    assert not len(shards[5:5])


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache" and cache_folder().is_dir()
    monkeypatch.delenv("ABLATE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "ablate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "ablate"
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # nothing can be made below a file
    assert cache_folder().parent == tmp_path and cache_folder().is_dir()

    def nowhere() -> Path:  # as for numbers that nobody has written into a container's /etc/passwd
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    assert cache_folder().parent == tmp_path and cache_folder().is_dir()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    assert cache_folder() == tmp_path / "cache"


def brute_yardsticks(train: list[int], test: list[int], vocab: int) -> dict[str, float]:
    """One number after another, from the definitions."""
    single, pairs, before = Counter(train), Counter(itertools.pairwise(train)), Counter(train[:-1])

    def unigram(a: int) -> float:
        return (single[a] + 1) / (len(train) + vocab)

    def bigram(a: int, b: int) -> float:
        return (pairs[a, b] + unigram(b)) / (before[a] + 1)

    for a in range(vocab) if vocab < 1000 else ():
        assert math.isclose(sum(bigram(a, b) for b in range(vocab)), 1)
    return {
        "uniform": math.log(vocab),
        "unigram": -sum(math.log(unigram(a)) for a in test) / len(test),
        "bigram": -sum(math.log(bigram(a, b)) for a, b in itertools.pairwise(test)) / (len(test) - 1),
    }


@pytest.mark.parametrize(("seed", "dtype"), [(0, np.uint8), (1, np.uint32)])
def test_yardsticks_by_brute_force(seed: int, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    train = rng.choice(7, 300, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05, 0.0])
    test = rng.choice(7, 60)  # has tokens and pairs that training never saw
    expected = pytest.approx(brute_yardsticks(train.tolist(), test.tolist(), 7))
    found = yardsticks(train.astype(dtype), test.astype(dtype), 7)
    assert found == expected
    for block in (1, 3, 100):
        monkeypatch.setattr(module, "BLOCK", block)
        assert yardsticks(train.astype(dtype), test.astype(dtype), 7) == found, "to the last bit"


def test_yardsticks_of_a_large_vocabulary() -> None:
    """Pairs of ids above 2^16 must not be taken for others."""
    rng, vocab = np.random.default_rng(0), 100_003
    ids = np.concatenate([rng.integers(0, vocab, 40), [vocab - 1, 65536, 0]]).astype(np.uint32)
    train, test = rng.choice(ids, 500), rng.choice(ids, 80)
    assert yardsticks(train, test, vocab) == pytest.approx(brute_yardsticks(train.tolist(), test.tolist(), vocab))


def test_yardsticks_of_a_corpus() -> None:
    corpus = load_corpus(some_documents(), "char")
    found = streams(corpus)
    assert corpus.yardsticks == pytest.approx(brute_yardsticks(found["train"], found["test"], corpus.vocab))
    assert load_corpus([Document("x", b"a")], "byte").yardsticks == {}


@pytest.fixture(scope="module")
def library() -> language.Stdlib:
    """The task, from the cache that all tests share."""
    return language.Stdlib(64, "byte")


def test_stdlib_is_source_alone() -> None:
    documents = reading.standard_library().documents
    names = [document.name for document in documents]
    assert len(names) == len(set(names)) > 400 and all(name.endswith(".py") for name in names)
    for name in names:
        path = Path(name)
        assert not {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings"} & set(path.parts), name
        assert not path.name.startswith("_sysconfigdata") and name != "pydoc_data/topics.py"
    assert {"ast.py", "json/decoder.py", "collections/__init__.py"} <= set(names)
    total = sum(len(document.text) for document in documents)
    assert 8e6 < total < 14e6
    assert max(len(document.text) for document in documents) < 0.02 * total
    assert reading.standard_library().documents == documents


def test_stdlib_is_never_cut_within_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        i for d in reading.standard_library().documents for i, byte in enumerate(d.text) if byte >= 0xC2 and i > 1000
    ]
    for place in sorted(places)[::200][:3]:
        monkeypatch.setattr(reading, "LARGEST", place + 1)  # ends with the first byte of a character of several
        for document in reading.standard_library().documents:
            assert len(document.text) <= place + 1
            document.text.decode()  # or else data.tokenizer=char would refuse the library


def test_stdlib_as_a_task(library: language.Stdlib) -> None:
    assert library.name == f"stdlib-{sys.version_info.major}.{sys.version_info.minor}"
    assert library.title.startswith("byte LM") and library.kind == "lm" and library.vocab == 256
    sizes = {split: len(library.corpus.tokens[split]) for split in SPLITS}
    assert library.corpus.by_document and 0.85 < sizes["train"] / sum(sizes.values()) < 0.95
    yard = library.yardsticks
    assert yard["uniform"] > yard["unigram"] > yard["bigram"] > 2
    assert json.dumps(yard)
