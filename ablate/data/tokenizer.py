"""Tokenisation: bytes, characters, byte-level byte-pair encoding, words, or a tokenizer made elsewhere."""

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablate.config.errors import one_line
from ablate.config.extra import extra
from ablate.formatting import instead, listed

SEPARATOR = "\0"  # ends each document if there are several
SIZES = {"bpe": 1024, "word": 8192}  # default vocabulary sizes
LEAST = {"bpe": (257, "the bytes and the end of a text"), "word": (3, "<unk>, the end of a text and a word")}
LEARNED = ("byte", "char", "bpe", "word")
PUBLISHED = ("gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base")  # of tiktoken
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")  # names of the token that ends a document
PATIENCE = 20.0  # seconds to wait for a download
CHUNK = 100_000  # characters tokenised at once: each takes a hundred bytes or more of memory
UNKNOWN = "<unk>"  # replaces words outside the vocabulary; cannot occur as a word itself
WORD = re.compile(r"\w+|\n|[^\w\s]")


class Codec(NamedTuple):
    """A tokenizer: the number of its ids, and the ids (N,) of a piece of text, bytes for `byte` and else str."""

    vocab: int
    encode: Callable[[Any], np.ndarray]


def checked_size(tokenizer: str, vocab_size: int | None) -> int | None:
    """The vocabulary size to train, None if nothing is trained.  Raises ValueError for invalid combinations."""
    if tokenizer not in (*LEARNED, *PUBLISHED) and not tokenizer.endswith(".json"):
        hint = instead(tokenizer, [*LEARNED, *PUBLISHED])
        raise ValueError(f"data.tokenizer={tokenizer!r} is not a choice; {hint} (or name a tokenizer.json)")
    if tokenizer not in SIZES:
        if vocab_size is not None:
            where = f"is for data.tokenizer={' or '.join(SIZES)}, not {tokenizer}"
            raise ValueError(f"data.vocab_size={vocab_size} {where}; leave it null")
        return None
    least, what = LEAST[tokenizer]
    if vocab_size is not None and vocab_size < least:
        raise ValueError(f"data.vocab_size={vocab_size} is too small; {what} take {least}")
    return vocab_size or SIZES[tokenizer]


def units(name: str, text: bytes, tokenizer: str, end: str = "") -> Any:
    """A document and its end as bytes or characters, at which it may be cut.  Raises ValueError if it is not UTF-8."""
    if tokenizer == "byte":
        return text + end.encode()
    try:
        return text.decode() + end
    except UnicodeDecodeError as error:
        problem = f"needs UTF-8 text, and {name} (byte {error.start}) is not"
        raise ValueError(f"data.tokenizer={tokenizer} {problem}; write data.tokenizer=byte") from None


def learn(tokenizer: str, vocab_size: int | None, train: Iterable[str], others: Iterable[str] = ()) -> str:
    """What a tokenizer is besides its name: the alphabet of all texts, the words of the train
    split by id as JSON, a tokenizer trained on the train split as JSON, the content of a tokenizer.json."""
    if tokenizer == "char":
        seen = [np.unique(_points(text)) for text in itertools.chain(train, others)]
        return "".join(map(chr, np.unique(np.concatenate(seen))))
    if tokenizer == "bpe":
        assert vocab_size
        texts = (text.removesuffix(SEPARATOR) for text in train)
        found = train_bpe((part for text in texts for part in chunks(text, CHUNK)), vocab_size)
    elif tokenizer == "word":
        assert vocab_size
        return json.dumps(vocabulary(train, vocab_size, SEPARATOR))
    elif tokenizer.endswith(".json"):
        found = _from_file(Path(tokenizer).expanduser())
    else:
        return ""
    return json.dumps(json.loads(found.to_str()), ensure_ascii=False, sort_keys=True)  # not in a hash table's order


def codec(tokenizer: str, state: str) -> Codec:
    """A tokenizer from its name and what it learned.  Raises ValueError if its library or its file is missing."""
    if tokenizer == "byte":
        return Codec(256, lambda piece: np.frombuffer(piece, np.uint8))
    if tokenizer == "char":
        alphabet = _points(state)
        return Codec(len(alphabet), lambda piece: np.searchsorted(alphabet, _points(piece)).astype(np.uint32))
    if tokenizer == "word":
        ids = {word: i for i, word in enumerate(json.loads(state))}
        return Codec(len(ids), lambda piece: encode(piece, ids))
    if tokenizer in PUBLISHED:
        known = _published(tokenizer)
        return _in_chunks(known.n_vocab, known.encode_ordinary, known.eot_token)
    found = extra("tokenizers", f"data.tokenizer={tokenizer}").Tokenizer.from_str(state)
    found.no_truncation()  # many a tokenizer.json says how a model's input is to be cut and padded
    found.no_padding()
    vocab, end = max(found.get_vocab().values()) + 1, None if tokenizer == "bpe" else _end_of(tokenizer, found)
    return _in_chunks(vocab, lambda part: found.encode(part, add_special_tokens=False).ids, end)


def _in_chunks(vocab: int, ids_of: Callable[[str], list[int]], end: int | None) -> Codec:
    """A codec that encodes `CHUNK` characters at a time; `end` is the id that stands for `SEPARATOR`, or None."""
    kind = np.uint16 if vocab <= 2**16 else np.uint32

    def encode(piece: str) -> np.ndarray:
        text = piece if end is None else piece.removesuffix(SEPARATOR)
        parts = [np.array(ids_of(part), kind) for part in chunks(text, CHUNK)]
        return np.concatenate([*parts, np.array([end] * (len(text) < len(piece)), kind)])

    return Codec(vocab, encode)


def _points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _from_file(file: Path) -> Any:
    library = extra("tokenizers", f"data.tokenizer={file}")
    if not file.is_file():
        raise ValueError(f"data.tokenizer={file} does not exist; name a tokenizer.json")
    try:
        return library.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"data.tokenizer={file} is no tokenizer.json ({one_line(error)[:200]})") from None


def _end_of(name: str, tokenizer: Any) -> int:
    if not (known := [i for end in ENDS if (i := tokenizer.token_to_id(end)) is not None]):
        problem = f"data.tokenizer={name} has no token for the end of a document"
        raise ValueError(f"{problem}; it needs one of {listed(ENDS)}")
    return int(known[0])


def _published(name: str) -> Any:
    """An encoding of tiktoken, which downloads its merges once."""
    library = extra("tiktoken", f"data.tokenizer={name}")
    requests = extra("requests", f"data.tokenizer={name}")
    get = requests.get
    try:
        requests.get = functools.partial(get, timeout=PATIENCE)  # tiktoken would wait for a silent server for ever
        return library.get_encoding(name)
    except Exception as error:  # of the network, the disk, or the file's checksum
        where = "copy its cache folder from another machine and set TIKTOKEN_CACHE_DIR"
        raise ValueError(f"data.tokenizer={name} cannot be downloaded ({one_line(error)[:120]}); {where}") from None
    finally:
        requests.get = get


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
