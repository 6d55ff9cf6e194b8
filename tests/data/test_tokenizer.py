"""Byte-pair encoding: trained on the train split alone, the same everywhere, and back to the text it came from."""

import hashlib
import json
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from corpora import decoded, write_rows

from ablate.config import extra as extra_module
from ablate.config.extra import extra
from ablate.data import tokenizer as module
from ablate.data.corpus import SPLITS, Corpus, load_corpus
from ablate.data.documents import Document
from ablate.data.language import Text
from ablate.data.tokenizer import chunks

WORDS = ["ant", "bee", "crow", "dingo", "élan", "𝄞", "\t", "\n", "\n\n", "  ", "naïve.", "x=1"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def library(count: int = 150) -> list[Document]:
    """Documents of few words, each in an order of its own."""
    pick = random.Random(3)
    return [Document(f"d{i}", " ".join(pick.choices(WORDS, k=80)).encode()) for i in range(count)]


def bpe(documents: list[Document], size: int | None = 400) -> Corpus:
    return load_corpus(documents, "bpe", size)


@pytest.mark.parametrize(
    ("tokenizer", "count"), [("byte", 150), *((name, count) for name in ("char", "bpe") for count in (1, 3, 150))]
)
def test_ids_decode_to_the_text(tokenizer: str, count: int) -> None:
    documents = library(count)
    texts = {document.name: document.text.decode() for document in documents}
    corpus = load_corpus(documents, tokenizer)
    for split in SPLITS:
        begin = 0
        for name, end in zip(corpus.names[split], corpus.ends[split], strict=True):
            text = decoded(corpus, corpus.tokens[split][begin:end])
            if corpus.by_document:
                assert text == texts[name] + "\0"
            elif tokenizer != "byte":  # which may be cut within a character
                assert text.removesuffix("\0") in texts[name]
            begin = end
        if tokenizer == "bpe" and corpus.by_document:  # the end of a document is a token of its own
            assert (np.flatnonzero(corpus.tokens[split] == 0) == corpus.ends[split] - 1).all()
    if count == 1:  # a text that is cut by position is whole again
        assert "".join(decoded(corpus, corpus.tokens[split]) for split in SPLITS) == texts["d0"]


def test_only_the_train_split_is_learned_from() -> None:
    """What only held-out documents have stays in single bytes, and changing them changes no merge."""
    corpus = bpe(library())
    held_out = {name for split in ("val", "test") for name in corpus.names[split]}
    texts = [d.text.decode() for d in library() if d.name not in held_out]
    assert module.learn("bpe", 400, texts) == corpus.state
    zebras = ["zebra zebra " * 500]
    state = module.learn("bpe", 400, texts, zebras)
    assert state.count("zebra") == 0 < state.count("dingo")
    assert len(module.codec("bpe", state).encode(zebras[0])) == len(zebras[0])


# Blank lines and indentation, other white space, white space of other scripts, no letters, apostrophes.
ODD = [
    "\n\n\n    ",
    " \n \t\r\n  ",
    "\u3000\x85\x1c\xa0 \u2028x",
    " \N{GRINNING FACE}\u0301 1 22 !? \n",
    " it's we'll \n'",
]


def test_ids_are_those_of_the_library_on_the_whole_text() -> None:
    """Long texts are learnt from and encoded in pieces; where they are cut no word goes across."""
    (document,) = library(1)
    plain = document.text.decode() * 2
    for text in (plain, *(f"{odd}{plain[:300]}{odd}".join(plain.split("ant")) for odd in ODD)):
        tokenizer = module.train_bpe([text], 350)
        for size in (1, 10, 10**6):
            parts = chunks(text, size)
            assert "".join(parts) == text and (len(parts) == 1) == (size == 10**6)
            assert [i for part in parts for i in tokenizer.encode(part).ids] == tokenizer.encode(text).ids
            assert module.train_bpe(parts, 350).to_str() == tokenizer.to_str()
        assert max(map(len, chunks(text, 10))) < 200


def test_a_text_is_learnt_from_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library is given at once is bounded, blank lines or not."""
    given = list[str]()
    learn = module.train_bpe
    monkeypatch.setattr(module, "train_bpe", lambda texts, size: learn((given.append(t) or t for t in texts), size))
    text = "a line of text\n\n    another one\n\n" * 7_000
    module.learn("bpe", 300, [text])
    assert "".join(given) == text and len(text) > 2 * module.CHUNK > 2 * max(map(len, given)) - 200


def test_the_size_is_what_is_asked_for() -> None:
    assert bpe(library(), 300).vocab == 300 and bpe(library(), 257).vocab == 257
    assert load_corpus(library(), "bpe").fingerprint == bpe(library(), 1024).fingerprint
    assert bpe(library(), 300).fingerprint != bpe(library(), 301).fingerprint
    assert all(int(stream.max()) < 300 for stream in bpe(library(), 300).tokens.values())
    with pytest.raises(ValueError, match=r"^data\.vocab_size=256 is too small; .*257"):
        bpe(library(), 256)


@pytest.mark.parametrize("tokenizer", ["byte", "char"])
def test_a_size_that_has_no_effect_is_refused(tokenizer: str) -> None:
    with pytest.raises(ValueError, match=rf"^data\.vocab_size=500 is for data\.tokenizer=bpe or word, not {tokenizer}"):
        load_corpus(library(), tokenizer, 500)


def test_fingerprints_tell_merges_apart(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release of the library could merge in another order."""
    before = bpe(library())
    state = json.loads(before.state)
    state["model"]["merges"].reverse()
    shutil.rmtree(own_cache)
    monkeypatch.setattr("ablate.data.corpus.learn", lambda *_: json.dumps(state))
    assert bpe(library()).fingerprint != before.fingerprint


def digest() -> str:
    """Everything that training and encoding come to, for test_every_process.py."""
    corpus = bpe(library())
    found = hashlib.sha256((corpus.fingerprint + corpus.state).encode())
    for split in SPLITS:
        found.update(np.ascontiguousarray(corpus.tokens[split]).tobytes())
    return found.hexdigest()


def test_bytes_per_token() -> None:
    documents = library()
    total = sum(len(document.text) + 1 for document in documents)
    for tokenizer in ("byte", "char", "bpe"):
        corpus = load_corpus(documents, tokenizer)
        sizes = {split: len(corpus.tokens[split]) for split in SPLITS}
        assert sum(corpus.bytes_per_token[split] * sizes[split] for split in SPLITS) == pytest.approx(total)
        texts = {split: decoded(corpus, corpus.tokens[split]).encode() for split in SPLITS}
        for split in SPLITS:
            assert corpus.bytes_per_token[split] == pytest.approx(len(texts[split]) / sizes[split])
    assert load_corpus(documents, "byte").bytes_per_token == dict.fromkeys(SPLITS, 1.0)


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(extra_module.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"^data\.tokenizer=bpe needs tokenizers.*pip install -e '\.\[data\]'$"):
        bpe(library())
    with pytest.raises(ValueError, match=r"^data=digits needs scikit-learn, which is not installed"):
        extra("sklearn.datasets", "data=digits")


def texts() -> list[str]:
    """Texts that share little."""
    pick = random.Random(0)
    return [" ".join(f"{pick.choice(WORDS)}{pick.randrange(900)}" for _ in range(60)) for _ in range(200)]


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


def test_an_existing_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    rows = texts()
    file = saved_tokenizer(tmp_path / "tokenizer.json")
    task = Text(str(write_rows(tmp_path / "rows", "jsonl", rows)), 16, str(file))
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
    with pytest.raises(ValueError, match="does not exist"):
        Text(str(tmp_path / "rows"), 16, "missing.json")
    renamed.write_text("{}")
    with pytest.raises(ValueError, match=r"is no tokenizer\.json"):
        Text(str(tmp_path / "rows"), 16, str(renamed))


def test_the_tokenizer_of_gpt2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiktoken's own code, on an encoding that need not be downloaded."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([i]): i for i in range(256)} | {b"an": 256, b"ant": 257}
    small = tiktoken.Encoding("gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 258})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: {"gpt2": small}[name])
    task = Text(str(write_rows(tmp_path / "rows", "jsonl", texts())), 16, "gpt2")
    test = task.corpus.tokens["test"][: task.corpus.ends["test"][0]].tolist()
    assert task.vocab == 259 and test[-1] == 258 and decoded(task.corpus, test[:-1]) in texts()


def test_a_tokenizer_that_cannot_be_downloaded_is_a_line_and_requests_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    requests = pytest.importorskip("requests")
    get = requests.get

    def unreachable(name: str) -> None:
        assert requests.get is get
        raise OSError("no route to host")

    monkeypatch.setattr(tiktoken, "get_encoding", unreachable)
    with pytest.raises(ValueError, match=r"cannot be downloaded \(OSError: no route to host\).*TIKTOKEN_CACHE_DIR"):
        module.published("p50k_base")
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: time.sleep(5))
    with pytest.raises(ValueError, match=r"cannot be downloaded \(no answer within 0 s\)"):
        module.published("p50k_base")
