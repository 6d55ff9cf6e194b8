"""A corpus: documents, split so that nothing leaks, tokenised once into memory-mapped arrays."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ablate.data.split import split_documents

SPLITS = ("train", "val", "test")
FORMAT = 2  # raised when what the cache holds for the same documents changes
SEPARATOR = "\0"  # ends each document where there are several


class Document(NamedTuple):
    """A named piece of text."""

    name: str
    text: bytes


@dataclass
class Corpus:
    """Token streams of the three splits, and where in them each document lies."""

    fingerprint: str
    vocab: int
    tokens: dict[str, np.ndarray]  # split -> (N,)
    names: dict[str, list[str]]  # split -> documents
    ends: dict[str, np.ndarray]  # split -> (documents,), one past the last token
    by_document: bool  # whole documents were assigned to splits; else each was cut by position
    yardsticks: dict[str, float]


def cache_folder() -> Path:
    """Where tokenised corpora are kept: ABLATE_CACHE, or the user's cache folder, or else a temporary one."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("ABLATE_CACHE") or Path(home) / "ablate")
    # A user without a home, or with one that cannot be written, is no mistake: clusters and containers have them.
    with contextlib.suppress(OSError):
        if folder.is_absolute() or not home.startswith("~"):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    folder = Path(tempfile.gettempdir()) / f"ablate-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def load_corpus(documents: Sequence[Document], tokenizer: str) -> Corpus:
    """The corpus of these documents, from the cache or newly made.  Raises ValueError when they cannot be tokenised."""
    digest = hashlib.sha256(f"{FORMAT} {tokenizer} {len(documents)}".encode())
    for document in documents:
        digest.update(f"\n{document.name} {len(document.text)}\n".encode() + document.text)
    fingerprint = digest.hexdigest()[:32]
    folder = cache_folder() / fingerprint
    try:
        return _read(folder, fingerprint)
    except (OSError, EOFError, ValueError, LookupError, TypeError):  # whatever a damaged file can look like
        shutil.rmtree(folder, ignore_errors=True)
    _write(folder, documents, tokenizer)
    return _read(folder, fingerprint)


def _read(folder: Path, fingerprint: str) -> Corpus:
    meta = json.loads((folder / "meta.json").read_text())
    return Corpus(
        fingerprint,
        meta["vocab"],
        {split: np.load(folder / f"{split}.npy", mmap_mode="r") for split in SPLITS},
        meta["names"],
        {split: np.array(meta["ends"][split]) for split in SPLITS},
        meta["by_document"],
        meta["yardsticks"],
    )


def _write(folder: Path, documents: Sequence[Document], tokenizer: str) -> None:
    ids, vocab = encode(documents, tokenizer)
    parts, by_document = split_documents([document.text for document in documents], [len(tokens) for tokens in ids])
    streams: dict[str, np.ndarray] = {}
    names: dict[str, list[str]] = {}
    ends: dict[str, list[int]] = {}
    for split in SPLITS:
        pieces = [ids[i][begin:end] for i, begin, end in parts[split]]
        streams[split] = np.concatenate(pieces) if pieces else ids[0][:0]
        names[split] = [documents[i].name for i, _, _ in parts[split]]
        ends[split] = np.cumsum([len(piece) for piece in pieces], dtype=int).tolist()
    meta = {"vocab": vocab, "names": names, "ends": ends, "by_document": by_document}
    meta["yardsticks"] = yardsticks(streams["train"], streams["test"], vocab)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as making:
        for split, stream in streams.items():
            np.save(Path(making) / f"{split}.npy", stream)
        (Path(making) / "meta.json").write_text(json.dumps(meta))
        ready = Path(making).rename(Path(making + "-ready"))
        try:
            ready.rename(folder)
        except OSError:  # somebody else was faster
            shutil.rmtree(ready)
        Path(making).mkdir()


def encode(documents: Sequence[Document], tokenizer: str) -> tuple[list[np.ndarray], int]:
    """Each document's token ids, and the vocabulary's size.  Raises ValueError for text that is not UTF-8 (char)."""
    end = SEPARATOR if len(documents) > 1 else ""
    if tokenizer == "byte":
        return [np.frombuffer(document.text + end.encode(), np.uint8) for document in documents], 256
    if tokenizer != "char":
        raise ValueError(f"data.tokenizer={tokenizer!r} is not a choice; write one of byte, char")
    points = [np.frombuffer((_decode(document) + end).encode("utf-32-le"), np.uint32) for document in documents]
    alphabet = np.unique(np.concatenate([np.unique(p) for p in points]))
    return [np.searchsorted(alphabet, p).astype(np.uint32) for p in points], len(alphabet)


def _decode(document: Document) -> str:
    try:
        return document.text.decode()
    except UnicodeDecodeError as error:
        place = f"{document.name} (byte {error.start})"
        raise ValueError(
            f"data.tokenizer=char needs UTF-8 text, and {place} is not; write data.tokenizer=byte"
        ) from None


def yardsticks(train: np.ndarray, test: np.ndarray, vocab: int) -> dict[str, float]:
    """Cross-entropy on the test split, in nats per token, of the uniform, unigram and bigram models of the train split.

    Counts start at 1 (unigram); the bigram model interpolates: p(b|a) = (n(a, b) + p(b)) / (n(a) + 1).
    """
    if len(train) < 2 or len(test) < 2:
        return {}
    counts = np.bincount(train, minlength=vocab) + 1.0
    unigram = counts / counts.sum()
    pairs, seen = np.unique(_pairs(train, vocab), return_counts=True)
    after = np.bincount(train[:-1], minlength=vocab)
    wanted, weight = np.unique(_pairs(test, vocab), return_counts=True)
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    found = np.where(pairs[at] == wanted, seen[at], 0)
    bigram = (found + unigram[wanted % vocab]) / (after[wanted // vocab] + 1)
    return {
        "uniform": float(np.log(vocab)),
        "unigram": float(-np.log(unigram[test]).mean()),
        "bigram": float(-(np.log(bigram) * weight).sum() / weight.sum()),
    }


def _pairs(tokens: np.ndarray, vocab: int) -> np.ndarray:
    return tokens[:-1].astype(np.int64) * vocab + tokens[1:]
