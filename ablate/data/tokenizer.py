"""Tokenisation and decoding: bytes, characters, byte-level byte-pair encoding, or words."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ablate.config.extra import extra

SEPARATOR = "\0"  # ends each document if there are several
SIZES = {"bpe": 1024, "word": 8192}  # default vocabulary sizes
LEAST = {"bpe": (257, "the bytes and the end of a text"), "word": (3, "<unk>, the end of a text and a word")}
CHUNK = 100_000  # characters tokenised at once: each takes a hundred bytes or more of memory
UNKNOWN = "<unk>"  # replaces words outside the vocabulary; cannot occur as a word itself
WORD = re.compile(r"\w+|\n|[^\w\s]")


class Coded(NamedTuple):
    """Ids of each split's pieces, the size of the vocabulary, and the state for decoding."""

    ids: dict[str, list[np.ndarray]]
    vocab: int
    state: str  # char: the alphabet by id; word: the words by id, as JSON; bpe: the tokenizer as JSON


Pieces = dict[str, list[Any]]  # split -> bytes (byte) or str


def checked_size(tokenizer: str, vocab_size: int | None) -> int | None:
    """The vocabulary size to train, None if nothing is trained.  Raises ValueError for invalid combinations."""
    if tokenizer not in CODECS:
        raise ValueError(f"data.tokenizer={tokenizer!r} is not a choice; write one of {', '.join(CODECS)}")
    if tokenizer not in SIZES:
        if vocab_size is not None:
            where = f"is for data.tokenizer={' or '.join(SIZES)}, not {tokenizer}"
            raise ValueError(f"data.vocab_size={vocab_size} {where}; leave it null")
        return None
    least, what = LEAST[tokenizer]
    if vocab_size is not None and vocab_size < least:
        raise ValueError(f"data.vocab_size={vocab_size} is too small; {what} take {least}")
    return vocab_size or SIZES[tokenizer]


def units(name: str, text: bytes, tokenizer: str) -> Any:
    """A document as bytes or characters, at which it may be cut.  Raises ValueError if it is not UTF-8."""
    if tokenizer == "byte":
        return text
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        problem = f"needs UTF-8 text, and {name} (byte {error.start}) is not"
        raise ValueError(f"data.tokenizer={tokenizer} {problem}; write data.tokenizer=byte") from None


def tokenise(pieces: Pieces, tokenizer: str, vocab_size: int | None) -> Coded:
    """Ids of all pieces; a vocabulary is trained on the train split only."""
    return CODECS[tokenizer](pieces, vocab_size)


def _bytes(pieces: Pieces, _: int | None) -> Coded:
    ids = {split: [np.frombuffer(piece, np.uint8) for piece in found] for split, found in pieces.items()}
    return Coded(ids, 256, "")


def _characters(pieces: Pieces, _: int | None) -> Coded:
    points = {
        split: [np.frombuffer(piece.encode("utf-32-le"), np.uint32) for piece in found]
        for split, found in pieces.items()
    }
    seen = [np.unique(piece) for found in points.values() for piece in found]
    alphabet = np.unique(np.concatenate(seen))
    ids = {split: [np.searchsorted(alphabet, p).astype(np.uint32) for p in found] for split, found in points.items()}
    return Coded(ids, len(alphabet), "".join(map(chr, alphabet)))


def _pairs(pieces: Pieces, vocab_size: int | None) -> Coded:
    """Byte-level byte-pair encoding (Sennrich 2015, arXiv 1508.07909; on bytes as in GPT-2, Radford 2019)."""
    assert vocab_size
    texts = (piece.removesuffix(SEPARATOR) for piece in pieces["train"])
    tokenizer = train_bpe((part for text in texts for part in chunks(text, CHUNK)), vocab_size)
    vocab = tokenizer.get_vocab_size()
    kind = np.uint16 if vocab <= 2**16 else np.uint32

    def encode(piece: str) -> np.ndarray:
        parts = [tokenizer.encode(part).ids for part in chunks(piece, CHUNK)]
        return np.array([i for part in parts for i in part], kind)

    ids = {split: [encode(piece) for piece in found] for split, found in pieces.items()}
    return Coded(ids, vocab, to_json(tokenizer))


def train_bpe(texts: Iterable[str], vocab_size: int) -> Any:
    """Train a tokenizer with at most `vocab_size` ids; the first are the end of a document and the bytes."""
    library = extra("tokenizers", "data.tokenizer=bpe")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[SEPARATOR],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def to_json(tokenizer: Any) -> str:
    """Serialise a tokenizer deterministically, independent of the order of a hash table."""
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, sort_keys=True)


def chunks(text: str, size: int) -> list[str]:
    """Split text into pieces of more than `size` characters, before white space that follows another character.  Merges
    never cross word boundaries, so the pieces give the same tokens as the whole."""
    return re.findall(rf"(?s).{{{size},}}?\S(?=[ \n])|.+", text)


def words_of(text: str) -> Iterator[str]:
    """The words of a text: runs of letters, digits and underscores; other characters except spaces are single words.
    Case matters.  Line ends are words; spaces and tabs are not, so that decoding cannot restore them."""
    return (found.group() for found in WORD.finditer(text))


def vocabulary(texts: Iterable[str], size: int, end: str) -> list[str]:
    """At most `size` words in order of ids: `UNKNOWN`, `end`, then by frequency, ties in alphabetical order."""
    counts = Counter(word for text in texts for word in words_of(text))
    del counts[end]
    return [UNKNOWN, end, *sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]]


def encode(text: str, ids: dict[str, int]) -> np.ndarray:
    """The ids (N,) of a text's words, 0 for unknown words."""
    return np.fromiter((ids.get(word, 0) for word in words_of(text)), np.uint32)


def _words(pieces: Pieces, vocab_size: int | None) -> Coded:
    assert vocab_size
    known = vocabulary(pieces["train"], vocab_size, SEPARATOR)
    numbered = {word: i for i, word in enumerate(known)}
    ids = {split: [encode(piece, numbered) for piece in found] for split, found in pieces.items()}
    return Coded(ids, len(known), json.dumps(known))


CODECS: dict[str, Callable[[Pieces, int | None], Coded]] = {
    "byte": _bytes,
    "char": _characters,
    "bpe": _pairs,
    "word": _words,
}


def decode(ids: Sequence[int], tokenizer: str, state: str) -> str:
    """Decode ids; bytes that are not UTF-8 become U+FFFD, words are joined by single spaces."""
    if tokenizer == "byte":
        return bytes(ids).decode(errors="replace")
    if tokenizer == "char":
        return "".join(state[i] for i in ids)
    if tokenizer == "word":
        known = json.loads(state)
        return " ".join(known[i] for i in ids)
    library = extra("tokenizers", "data.tokenizer=bpe")
    return library.Tokenizer.from_str(state).decode(list(ids), skip_special_tokens=False)
