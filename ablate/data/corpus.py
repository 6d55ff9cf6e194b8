"""A corpus: documents, split without leakage and tokenised once into memory-mapped arrays."""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.errors import Corrupt
from ablate.data.documents import Document, stamp
from ablate.data.split import split_documents
from ablate.data.tokenizer import SEPARATOR, check_size, codec, learn, units
from ablate.runs.files import digest, file_digest, read_json, write_json

SPLITS = ("train", "val", "test")
BLOCK = 1_000_000  # tokens whose pairs are counted in one go
COUNTED = 1 << 27  # training tokens that yardsticks are counted on, the first of each shard
FORMAT = 4  # raise it when the tokens of the same documents change
LAYOUT = 2  # raise it when the files of the cache change
DAMAGED = (OSError, EOFError, ValueError, LookupError, TypeError)  # all errors that reading a damaged file can raise


class Shards:
    """Arrays of token ids that are read as one (N,)."""

    def __init__(self, parts: Iterable[np.ndarray]):
        self.parts = list(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, places: Any) -> np.ndarray:
        """The ids at places: a slice, or an array (..., T) whose last axis counts up by one."""
        if isinstance(places, slice):
            start, stop, _ = places.indices(len(self))
            parts = self.part(start, stop).parts
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        windows = places.reshape(-1, places.shape[-1])
        rows = [self[int(window[0]) : int(window[0]) + len(window)] for window in windows]
        ids = np.stack(rows).reshape(places.shape)
        for part in self.parts:  # pages that stay mapped count as this process's memory, in the end all of a file
            if isinstance(part, np.memmap):
                part._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return ids

    def part(self, start: int, stop: int) -> "Shards":
        """The ids from `start` to before `stop`, without reading them."""
        first, last = np.searchsorted(self.starts[:-1], [start, max(start, stop - 1)], side="right") - 1
        parts = []
        for i in range(first, last + 1):
            begin = self.starts[i]
            parts.append(self.parts[i][max(0, start - begin) : stop - begin])
        return Shards(parts)


@dataclasses.dataclass
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
    notes: list[str] = dataclasses.field(default_factory=list)  # what a user should know of how it was made
    folder: Path | None = None  # of a large one, with its index


class Unprepared(Exception):
    """A large text is not prepared, and the plan has not yet looked for all other mistakes."""


class Unwritable(ValueError):
    """The cache cannot be written: its disk is full, as a rule."""


FACTS = ("fingerprint", "vocab", "by_document", "yardsticks", "bytes_per_token", "tokenizer", "unknown", "notes")
planned: dict[Path, Corpus] = {}  # corpora of plans, by their folders in the cache, where they are not yet
planning = False
unprepared: list[str] | None = None  # texts that were asked for before they may be prepared; None if they may


@contextlib.contextmanager
def written_at_end() -> Iterator[None]:
    """Make corpora in memory, and write them to the cache at the end; an error, such as of a plan that is refused,
    leaves the cache as it was."""
    global planning
    planning = True
    try:
        yield
    finally:
        planning = False
    for folder, corpus in planned.items():
        with locked(folder):
            if open_corpus(folder) is None:
                save_corpus(folder, corpus)
    planned.clear()


@contextlib.contextmanager
def nothing_prepared() -> Iterator[list[str]]:
    """Raise Unprepared for large texts, which take minutes to prepare, and list them."""
    global unprepared
    unprepared = []
    try:
        yield unprepared
    finally:
        unprepared = None


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


def folder_of(recipe: Any) -> Path:
    """The folder of the cache for the corpus of a recipe."""
    return cache_folder() / f"corpus-{digest(json.dumps([LAYOUT, recipe], sort_keys=True).encode())[:32]}"


def load_corpus(
    documents: Sequence[Document],
    tokenizer: str,
    vocab_size: int | None = None,
    held_out: Mapping[str, Sequence[Document]] | None = None,
) -> Corpus:
    """The corpus of these documents, from the cache or newly made; `held_out` are documents of val and test, if they
    are not to be chosen.  Raises ValueError if they cannot be tokenised."""
    size = check_size(tokenizer, vocab_size)
    fixed = learn(tokenizer, None, ()) if tokenizer.endswith(".json") else tokenizer
    content = hashlib.sha256(f"{FORMAT} {fixed} {size} {len(documents)}".encode())
    for split, group in {"train": documents, **(held_out or {})}.items():
        if split != "train":
            content.update(f"\n{split} {len(group)}".encode())
        for document in group:
            content.update(f"\n{document.name} {len(document.text)}\n".encode() + document.text)
    fingerprint = content.hexdigest()[:32]
    return cached(folder_of(fingerprint), lambda: make_corpus(fingerprint, documents, tokenizer, size, held_out))


def cached(folder: Path, make: Callable[[], Corpus], tokens: dict[str, Any] | None = None) -> Corpus:
    """The small corpus in a folder of the cache, with `tokens` if they lie elsewhere.  If it is not there, one process
    makes it, and others wait.  Raises ValueError if it cannot be written."""
    corpus = planned.get(folder) or open_corpus(folder, tokens)
    if corpus is not None:
        return corpus
    if planning:
        planned[folder] = make()
        return planned[folder]
    with locked(folder):
        corpus = open_corpus(folder, tokens)
        if corpus is None:
            corpus = make()
            save_corpus(folder, corpus)
    return corpus


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache.  Raises Unwritable if something cannot be written there."""
    try:
        with exclusive(folder.with_suffix(".lock")):
            yield
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(folder: Path, error: OSError) -> Unwritable:
    """The error of a folder of the cache that cannot be made."""
    why = error.strerror or f"{error}: is the disk full?"
    return Unwritable(f"the corpus cannot be written in {folder.parent} ({why}); make room")


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock of the cache against other processes and threads."""
    with open(lock, "a+b") as file:
        with contextlib.suppress(OSError):  # file servers without locks; work may then be done twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_corpus(folder: Path, tokens: dict[str, Any] | None = None, contents: bool = True) -> Corpus | None:
    """The corpus in a folder of the cache, with `tokens` if they lie elsewhere; None if it is not there, or not as it
    was written: its files have other sizes, or other `contents`."""
    try:
        index = read_json(folder / "index.json")
        for name, (size, sha256) in index["files"].items():
            if (folder / name).stat().st_size != size:
                return None
            if contents and sha256_of(folder / name) != sha256:
                return None
        if tokens is None:
            tokens = {split: open_shards(folder, names) for split, names in index["shards"].items()}
        return Corpus(
            tokens=tokens,
            names=json.loads((folder / "names.json").read_bytes()),
            ends={split: np.load(folder / f"{split}.ends.npy") for split in SPLITS},
            state=(folder / "learned.txt").read_bytes().decode(),
            **index["corpus"],
        )
    except (Corrupt, *DAMAGED):
        return None


def sha256_of(file: Path) -> str:
    """The digest of a file, computed again if its size or time has changed."""
    return file_digest(file, *stamp(file))


def open_shards(folder: Path, names: list[str]) -> Any:
    """The ids in files of a folder, on disk."""
    arrays = [np.load(folder / name, mmap_mode="r") for name in names]
    return arrays[0] if len(arrays) == 1 else Shards(arrays)


def is_as_written(folder: Path) -> bool:
    """Whether all files of a corpus are as they were written; reads them all."""
    file_digest.cache_clear()
    return open_corpus(folder) is not None


def save_corpus(folder: Path, corpus: Corpus) -> None:
    """Put a corpus into the cache, whole or not at all; its tokens if they are in memory."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
        work = Path(temporary) / "corpus"
        work.mkdir()
        shards = {}
        for split, tokens in corpus.tokens.items():
            if isinstance(tokens, np.ndarray):
                shards[split] = [f"{split}.npy"]
                np.save(work / f"{split}.npy", tokens)
        write_index(work, corpus, shards)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process was faster
            work.rename(folder)


def write_index(work: Path, corpus: Corpus, shards: dict[str, list[str]]) -> None:
    """Write what a corpus has besides its tokens, and the index of all files."""
    for split, ends in corpus.ends.items():
        np.save(work / f"{split}.ends.npy", ends)
    (work / "names.json").write_text(json.dumps(corpus.names))
    (work / "learned.txt").write_bytes(corpus.state.encode())
    files = {file.name: [file.stat().st_size, sha256_of(file)] for file in sorted(work.iterdir()) if file.is_file()}
    facts = {name: getattr(corpus, name) for name in FACTS}
    write_json(work / "index.json", {"corpus": facts, "shards": shards, "files": files})


def make_corpus(
    fingerprint: str,
    documents: Sequence[Document],
    tokenizer: str,
    size: int | None,
    held_out: Mapping[str, Sequence[Document]] | None,
) -> Corpus:
    """Split and tokenise documents in memory."""
    groups = {"train": documents, **(held_out or {})}
    end = SEPARATOR if any(len(group) > 1 for group in groups.values()) else ""
    texts = {split: [units(*document, tokenizer, end) for document in group] for split, group in groups.items()}
    names = {split: [document.name for document in group] for split, group in groups.items()}
    by_document = True
    if held_out is None:
        lengths = [len(text) for text in texts["train"]]
        parts, by_document = split_documents([document.text for document in documents], lengths)
        names = {split: [documents[i].name for i, _, _ in parts[split]] for split in SPLITS}
        texts = {split: [texts["train"][i][start:stop] for i, start, stop in parts[split]] for split in SPLITS}
    state = learn(tokenizer, size, texts["train"], [*texts["val"], *texts["test"]])
    encoder = codec(tokenizer, state)
    ids = {split: [encoder.encode(text) for text in texts[split]] for split in SPLITS}
    dtype = next(part.dtype for split in SPLITS for part in ids[split])
    tokens = {split: np.concatenate([np.empty(0, dtype), *ids[split]]) for split in SPLITS}
    ends = {split: np.cumsum([len(part) for part in ids[split]], dtype=int) for split in SPLITS}
    sizes = {split: sum(map(byte_length, texts[split])) for split in SPLITS}
    if tokenizer == "bpe":
        # Another release of the library may merge differently, so the merges are part of the data's fingerprint.
        fingerprint = digest(f"{fingerprint} {json.loads(state)['model']['merges']}".encode())[:32]
    facts = facts_of(tokenizer, encoder.vocab, tokens, sizes)
    return Corpus(fingerprint=fingerprint, names=names, ends=ends, state=state, by_document=by_document, **facts)


def byte_length(text: str | bytes) -> int:
    """The length of a text in UTF-8 bytes."""
    return len(text if isinstance(text, bytes) else text.encode())


def facts_of(tokenizer: str, vocab: int, tokens: dict[str, Any], sizes: dict[str, int]) -> dict[str, Any]:
    """What follows from token ids, for a Corpus; `sizes` are the bytes of the text of each split, {} if unknown."""
    lengths = {split: len(tokens[split]) for split in SPLITS if len(tokens[split])}
    bytes_per_token = {}
    unknown = {}
    if tokenizer == "word":  # words do not encode the whole text, so there are no bits per byte
        unknown = {split: count_of(0, tokens[split]) / length for split, length in lengths.items()}
    elif sizes:
        bytes_per_token = {split: sizes[split] / length for split, length in lengths.items()}
    return {
        "tokenizer": tokenizer,
        "vocab": vocab,
        "tokens": tokens,
        "yardsticks": yardsticks(first_tokens(tokens["train"]), tokens["test"][:], vocab),
        "bytes_per_token": bytes_per_token,
        "unknown": unknown,
    }


def count_of(number: int, tokens: Any) -> int:
    """How often an id occurs."""
    parts = tokens.parts if isinstance(tokens, Shards) else [tokens]
    return sum(int((part == number).sum()) for part in parts)


def first_tokens(tokens: Any) -> Any:
    """About `COUNTED` ids, the first of each shard."""
    if not isinstance(tokens, Shards):
        return tokens[:COUNTED]
    share = min(1.0, COUNTED / max(1, len(tokens)))
    return Shards(part[: math.ceil(share * len(part))] for part in tokens.parts)


def yardsticks(train: Any, test: np.ndarray, vocab: int) -> dict[str, float]:
    """Cross-entropy on the test split, in nats per token, of uniform, unigram and bigram models of the train split.
    Unigram counts start at 1; the bigram model interpolates: p(b|a) = (n(a, b) + p(b)) / (n(a) + 1)."""
    if len(train) < 2 or len(test) < 2:
        return {}
    wanted, weight = np.unique(pairs_of(test, vocab), return_counts=True)
    after = np.zeros(vocab, np.int64)  # how often each id has a next one
    seen = np.zeros(len(wanted), np.int64)
    for start in range(0, len(train) - 1, BLOCK):
        part = train[start : start + BLOCK + 1]
        after += np.bincount(part[:-1], minlength=vocab)
        pairs = pairs_of(part, vocab)
        places = np.minimum(np.searchsorted(wanted, pairs), len(wanted) - 1)
        seen += np.bincount(places[wanted[places] == pairs], minlength=len(wanted))
    counts = after + 1.0
    counts[train[len(train) - 1 :]] += 1
    unigram = counts / counts.sum()
    bigram = (seen + unigram[wanted % vocab]) / (after[wanted // vocab] + 1)
    return {
        "uniform": float(np.log(vocab)),
        "unigram": float(-np.log(unigram[test]).mean()),
        "bigram": float(-(np.log(bigram) * weight).sum() / weight.sum()),
    }


def pairs_of(tokens: np.ndarray, vocab: int) -> np.ndarray:
    """Each id with the next one, as one number."""
    return tokens[:-1].astype(np.int64) * vocab + tokens[1:]
