"""A corpus: documents, split without leakage and tokenised once into memory-mapped arrays."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.files import read_regular
from ablate.config.typed_json import parse
from ablate.data.documents import Document
from ablate.data.split import split_documents
from ablate.data.tokenizer import SEPARATOR, Pieces, checked_size, codec, decode, learn, units
from ablate.results.atomic import SEAL, Sum, seal_of, sum_of, wrong

SPLITS = ("train", "val", "test")
BLOCK = 1_000_000  # tokens whose pairs are counted in one go
FORMAT = 4  # raise it when the cache of the same documents changes
DAMAGED = (OSError, EOFError, ValueError, LookupError, TypeError)  # all errors that reading a damaged file can raise


@dataclass
class Corpus:
    """Token streams of the three splits, and the documents in them."""

    fingerprint: str
    vocab: int
    tokens: dict[str, Any]  # split -> (N,), an array or Shards
    names: dict[str, list[str]]  # split -> documents
    ends: dict[str, np.ndarray]  # split -> (documents,), one past the last token
    by_document: bool  # whether splits consist of whole documents; otherwise each document was cut by position
    yardsticks: dict[str, float]
    bytes_per_token: dict[str, float]  # split -> mean UTF-8 bytes per token; empty if tokenising loses text
    tokenizer: str
    state: str  # what decoding needs besides the tokenizer's name
    unknown: dict[str, float]  # split -> share of words outside the vocabulary, for tokenizers that have such words
    notes: list[str] = field(default_factory=list)  # what a user should know of how it was made
    folder: Path | None = None  # of a large one, with its index

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids to text."""
        return decode([int(i) for i in ids], self.tokenizer, self.state)


def cache_folder() -> Path:
    """The cache of tokenised corpora: ABLATE_CACHE, else the user's cache folder, else a temporary one."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("ABLATE_CACHE") or Path(home) / "ablate")
    # Users without a home, or with a read-only one, are common on clusters and in containers.
    with contextlib.suppress(OSError):
        if folder.is_absolute() or not home.startswith("~"):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    folder = Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def load_corpus(documents: Sequence[Document], tokenizer: str, vocab_size: int | None = None) -> Corpus:
    """The corpus of these documents, from the cache or newly made.  Raises ValueError if they cannot be tokenised."""
    size = checked_size(tokenizer, vocab_size)
    fixed = learn(tokenizer, None, ()) if tokenizer.endswith(".json") else ""
    digest = hashlib.sha256(f"{FORMAT} {fixed or tokenizer} {size} {len(documents)}".encode())
    for document in documents:
        digest.update(f"\n{document.name} {len(document.text)}\n".encode() + document.text)
    folder = cache_folder() / digest.hexdigest()[:32]
    with contextlib.suppress(*DAMAGED):
        return _read(folder)
    with making(folder, folder.parent / ".lock"):
        with contextlib.suppress(*DAMAGED):  # another process may have made it meanwhile
            return _read(folder)
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, documents, tokenizer, size)
        return _read(folder)


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock of the cache against other processes and threads."""
    with open(lock, "a+b") as file:
        with contextlib.suppress(OSError):  # file servers without locks; work may then be done twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def making(folder: Path, lock: Path | None = None) -> Iterator[None]:
    """Hold the lock of a folder of the cache, which is being made.  Raises ValueError if it cannot be written."""
    try:
        with exclusive(lock or folder.with_suffix(".lock")):
            yield
    except OSError as error:
        raise ValueError(unwritable(folder, error)) from None


def unwritable(folder: Path, error: OSError) -> str:
    """Why a folder of the cache cannot be made: a full disk, as a rule."""
    why = f"the corpus cannot be written in {folder.parent} ({error.strerror or f'{error}: is the disk full?'})"
    return f"{why}; what is done is kept: make room, and the same command goes on from there"


def _read(folder: Path) -> Corpus:
    meta = json.loads(read_regular(folder / "meta.json"))
    if meta[SEAL] != seal_of(meta) or any(
        wrong(folder / name, parse(Sum, written)) for name, written in meta["files"].items()
    ):
        raise ValueError(f"{folder} is damaged")
    state, fingerprint = meta["alphabet"], folder.name
    if "tokenizer.json" in meta["files"]:
        state = (folder / "tokenizer.json").read_text(encoding="utf-8")
    if meta["tokenizer"] == "bpe":
        # Another release of the library may merge differently, so the merges are part of the data's fingerprint.
        fingerprint = hashlib.sha256(f"{fingerprint} {json.loads(state)['model']['merges']}".encode()).hexdigest()[:32]
    return Corpus(
        fingerprint,
        meta["vocab"],
        {split: np.load(folder / f"{split}.npy", mmap_mode="r") for split in SPLITS},
        meta["names"],
        {split: np.array(meta["ends"][split]) for split in SPLITS},
        meta["by_document"],
        meta["yardsticks"],
        meta["bytes_per_token"],
        meta["tokenizer"],
        state,
        meta.get("unknown", {}),
    )


def _write(folder: Path, documents: Sequence[Document], tokenizer: str, size: int | None) -> None:
    pieces, names, by_document = cut(documents, tokenizer)
    state = learn(tokenizer, size, pieces["train"], [*pieces["val"], *pieces["test"]])
    vocab, encode = codec(tokenizer, state)
    learned = tokenizer == "bpe" or tokenizer.endswith(".json")
    coded = {split: [encode(piece) for piece in found] for split, found in pieces.items()}
    empty = next(ids[:0] for found in coded.values() for ids in found)
    streams = {split: np.concatenate([empty, *found]) for split, found in coded.items()}
    ends = {split: np.cumsum([len(ids) for ids in found], dtype=int).tolist() for split, found in coded.items()}
    meta: dict[str, Any] = {"tokenizer": tokenizer, "vocab": vocab, "names": names, "ends": ends}
    meta |= {"by_document": by_document, "alphabet": "" if learned else state}
    meta["yardsticks"] = yardsticks(streams["train"], streams["test"], vocab)
    there = {split: stream for split, stream in streams.items() if len(stream)}
    if tokenizer == "word":  # words do not encode the whole text, so there are no bits per byte
        meta["bytes_per_token"] = {}
        meta["unknown"] = {split: float((stream == 0).mean()) for split, stream in there.items()}
    else:
        sizes = {
            split: sum(len(piece if isinstance(piece, bytes) else piece.encode()) for piece in pieces[split])
            for split in there
        }
        meta["bytes_per_token"] = {split: sizes[split] / len(stream) for split, stream in there.items()}
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as making:
        for split, stream in streams.items():
            np.save(Path(making) / f"{split}.npy", stream)
        if learned:
            (Path(making) / "tokenizer.json").write_text(state, encoding="utf-8")
        meta["files"] = {file.name: sum_of(file.read_bytes()).as_json() for file in Path(making).iterdir()}
        (Path(making) / "meta.json").write_text(json.dumps(meta | {SEAL: seal_of(meta)}))
        ready = Path(making).rename(Path(making + "-ready"))
        try:
            ready.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(ready)
        Path(making).mkdir()


def cut(documents: Sequence[Document], tokenizer: str) -> tuple[Pieces, dict[str, list[str]], bool]:
    """The text pieces of each split, the names of their documents, and whether pieces are whole documents."""
    end = SEPARATOR if len(documents) > 1 else ""
    closing = end.encode() if tokenizer == "byte" else end
    texts = [units(document.name, document.text, tokenizer) + closing for document in documents]
    parts, by_document = split_documents([document.text for document in documents], [len(text) for text in texts])
    pieces = {split: [texts[i][begin:end] for i, begin, end in parts[split]] for split in SPLITS}
    return pieces, {split: [documents[i].name for i, _, _ in parts[split]] for split in SPLITS}, by_document


def yardsticks(train: Any, test: np.ndarray, vocab: int) -> dict[str, float]:
    """Cross-entropy on the test split, in nats per token, of uniform, unigram and bigram models of the train split.
    Unigram counts start at 1; the bigram model interpolates: p(b|a) = (n(a, b) + p(b)) / (n(a) + 1)."""
    if len(train) < 2 or len(test) < 2:
        return {}
    wanted, weight = np.unique(_pairs(test, vocab), return_counts=True)
    after, found = np.zeros(vocab, np.int64), np.zeros(len(wanted), np.int64)
    for start in range(0, len(train) - 1, BLOCK):
        part = train[start : start + BLOCK + 1]
        after += np.bincount(part[:-1], minlength=vocab)
        pairs = _pairs(part, vocab)
        at = np.minimum(np.searchsorted(wanted, pairs), len(wanted) - 1)
        found += np.bincount(at[wanted[at] == pairs], minlength=len(wanted))
    counts = after + 1.0
    counts[train[len(train) - 1 :]] += 1
    unigram = counts / counts.sum()
    bigram = (found + unigram[wanted % vocab]) / (after[wanted // vocab] + 1)
    return {
        "uniform": float(np.log(vocab)),
        "unigram": float(-np.log(unigram[test]).mean()),
        "bigram": float(-(np.log(bigram) * weight).sum() / weight.sum()),
    }


def _pairs(tokens: np.ndarray, vocab: int) -> np.ndarray:
    return tokens[:-1].astype(np.int64) * vocab + tokens[1:]
