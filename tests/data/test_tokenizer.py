"""Tokenizers: learned from the train split alone, back to the text, the same everywhere; those made elsewhere."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from corpora import decoded, load, refusal, some_documents, some_texts, texts_of, write_rows

from ablate.config import extra as extra_module
from ablate.data import tokenizer as module
from ablate.data.corpus import SPLITS
from ablate.data.language import Text
from ablate.data.tokenizer import chunks

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.mark.parametrize("count", [1, 3, 150])
@pytest.mark.parametrize("tokenizer", ["byte", "char", "bpe"])
def test_ids_decode_to_the_text(tokenizer, count):
    """Of few documents each is cut, of many each is whole."""
    documents = {document.name: document.text.decode() for document in some_documents(count)}
    corpus = load(some_documents(count), tokenizer)
    sizes = Counter[str]()
    for split in SPLITS:
        for name, text in texts_of(corpus, split).items():
            sizes[name] += len(text.removesuffix("\0").encode())
            if count == 150:
                assert text == documents[name] + "\0"
            elif tokenizer != "byte":  # which may be cut within a character
                assert text.removesuffix("\0") in documents[name]
    if tokenizer != "byte":
        assert sizes == {name: len(text.encode()) for name, text in documents.items()}


def test_only_the_train_split_is_learned_from():
    corpus = load(some_documents(), "bpe", 300)
    train = texts_of(load(some_documents(), "char"), "train").values()
    assert module.learn("bpe", 300, train, ["zebra zebra " * 500]) == corpus.state


# Blank lines and indentation, other white space, white space of other scripts, no letters, apostrophes.
ODD = [
    "",
    "\n\n\n    ",
    " \n \t\r\n  ",
    "\u3000\x85\x1c\xa0 \u2028x",
    " \N{GRINNING FACE}\u0301 1 22 !? \n",
    " it's we'll \n'",
]


@pytest.mark.parametrize("odd", ODD)
def test_a_text_in_pieces_gives_the_ids_of_the_library_on_the_whole(odd):
    """Where texts are cut no word goes across."""
    (document,) = some_documents(1)
    text = f"{odd}{document.text.decode()}{odd}".join((document.text.decode() * 2).split("ant"))
    tokenizer = module.train_bpe([text], 350)
    for size in (1, 10, 10**6):
        parts = chunks(text, size)
        assert "".join(parts) == text and (len(parts) == 1) == (size == 10**6)
        assert [i for part in parts for i in tokenizer.encode(part).ids] == tokenizer.encode(text).ids
        assert module.train_bpe(parts, 350).to_str() == tokenizer.to_str()
    assert max(map(len, chunks(text, 10))) < 200


SIZES = [("bpe", 256, "must be ≥ 257"), ("byte", 500, "=500 is for data.tokenizer=bpe or word, not byte")]


@pytest.mark.parametrize(("tokenizer", "size", "words"), SIZES)
def test_a_size_that_cannot_be_is_refused(tokenizer, size, words):
    message = refusal(load, some_documents(3), tokenizer, size)
    assert message.startswith("data.vocab_size") and words in message


def test_a_tokenizer_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"data\.tokenizer='bytes'.*did you mean byte"):
        load(some_documents(3), "bytes")


@pytest.mark.parametrize("tokenizer", ["byte", "char", "bpe"])
def test_bytes_per_token(tokenizer):
    corpus = load(some_documents(), tokenizer)
    for split in SPLITS:
        size = sum(len(text.encode()) for text in texts_of(corpus, split).values())
        assert corpus.bytes_per_token[split] == pytest.approx(size / len(corpus.tokens[split]))


def test_a_missing_library_is_one_line(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(extra_module.importlib, "import_module", missing)
    with pytest.raises(ValueError, match=r"^data\.tokenizer=bpe needs tokenizers.*pip install -e '\.\[data\]'$"):
        load(some_documents(), "bpe")


def saved_tokenizer(file: Path) -> Path:
    """A tokenizer.json as another program writes it."""
    library = pytest.importorskip("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    trainer = library.trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(some_texts(), trainer)
    tokenizer.enable_truncation(8)  # for the inputs of the model that it was made with
    tokenizer.enable_padding(length=1000)
    tokenizer.save(str(file))
    return file


def test_a_tokenizer_made_elsewhere_is_used_as_it_is(tmp_path):
    file = saved_tokenizer(tmp_path / "tokenizer.json")
    rows = write_rows(tmp_path / "rows", "jsonl", some_texts())
    task = Text(str(rows), 16, str(file))
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(file))
    library.no_truncation()
    library.no_padding()
    expected = {(*library.encode(text).ids, 0) for text in some_texts()}  # and the id of a document's end
    test = task.corpus.tokens["test"]
    borders = [0, *task.corpus.ends["test"].tolist()]
    assert all(tuple(test[start:end].tolist()) in expected for start, end in pairwise(borders))
    assert task.vocab == 500 and task.title == "tokenizer LM on rows"
    assert Text(str(rows), 16, str(file.rename(tmp_path / "other.json"))).fingerprint == task.fingerprint


@pytest.mark.parametrize(("content", "words"), [(None, "is no tokenizer.json"), ("{}", "is no tokenizer.json")])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, content, words):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        load(some_documents(3), str(tmp_path / "tokenizer.json"))


def test_the_tokenizer_of_gpt2(tmp_path, monkeypatch):
    """With tiktoken's own code, on an encoding that need not be downloaded."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([i]): i for i in range(256)} | {b"an": 256, b"ant": 257}
    small = tiktoken.Encoding("gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 258})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: {"gpt2": small}[name])
    task = Text(str(write_rows(tmp_path / "rows", "jsonl", some_texts())), 16, "gpt2")
    test = task.corpus.tokens["test"][: task.corpus.ends["test"][0]].tolist()
    assert task.vocab == 259 and test[-1] == 258 and decoded(task.corpus, test[:-1]) in some_texts()


def test_a_tokenizer_that_cannot_be_downloaded_is_a_line(monkeypatch):
    def unreachable(name):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(pytest.importorskip("tiktoken"), "get_encoding", unreachable)
    with pytest.raises(ValueError, match=r"cannot be downloaded \(ConnectionError: no route\).*TIKTOKEN_CACHE_DIR"):
        module.published("p50k_base")


def test_words_have_ids_by_their_frequency_and_the_others_are_unknown(tmp_path):
    state = module.learn("word", 6, ["b a_1 b don't\0", "b a_1 ' ?\0"])
    assert json.loads(state) == ["<unk>", "\0", "b", "'", "a_1", "?"]  # ties go by letters
    assert module.codec("word", state).encode("b  \tB ? <unk>\0").tolist() == [2, 0, 5, 0, 0, 0, 1]
    task = Text(str(write_rows(tmp_path / "rows", "jsonl", some_texts())), 16, "word", 9)
    assert task.vocab == 9 and task.bytes_per_token == {}
    assert "not among the 9 of the vocabulary: they are <unk>" in task.notes[0]
