"""Words: split by a plain rule, the most frequent of the train split, the rest counted as unknown."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from corpora import decoded

from ablate.data.corpus import SPLITS, load_corpus
from ablate.data.documents import Document
from ablate.data.language import Text
from ablate.data.masked import MaskedText
from ablate.data.tokenizer import UNKNOWN, Words, vocabulary, words_of

SEVERAL = ["ant", "bee", "crow", "dingo", "élan", "naïve", "x_1", "don't"]
RARE = [f"rare{i}" for i in range(300)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache for each test."""
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))


def library(count: int) -> list[Document]:
    """Documents of few frequent words and many rare ones."""
    pick = random.Random(3)
    words = (pick.choices([*SEVERAL, "\n", *RARE], [300] * 9 + [1] * 300, k=80) for _ in range(count))
    return [Document(f"d{i}", " ".join(each).encode()) for i, each in enumerate(words)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ant bee  BEE\tx_1 7", ["Ant", "bee", "BEE", "x_1", "7"]),
        ("don't (stop).\n\n", ["don", "'", "t", "(", "stop", ")", ".", "\n", "\n"]),
        ("naïve élan\r\n𝄞=1.5", ["naïve", "élan", "\n", "𝄞", "=", "1", ".", "5"]),
        ("end\0", ["end", "\0"]),
        (" \t", []),
    ],
)
def test_a_text_is_split_at_spaces_and_around_other_signs(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


def test_the_most_frequent_words_have_the_first_ids_and_ties_go_by_letters() -> None:
    found = vocabulary(["b a b c\0", "c d b\0"], 5, "\0")
    assert found == [UNKNOWN, "\0", "b", "c", "a"]
    assert vocabulary(["b a b c\0"], 99, "\0") == [UNKNOWN, "\0", "b", "a", "c"]
    assert Words(found).encode("d b <unk> c\0").tolist() == [0, 2, 0, 0, 0, 3, 1]


@pytest.mark.parametrize("count", [1, 3, 150])
def test_ids_stand_for_words_and_unknown_ones_are_counted(count: int) -> None:
    documents = library(count)
    corpus = load_corpus(documents, "word", 20)
    assert corpus.vocab == 20 == len(json.loads(corpus.state)) and not corpus.bytes_per_token
    texts = {document.name: document.text.decode() for document in documents}
    known = {*json.loads(corpus.state)}
    for split in SPLITS:
        tokens, begin = corpus.tokens[split], 0
        assert corpus.unknown[split] == pytest.approx(np.mean(tokens == 0)) and tokens.max() < 20
        for name, end in zip(corpus.names[split], corpus.ends[split], strict=True):
            shown = decoded(corpus, tokens[begin:end]).split(" ")
            if corpus.by_document:
                own = [*texts[name].replace("'", " ' ").split(" "), "\0"]
                assert shown == [word if word in known else UNKNOWN for word in own]
            begin = end
    assert max(corpus.unknown.values()) > 0


def test_the_vocabulary_is_of_the_train_split_alone() -> None:
    corpus = load_corpus(library(150), "word", 30)
    train = Counter(decoded(corpus, corpus.tokens["train"]).split(" "))
    del train[UNKNOWN], train["\0"]
    ranked = [train[word] for word in json.loads(corpus.state)[2:]]
    assert ranked == sorted(ranked, reverse=True) and all(ranked)


def test_a_corpus_of_words_is_the_same_from_the_cache() -> None:
    made, read = load_corpus(library(3), "word"), load_corpus(library(3), "word")
    assert (made.fingerprint, made.state, made.unknown) == (read.fingerprint, read.state, read.unknown)
    assert load_corpus(library(3), "word", 50).fingerprint != made.fingerprint


@pytest.mark.parametrize("size", [2, -1])
def test_too_small_a_vocabulary_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=rf"data\.vocab_size={size} is too small.*take 3"):
        load_corpus(library(3), "word", size)


def test_a_task_of_words_tells_what_is_unknown_and_has_no_bits_per_byte(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(library(1)[0].text.decode() * 40)
    for task in (Text(str(file), 8, "word", 12), MaskedText(str(file), 8, "word", 12, 0.5)):
        assert not task.bytes_per_token and "word" in task.token and "word" in task.title
        (note,) = task.notes
        assert all(f"% of {split}" in note for split in SPLITS) and UNKNOWN in note
    assert Text(str(file), 8, "char").notes == []
    assert int(Text(str(file), 8, "word", 12).batch(0, 0, 64).targets.max()) < 12
