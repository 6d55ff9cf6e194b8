"""A corpus: documents, split without leakage and tokenised once into memory-mapped arrays."""

import contextlib
import fcntl
import hashlib
import json
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import Corrupt
from ablate.data.documents import Document
from ablate.data.split import split_documents
from ablate.data.tokenizer import SEPARATOR, checked_size, codec, learn, units
from ablate.results.atomic import digest, file_digest, read_json, write_json

SPLITS = ("train", "val", "test")
BLOCK = 1_000_000  # tokens whose pairs are counted in one go
COUNTED = 1 << 27  # training tokens that yardsticks are counted on, the first of each shard
FORMAT = 4  # raise it when the tokens of the same documents change
LAYOUT = 1  # raise it when the files of the cache change
DAMAGED = (OSError, EOFError, ValueError, LookupError, TypeError)  # all errors that reading a damaged file can raise


class Shards:
    """Arrays of token ids that are read as one (N,)."""

    def __init__(self, parts: Iterable[np.ndarray]):
        self.parts = list(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, at: Any) -> np.ndarray:
        """The ids at places: a slice, or an array (..., T) whose last axis counts up by one."""
        if isinstance(at, slice):
            whole = self.part(*at.indices(len(self))[:2]).parts
            return whole[0] if len(whole) == 1 else np.concatenate(whole)
        rows = [self[int(row[0]) : int(row[0]) + len(row)] for row in at.reshape(-1, at.shape[-1])]
        found = np.stack(rows).reshape(at.shape)
        for part in self.parts:  # pages that stay mapped count as this process's memory, in the end all of a file
            if isinstance(part, np.memmap):
                part._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return found

    def part(self, start: int, stop: int) -> "Shards":
        """The ids from `start` to before `stop`, without reading them."""
        first, last = np.searchsorted(self.starts[:-1], [start, max(start, stop - 1)], side="right") - 1
        return Shards(
            self.parts[i][max(0, start - self.starts[i]) : stop - self.starts[i]] for i in range(first, last + 1)
        )


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
    state: str  # what the tokenizer is besides its name, for decoding
    unknown: dict[str, float]  # split -> share of words outside the vocabulary, for tokenizers that have such words
    notes: list[str] = field(default_factory=list)  # what a user should know of how it was made
    folder: Path | None = None  # of a large one, with its index
    renewed: bool = False  # whether it was made in place of an earlier one, whose files or source had changed


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
    content = hashlib.sha256(f"{FORMAT} {fixed or tokenizer} {size} {len(documents)}".encode())
    for document in documents:
        content.update(f"\n{document.name} {len(document.text)}\n".encode() + document.text)
    fingerprint = content.hexdigest()[:32]
    folder = folder_of(fingerprint)
    return cached(
        folder,
        lambda: _make(folder, fingerprint, documents, tokenizer, size),
        lambda _: {split: np.load(folder / f"{split}.npy", mmap_mode="r") for split in SPLITS},
    )


def folder_of(recipe: Any) -> Path:
    """The folder of the cache for the corpus of a recipe."""
    return cache_folder() / f"corpus-{digest(json.dumps([LAYOUT, recipe], sort_keys=True).encode())[:32]}"


def cached(
    folder: Path,
    make: Callable[[], dict[str, Any]],
    tokens: Callable[[dict[str, Any]], dict[str, Any]],
    files: Iterable[Path] | None = None,
    index: dict[str, Any] | None = None,
) -> Corpus:
    """The corpus in a folder of the cache, with the `tokens` of its index, if that is known or `current`; otherwise one
    process makes it, and others wait.  Raises ValueError if it cannot be written."""
    renewed = False
    if (index := index or current(folder, files)) is None:
        try:
            with exclusive(folder.with_suffix(".lock")):
                if (index := current(folder, files)) is None:
                    renewed = (folder / "index.json").exists()
                    index = make()
        except OSError as error:
            raise ValueError(unwritable(folder, error)) from None
    return Corpus(
        tokens=tokens(index),
        names=json.loads((folder / "names.json").read_bytes()),
        ends={split: np.load(folder / f"{split}.ends.npy", mmap_mode="r") for split in SPLITS},
        state=(folder / "learned.txt").read_bytes().decode(),
        folder=None if index["source"] is None else folder,
        renewed=renewed,
        **index["corpus"],
    )


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock of the cache against other processes and threads."""
    with open(lock, "a+b") as file:
        with contextlib.suppress(OSError):  # file servers without locks; work may then be done twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def unwritable(folder: Path, error: OSError) -> str:
    """Why a folder of the cache cannot be made: a full disk, as a rule."""
    why = f"the corpus cannot be written in {folder.parent} ({error.strerror or f'{error}: is the disk full?'})"
    return f"{why}; what is done is kept: make room, and the same command goes on from there"


def current(folder: Path, files: Iterable[Path] | None, every: bool = False) -> dict[str, Any] | None:
    """The index of a corpus in the cache, None if there is none or its files or the source's have changed.  Where only
    times differ, in a small corpus, and with `every`, contents decide, and the index is renewed.  `files` is None if
    they are unknown."""
    try:
        index = read_json(folder / "index.json")
        every, renewed = every or index["source"] is None, False
        expected = {str(file): entry for file, entry in (index["source"] or {}).items()}
        if files is not None and expected.keys() != {os.path.abspath(file) for file in files}:
            return None
        for name, entry in [*expected.items(), *((folder / name, entry) for name, entry in index["files"].items())]:
            size, changed = stamp(name)
            if size != entry[0]:
                return None
            if changed != entry[1] or every:
                if file_digest(Path(name), size, changed) != entry[2]:
                    return None
                renewed, entry[1] = renewed or changed != entry[1], changed
    except (Corrupt, *DAMAGED):
        return None
    if renewed:
        with contextlib.suppress(OSError):  # a cache that may only be read
            write_json(folder / "index.json", index)
    return index


def stamp(file: str | Path) -> list[int]:
    """The size and the time of a file."""
    status = os.stat(file)
    return [status.st_size, status.st_mtime_ns]


def entry(file: Path) -> list[Any]:
    """The size, the time and the digest of a file."""
    found = stamp(file)
    return [*found, file_digest(file, *found)]


def write_corpus(
    folder: Path, arrays: dict[str, np.ndarray], names: dict[str, list[str]], state: str, index: dict[str, Any]
) -> dict[str, Any]:
    """Put a corpus of these arrays into the cache, whole or not at all; returns its index."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
        work = Path(temporary) / "corpus"
        work.mkdir()
        for name, array in arrays.items():
            np.save(work / f"{name}.npy", array)
        (work / "names.json").write_text(json.dumps(names))
        (work / "learned.txt").write_bytes(state.encode())
        index["files"] = {file.name: entry(file) for file in work.iterdir()}
        write_json(work / "index.json", index)
        with contextlib.suppress(OSError):  # another process was faster
            work.rename(folder)
    return index


def _make(
    folder: Path, fingerprint: str, documents: Sequence[Document], tokenizer: str, size: int | None
) -> dict[str, Any]:
    texts = [units(*document, tokenizer, SEPARATOR if len(documents) > 1 else "") for document in documents]
    parts, by_document = split_documents([document.text for document in documents], [len(text) for text in texts])
    pieces = {split: [texts[i][begin:end] for i, begin, end in parts[split]] for split in SPLITS}
    names = {split: [documents[i].name for i, _, _ in parts[split]] for split in SPLITS}
    state = learn(tokenizer, size, pieces["train"], [*pieces["val"], *pieces["test"]])
    vocab, encode = codec(tokenizer, state)
    coded = {split: [encode(piece) for piece in found] for split, found in pieces.items()}
    empty = next(ids[:0] for found in coded.values() for ids in found)
    streams = {split: np.concatenate([empty, *found]) for split, found in coded.items()}
    ends = {f"{split}.ends": np.cumsum([len(ids) for ids in found], dtype=int) for split, found in coded.items()}
    sizes = {
        split: sum(len(piece if isinstance(piece, bytes) else piece.encode()) for piece in found)
        for split, found in pieces.items()
    }
    if tokenizer == "bpe":
        # Another release of the library may merge differently, so the merges are part of the data's fingerprint.
        fingerprint = digest(f"{fingerprint} {json.loads(state)['model']['merges']}".encode())[:32]
    tokens = {split: Shards([stream]) for split, stream in streams.items()}
    corpus = facts(tokenizer, vocab, tokens, sizes)
    corpus |= {"fingerprint": fingerprint, "by_document": by_document}
    return write_corpus(folder, streams | ends, names, state, {"source": None, "corpus": corpus})


def facts(tokenizer: str, vocab: int, tokens: dict[str, Shards], sizes: dict[str, int]) -> dict[str, Any]:
    """What an index says of tokens; `sizes` are the bytes of the text of each split, {} if unknown."""
    lengths = {split: len(shards) for split, shards in tokens.items() if len(shards)}
    share = min(1.0, COUNTED / max(1, len(tokens["train"])))
    train = Shards(part[: math.ceil(share * len(part))] for part in tokens["train"].parts)
    words = tokenizer == "word"  # they do not encode the whole text, so there are no bits per byte
    zeros = {split: sum(int((part == 0).sum()) for part in tokens[split].parts) for split in lengths if words}
    return {
        "tokenizer": tokenizer,
        "vocab": vocab,
        "yardsticks": yardsticks(train, tokens["test"][:], vocab),
        "bytes_per_token": {split: sizes[split] / length for split, length in lengths.items() if sizes and not words},
        "unknown": {split: count / lengths[split] for split, count in zeros.items()},
    }


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
