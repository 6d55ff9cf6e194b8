"""A corpus: token ids of three splits, in a cache of files that are mapped into memory."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import Corrupt
from ablate.runs.files import digest, file_digest, read_json, write_json

SPLITS = ("train", "val", "test")
BLOCK = 1_000_000  # tokens that are counted in one go
COUNTED = 1 << 27  # training tokens that yardsticks are counted on
SCORED = 10_000_000  # test tokens that they are computed on
CHECKED = 64 << 20  # bytes; of larger files only the size is compared
LAYOUT = 7  # raise it when the files of the cache change
DAMAGED = (Corrupt, OSError, ValueError, LookupError, TypeError)  # all errors that reading a damaged file can raise


class Shards:
    """Arrays of token ids on disk that are read as one (N,): all ids, or those from `start` to before `stop`."""

    def __init__(self, parts: Iterable[np.ndarray], start: int = 0, stop: int | None = None):
        self.parts = [np.asarray(part) for part in parts]
        self.ends = np.cumsum([len(part) for part in self.parts])
        self.start = start
        self.stop = int(self.ends[-1]) if stop is None else stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, places: slice) -> np.ndarray:
        """A copy of the ids at places."""
        start, stop, _ = places.indices(len(self))
        start += self.start
        stop += self.start
        ids = [np.empty(0, self.parts[0].dtype)]
        for i in range(np.searchsorted(self.ends, start, side="right"), len(self.parts)):
            begin = self.ends[i] - len(self.parts[i])
            if begin >= stop:
                break
            ids.append(self.parts[i][max(0, start - begin) : stop - begin])
        return np.concatenate(ids)


@dataclasses.dataclass
class Corpus:
    """Token streams of the three splits, and the documents in them."""

    fingerprint: str
    vocab: int
    tokens: dict[str, Any]  # split -> (N,), an array or Shards
    names: dict[str, list[str]]  # split -> documents
    ends: dict[str, np.ndarray]  # split -> (documents,), one past the last token
    yardsticks: dict[str, float]
    bytes_per_token: dict[str, float]  # split -> mean UTF-8 bytes per token; empty if unknown
    tokenizer: str
    state: str  # what the tokenizer is besides its name, for decoding
    notes: list[str]  # what a user should know of how it was made


class Unprepared(Exception):
    """A large text is not prepared, and the plan has not yet looked for all other mistakes."""


may_prepare = True  # whether large texts, which take minutes, may be prepared now


@contextlib.contextmanager
def nothing_prepared() -> Iterator[None]:
    """Raise Unprepared for large texts that are not in the cache."""
    global may_prepare
    may_prepare = False
    try:
        yield
    finally:
        may_prepare = True


def cache_folder() -> Path:
    """The cache of tokenised corpora: ABLATE_CACHE, else the user's cache folder, else a temporary one."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.path.expanduser(os.environ.get("ABLATE_CACHE") or f"{home}/ablate")
    # Users without a home, or with a read-only one, are common on clusters and in containers.
    with contextlib.suppress(OSError):
        if not folder.startswith("~"):
            os.makedirs(folder, exist_ok=True)
            if os.access(folder, os.W_OK):
                return Path(folder)
    temporary = Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}"
    temporary.mkdir(exist_ok=True)
    return temporary


def folder_of(recipe: Any) -> Path:
    """The folder of the cache for the corpus of a recipe."""
    return cache_folder() / f"corpus-{digest(json.dumps([LAYOUT, recipe], sort_keys=True).encode())[:32]}"


def cached(folder: Path, make: Callable[[], Corpus]) -> Corpus:
    """The corpus in a folder of the cache.  If it is not there, one process makes it, and others wait.  Raises
    ValueError."""
    corpus = open_corpus(folder)
    if corpus is not None:
        return corpus
    with locked(folder):
        corpus = open_corpus(folder)
        if corpus is None:
            corpus = make()
            save_corpus(folder, corpus)
    return corpus


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache.  Raises ValueError if something cannot be written there."""
    try:
        with exclusive(folder.with_suffix(".lock")):
            yield
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(folder: Path, error: OSError) -> ValueError:
    """The error of a folder of the cache that cannot be made."""
    why = error.strerror or f"{error}: is the disk full?"
    return ValueError(f"the corpus cannot be written in {folder.parent} ({why}); make room")


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock of the cache against other processes and threads."""
    with open(lock, "a+b") as file:
        with contextlib.suppress(OSError):  # file servers without locks; work may then be done twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_corpus(folder: Path) -> Corpus | None:
    """The corpus in a folder of the cache; None if it is not there, or not as it was written."""
    try:
        index = read_json(folder / "index.json")
        for name, (size, sha256) in index["files"].items():
            file = folder / name
            if file.stat().st_size != size:
                return None
            if size < CHECKED and file_digest(file) != sha256:
                return None
        tokens = {}
        ends = {}
        for split in SPLITS:
            ends[split] = np.load(folder / f"{split}.ends.npy")
            if index["dtype"]:
                ids = np.memmap(folder / f"{split}.bin", index["dtype"], "r")
                tokens[split] = np.asarray(ids)  # whose slices take a fifth of the time
        return Corpus(tokens=tokens, ends=ends, **index["corpus"])
    except DAMAGED:
        return None


def save_corpus(folder: Path, corpus: Corpus) -> None:
    """Put a corpus into the cache, its tokens if they are in memory."""
    # In a folder of this process alone: where file servers have no locks, several may do the same.
    parent = tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-")
    with parent as temporary, replaced(folder, Path(temporary) / "corpus") as work:
        for split, tokens in corpus.tokens.items():
            if isinstance(tokens, np.ndarray):
                tokens.tofile(work / f"{split}.bin")
        write_index(work, corpus)


@contextlib.contextmanager
def replaced(folder: Path, work: Path) -> Iterator[Path]:
    """A new folder `work`, which takes the place of `folder` when it is whole."""
    shutil.rmtree(work, ignore_errors=True)  # what a killed process has left
    work.mkdir()
    try:
        yield work
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_index(work: Path, corpus: Corpus) -> None:
    """Write what a corpus has besides its tokens, and the sizes and digests of all files."""
    for split, ends in corpus.ends.items():
        np.save(work / f"{split}.ends.npy", ends)
    files = {file.name: [file.stat().st_size, file_digest(file)] for file in sorted(work.glob("*.*"))}
    facts = {name: value for name, value in vars(corpus).items() if name not in ("tokens", "ends")}
    dtype = corpus.tokens["train"].dtype.name if "train.bin" in files else None
    write_json(work / "index.json", {"corpus": facts, "dtype": dtype, "files": files})


def yardsticks(train: Any, test: Any, vocab: int) -> dict[str, float]:
    """Cross-entropy on test tokens, in nats per token, of uniform, unigram and bigram models of the train split.
    Unigram counts start at 1; the bigram model interpolates: p(b|a) = (n(a, b) + p(b)) / (n(a) + 1)."""
    length = min(len(train), COUNTED)
    test = test[:SCORED]
    if length < 2 or len(test) < 2:
        return {}
    test_pairs, test_counts = np.unique(pairs_of(test, vocab), return_counts=True)
    followed = np.zeros(vocab, np.int64)  # how often each id has a next one
    pair_counts = np.zeros(len(test_pairs), np.int64)
    for start in range(0, length - 1, BLOCK):
        block = train[start : min(start + BLOCK + 1, length)]
        followed += np.bincount(block[:-1], minlength=vocab)
        pairs = pairs_of(block, vocab)
        places = np.minimum(np.searchsorted(test_pairs, pairs), len(test_pairs) - 1)
        pair_counts += np.bincount(places[test_pairs[places] == pairs], minlength=len(test_pairs))
    counts = followed + 1.0
    counts[train[length - 1 : length]] += 1
    unigram = counts / counts.sum()
    first = test_pairs // vocab
    second = test_pairs % vocab
    bigram = (pair_counts + unigram[second]) / (followed[first] + 1)
    return {
        "uniform": float(np.log(vocab)),
        "unigram": float(-np.log(unigram[test]).mean()),
        "bigram": float(-(np.log(bigram) * test_counts).sum() / test_counts.sum()),
    }


def pairs_of(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """A number for each pair of neighbouring tokens."""
    return tokens[:-1].astype(np.int64) * vocab + tokens[1:]
