"""Texts of token ids, to compare with what was tokenised; texts in files of every format."""

import bz2
import gzip
import json
import lzma
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ablate.config.extra import extra
from ablate.data.corpus import SPLITS, Corpus
from ablate.data.documents import Document
from ablate.data.prepare import corpus_of
from ablate.data.tokenizer import PUBLISHED

WORDS = ["ant", "bee", "crow", "dingo", "élan", "𝄞", "\t", "\n", "\n\n", "  ", "naïve.", "x=1"]


def some_documents(count: int = 150, seed: int = 3) -> list[Document]:
    """Documents of few words, each in an order of its own."""
    pick = random.Random(seed)
    return [Document(f"d{i}", " ".join(pick.choices(WORDS, k=80)).encode()) for i in range(count)]


def some_texts(count: int = 300, seed: int = 0) -> list[str]:
    """Texts that share nothing."""
    pick = random.Random(seed)
    words = WORDS[:5]
    return [" ".join(f"{pick.choice(words)}{pick.randrange(900)}" for _ in range(60)) for _ in range(count)]


class InMemory:
    """A source of documents that are in memory; see `Files`."""

    splits = ("train",)

    def __init__(self, title: str, texts: Sequence[Document]):
        self.title = self.words = title
        self.texts = texts

    def recipe(self) -> str:
        return sha256(repr([tuple(document) for document in self.texts]).encode()).hexdigest()

    def size(self) -> int:
        return sum(len(document.text) for document in self.texts)

    def parts(self) -> list[tuple[str, Any]]:
        return [("train", self.texts)]

    def documents(self, split: str, part: Sequence[Document], cut: bool = False) -> Iterator[Document]:
        yield from part


def load(documents: Sequence[Document], tokenizer: str = "byte", size: int | None = None) -> Corpus:
    """The corpus of documents that are to be split."""
    source: Any = InMemory("some", documents)
    return corpus_of(source, tokenizer, size)


def streams(corpus: Corpus) -> dict[str, list[int]]:
    """The ids of each split."""
    return {split: corpus.tokens[split][:].tolist() for split in SPLITS}


def texts_of(corpus: Corpus, split: str) -> dict[str, str]:
    """The documents of a split as their ids are decoded, by their names."""
    texts = {}
    begin = 0
    for name, end in zip(corpus.names[split], corpus.ends[split].tolist(), strict=True):
        texts[name] = decoded(corpus, corpus.tokens[split][begin:end])
        begin = end
    assert begin == len(corpus.tokens[split])
    return texts


def flip(file: Path) -> None:
    """Flip a bit in the middle of a file, and leave its time as it is."""
    status = file.stat()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def decoded(corpus: Corpus, ids: Iterable[int]) -> str:
    """Decode ids; bytes that are not UTF-8 become U+FFFD."""
    found = [int(i) for i in ids]
    match corpus.tokenizer:
        case "byte":
            return bytes(found).decode(errors="replace")
        case "char":
            return "".join(corpus.state[i] for i in found)
        case "word":
            words = json.loads(corpus.state)
            return " ".join(words[i] for i in found)
        case "token":
            return " ".join(map(str, found))
        case name if name in PUBLISHED:
            return str(extra("tiktoken", "decoding").get_encoding(name).decode(found))
    return str(
        extra("tokenizers", "decoding").Tokenizer.from_str(corpus.state).decode(found, skip_special_tokens=False)
    )


def refusal(task: Callable[..., object], *arguments: Any, **settings: Any) -> str:
    """The one line that refuses to make a task of these settings."""
    with pytest.raises(ValueError) as caught:
        task(*arguments, **settings)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


def write_rows(folder: Path, kind: str, rows: list[str]) -> Path:
    """Documents as a file, or files, of a format: the kind is the ending of their names."""
    folder.mkdir()
    lines = "".join(json.dumps({"id": i, "text": row}) + "\n" for i, row in enumerate(rows)).encode()
    if kind == "txt":
        for i, row in enumerate(rows):
            (folder / f"{i:05}.txt").write_text(row)
    else:
        compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}.get(kind.split(".")[-1], bytes)
        (folder / f"a.{kind}").write_bytes(compress(lines))
    return folder
